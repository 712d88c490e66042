//! What sessions are expected to take, learned from those that are over.

use std::time::Duration;

use super::Peaks;
use crate::engine::id::Bytes;

/// Shorter sessions say nothing: a call for a version number, a check of a server.
pub(super) const WORTH_LEARNING: Duration = Duration::from_secs(60);
/// Past sessions of a profile that are remembered.
const REMEMBER: usize = 200;
/// So many are needed before they are believed.
const BELIEVED: usize = 10;
/// What is expected is what this share of them stayed below.
const PERCENTILE: usize = 95;

/// One more session of this profile is over.
pub(super) fn learn(peaks: &mut Peaks, profile: &str, peak: Bytes) {
    let known = peaks.entry(profile.to_owned()).or_default();
    known.push(peak);
    let surplus = known.len().saturating_sub(REMEMBER);
    known.drain(..surplus);
}

/// What a session of this profile is expected to take, and from how many that is known.
pub(super) fn expected(peaks: &Peaks, profile: &str) -> Option<(Bytes, u64)> {
    let known = peaks.get(profile).filter(|known| known.len() >= BELIEVED)?;
    let mut sorted = known.clone();
    sorted.sort_unstable();
    // The nearest rank: the least value that 95 % are not above.
    let rank = (sorted.len() * PERCENTILE).div_ceil(100);
    Some((*sorted.get(rank - 1)?, sorted.len() as u64))
}
