//! When growth began: where its line meets the level that memory had before.

use super::minima::{Floors, SCALES};

/// A minimum is on the line while it exceeds it by at most this part of the growth.
const ON_LINE: f64 = 0.1;
/// The number of minima whose least is the level before.
const LEVEL: usize = 4;

/// A line of growth. Memory in KiB, time in tenths of a second since the beginning of the series.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// The first and the last moment at which it was seen.
    pub(super) seen: (f64, f64),
    /// Memory in the middle between them.
    pub(super) middle: f64,
    pub(super) grown: f64,
    pub(super) rate: f64,
}

impl Line {
    fn at(&self, time: f64) -> f64 {
        self.middle + self.rate * (time - (self.seen.0 + self.seen.1) / 2.0)
    }

    /// When the line was at this level.
    fn meets(&self, level: f64) -> f64 {
        (self.seen.0 + self.seen.1) / 2.0 + (level - self.middle) / self.rate
    }

    /// When the growth began: the finest scale that reaches beyond it has the answer.
    pub(super) fn onset(&self, floors: &Floors) -> f64 {
        (0..SCALES).find_map(|scale| self.onset_at(floors, scale)).unwrap_or_else(|| self.meets(self.at(0.0)))
    }

    fn onset_at(&self, floors: &Floors, scale: usize) -> Option<f64> {
        let before: Vec<(f64, f64)> = floors
            .minima(scale)
            .map(|minimum| (f64::from(minimum.began(scale)), f64::from(minimum.kib)))
            .filter(|(began, _)| *began < (self.seen.0 + self.seen.1) / 2.0)
            .collect();
        let left = before.iter().rposition(|(began, kib)| *kib > self.at(*began) + ON_LINE * self.grown)?;
        let around = before.iter().take(left + 2).rev().take(LEVEL);
        let level = around.map(|(_, kib)| *kib).fold(f64::INFINITY, f64::min);
        Some(self.meets(level).clamp(before[left].0, self.seen.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sampled each second: calm at 60 MiB until `began`, then growth, looked at after `until`.
    fn onset(began: u32, until: u32, rate: f64) -> f64 {
        let mut floors = Floors::new();
        let memory = |second: u32| (60.0 + rate * f64::from(second.saturating_sub(began))) * 1024.0;
        for second in 0..=until {
            let _ = floors.note(second * 10, memory(second) as u32, None);
        }
        let seen = (f64::from(until - 40), f64::from(until));
        let middle = (memory(until - 40) + memory(until)) / 2.0;
        let line =
            Line { seen: (seen.0 * 10.0, seen.1 * 10.0), middle, grown: rate * 40.0 * 1024.0, rate: rate * 102.4 };
        line.onset(&floors) / 10.0
    }

    #[test]
    fn onset_is_right_within_seconds() {
        for (began, until) in [(100, 150), (100, 220), (300, 350), (3_600, 3_700)] {
            let found = onset(began, until, 1.0);
            assert!((found - f64::from(began)).abs() < 4.0, "{began}: {found}");
        }
    }

    #[test]
    fn onset_may_be_first_sample() {
        assert!(onset(0, 100, 1.0) < 1.0);
    }
}
