//! The host's memory over a period, thinned out and kept for a while: the daemon reads its whole file for each request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use watchdog_api::Record;
use watchdog_api::client::{ClientError, ControlClient};

use crate::holders::{HostSample, LastHolders, VALID};

/// Samples of a period: about one for two pixels of a chart.
const MAX_SAMPLES: u64 = 360;
/// How long a period is kept, at least and at most.
const KEPT: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(600));

/// When a period was read, and what it holds.
type KeptPeriod = (Instant, Arc<Vec<HostSample>>);

#[derive(Debug, Default)]
pub(crate) struct HistoryCache {
    periods: Mutex<HashMap<u64, KeptPeriod>>,
}

impl HistoryCache {
    /// The last `seconds`, oldest first. Of neighbours the one with the least available memory is kept.
    pub(crate) fn period(&self, client: &ControlClient, seconds: u64) -> Result<Arc<Vec<HostSample>>, ClientError> {
        let kept = Duration::from_secs(seconds / 120).clamp(KEPT.0, KEPT.1);
        // Two tabs that ask at once read it once.
        let mut periods = self.periods.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, samples)) = periods.get(&seconds).filter(|(read, _)| read.elapsed() < kept) {
            return Ok(Arc::clone(samples));
        }
        let samples = Arc::new(read(client, seconds)?);
        periods.insert(seconds, (Instant::now(), Arc::clone(&samples)));
        Ok(samples)
    }
}

fn read(client: &ControlClient, seconds: u64) -> Result<Vec<HostSample>, ClientError> {
    let width = i64::try_from(seconds / MAX_SAMPLES).unwrap_or(i64::MAX).max(1);
    let mut samples: Vec<HostSample> = Vec::new();
    let mut holders = LastHolders::default();
    // Early enough to know who held memory at the start.
    let from = Timestamp::now().as_second() - i64::try_from(seconds).unwrap_or(i64::MAX);
    let before = seconds.saturating_add(VALID.unsigned_abs());
    let mut lines = client.get_lines(&format!("/v1/history?since={before}s"))?;
    while let Some(line) = lines.next_or_end()? {
        let Ok(record) = serde_json::from_str::<Record>(&line) else { continue };
        let Ok(at) = record.at.parse::<Timestamp>() else { continue };
        let Some(sample) = holders.sample(at, &record.what).filter(|sample| sample.at >= from) else { continue };
        match samples.last_mut().filter(|last| last.at / width == sample.at / width) {
            Some(last) if available(last) <= available(&sample) => {}
            Some(last) => *last = sample,
            None => samples.push(sample),
        }
    }
    Ok(samples)
}

fn available(sample: &HostSample) -> u64 {
    sample.host.memory.memory_available_bytes
}
