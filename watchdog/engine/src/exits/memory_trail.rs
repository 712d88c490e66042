//! Samples of a process's memory. Their distance doubles as the process gets older.

use std::time::Duration;

use watchdog_types::{BootTime, Bytes};

/// 256 bytes per process.
const POINTS: usize = 16;
const FIRST_GAP: Duration = Duration::from_millis(500);

#[derive(Clone, Debug)]
pub(crate) struct MemoryTrail {
    points: Vec<(BootTime, Bytes)>,
    gap: Duration,
}

/// Growth up to the exit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MemoryGrowth {
    /// Since the first sample.
    pub(super) bytes: i64,
    /// Time from the first sample to the exit.
    pub(super) within: Duration,
    /// Time in which the memory doubled.
    pub(super) doubled_within: Option<Duration>,
}

impl Default for MemoryTrail {
    fn default() -> Self {
        Self { points: Vec::new(), gap: FIRST_GAP }
    }
}

impl MemoryTrail {
    pub(crate) fn record(&mut self, at: BootTime, held: Bytes) {
        if self.points.last().is_some_and(|(last, _)| at.since(*last) < self.gap) {
            return;
        }
        if self.points.len() == POINTS {
            let mut keep = false;
            self.points.retain(|_| {
                keep = !keep;
                keep
            });
            self.gap *= 2;
        }
        self.points.push((at, held));
    }

    /// `last` is the memory at exit.
    pub(super) fn growth(&self, died: BootTime, last: Bytes) -> Option<MemoryGrowth> {
        let (since, first) = *self.points.first()?;
        let within = died.since(since);
        if within < FIRST_GAP {
            return None;
        }
        let bytes = i64::try_from(i128::from(last.0) - i128::from(first.0)).unwrap_or(i64::MAX);
        let half = self.points.iter().rev().find(|(_, held)| held.0 <= last.0 / 2);
        Some(MemoryGrowth { bytes, within, doubled_within: half.map(|(at, _)| died.since(*at)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootTime {
        BootTime(seconds * 1_000_000_000)
    }

    #[test]
    fn trail_of_a_day_is_bounded() {
        let mut trail = MemoryTrail::default();
        for second in 0..86_400 {
            trail.record(at(second), Bytes::from_mib(100 + second / 100));
        }
        assert!(trail.points.len() <= POINTS, "{trail:?}");
        let growth = trail.growth(at(86_400), Bytes::from_mib(964)).unwrap();
        assert_eq!(growth.bytes, 864 << 20);
        assert_eq!(growth.within, Duration::from_secs(86_400));
        let doubled = growth.doubled_within.unwrap().as_secs();
        assert!((48_000..57_000).contains(&doubled), "{doubled}");
    }

    #[test]
    fn final_burst_differs_from_slow_growth() {
        let mut trail = MemoryTrail::default();
        for second in 0..3_600 {
            trail.record(at(second), Bytes::from_mib(300));
        }
        trail.record(at(3_601), Bytes::from_mib(9_000));
        let growth = trail.growth(at(3_602), Bytes::from_mib(9_000)).unwrap();
        assert!(growth.doubled_within.unwrap() < Duration::from_secs(300), "{growth:?}");
    }

    #[test]
    fn short_trail_has_no_growth() {
        let mut trail = MemoryTrail::default();
        assert_eq!(trail.growth(at(9), Bytes(1)), None);
        trail.record(at(9), Bytes(1));
        assert_eq!(trail.growth(at(9), Bytes(1)), None);
    }
}
