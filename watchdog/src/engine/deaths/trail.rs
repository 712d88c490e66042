//! Where a process's memory has been: a few points, the further apart the longer it lives.

use std::time::Duration;

use crate::engine::id::{BootTime, Bytes};

/// Points that are kept: 256 bytes a process.
const POINTS: usize = 16;
const FIRST_GAP: Duration = Duration::from_millis(500);

/// The way of one program's memory.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Trail {
    points: Vec<(BootTime, Bytes)>,
    gap: Duration,
}

/// How a process had grown by its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Growth {
    /// By how many bytes, since it was first looked at.
    pub(super) bytes: i64,
    /// And when that was before its end.
    pub(super) within: Duration,
    /// When it held at most half of what it held at last.
    pub(super) doubled_within: Option<Duration>,
}

impl Default for Trail {
    fn default() -> Self {
        Self { points: Vec::new(), gap: FIRST_GAP }
    }
}

impl Trail {
    /// It held this much.
    pub(in crate::engine) fn pass(&mut self, at: BootTime, held: Bytes) {
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

    /// How it had grown when it died, holding `last`.
    pub(super) fn growth(&self, died: BootTime, last: Bytes) -> Option<Growth> {
        let (since, first) = *self.points.first()?;
        let within = died.since(since);
        if within < FIRST_GAP {
            return None;
        }
        let bytes = i64::try_from(i128::from(last.0) - i128::from(first.0)).unwrap_or(i64::MAX);
        let half = self.points.iter().rev().find(|(_, held)| held.0 <= last.0 / 2);
        Some(Growth { bytes, within, doubled_within: half.map(|(at, _)| died.since(*at)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootTime {
        BootTime(seconds * 1_000_000_000)
    }

    #[test]
    fn a_day_fits_into_a_few_points_and_keeps_its_beginning_and_its_end() {
        let mut trail = Trail::default();
        for second in 0..86_400 {
            trail.pass(at(second), Bytes::from_mib(100 + second / 100));
        }
        assert!(trail.points.len() <= POINTS, "{trail:?}");
        let growth = trail.growth(at(86_400), Bytes::from_mib(964)).unwrap();
        assert_eq!(growth.bytes, 864 << 20);
        assert_eq!(growth.within, Duration::from_secs(86_400));
        let doubled = growth.doubled_within.unwrap().as_secs();
        assert!((48_000..57_000).contains(&doubled), "{doubled}");
    }

    #[test]
    fn a_burst_at_the_end_is_told_from_slow_growth() {
        let mut trail = Trail::default();
        for second in 0..3_600 {
            trail.pass(at(second), Bytes::from_mib(300));
        }
        trail.pass(at(3_601), Bytes::from_mib(9_000));
        let growth = trail.growth(at(3_602), Bytes::from_mib(9_000)).unwrap();
        assert!(growth.doubled_within.unwrap() < Duration::from_secs(300), "{growth:?}");
    }

    #[test]
    fn who_was_hardly_looked_at_did_not_grow() {
        let mut trail = Trail::default();
        assert_eq!(trail.growth(at(9), Bytes(1)), None);
        trail.pass(at(9), Bytes(1));
        assert_eq!(trail.growth(at(9), Bytes(1)), None);
    }
}
