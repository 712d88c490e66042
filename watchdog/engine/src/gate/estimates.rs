//! Expected memory of sessions, from the peaks of past ones.

use std::time::Duration;

use super::gate_record::Peaks;
use watchdog_types::Bytes;

/// Shorter sessions are ignored: `--version`, health checks.
pub(super) const MIN_DURATION: Duration = Duration::from_secs(60);
/// Per profile.
const MAX_SAMPLES: usize = 200;
/// Fewer samples give no estimate.
const MIN_SAMPLES: usize = 10;
/// The percentile of the samples that is expected.
const PERCENTILE: usize = 95;

pub(super) fn record(peaks: &mut Peaks, profile: &str, peak: Bytes) {
    let known = peaks.entry(profile.to_owned()).or_default();
    known.push(peak);
    let surplus = known.len().saturating_sub(MAX_SAMPLES);
    known.drain(..surplus);
}

/// The estimate and its number of samples.
pub(super) fn expected(peaks: &Peaks, profile: &str) -> Option<(Bytes, u64)> {
    let known = peaks.get(profile).filter(|known| known.len() >= MIN_SAMPLES)?;
    let mut sorted = known.clone();
    sorted.sort_unstable();
    // Nearest rank: the smallest sample that 95 % do not exceed.
    let rank = (sorted.len() * PERCENTILE).div_ceil(100);
    Some((*sorted.get(rank - 1)?, sorted.len() as u64))
}
