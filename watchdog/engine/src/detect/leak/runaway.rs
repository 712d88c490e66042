//! Runaways: a rise that does not stop, seen while it lasts.

use super::slope::Slope;

/// Growth is compared with what it was before this often, in tenths of a second.
const CHECK: u32 = 10;
/// A rise that is slower than this part of what it was is over.
const STALLED: f64 = 0.25;
/// One that is this many times quicker is another one.
const QUICKER: f64 = 4.0;
/// A fall by this part of the rise ends it.
const FALLEN: f64 = 0.05;
/// Checks in a row that a rise must pass.
const CHECKS: u8 = 3;
/// The time that a rise must last, in tenths of a second.
const LASTS: u32 = 30;

/// A moment, in tenths of a second since the beginning of the series, and memory in KiB.
type Point = (u32, u32);

/// The rise that a series is in.
#[derive(Clone, Debug)]
pub(super) struct Rise {
    from: Point,
    check: Point,
    last: Point,
    passed: u8,
    /// Growth between the last two checks, in KiB per tenth of a second.
    recent: f32,
}

/// A rise that lasts. Memory in KiB, time in tenths of a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Running {
    pub(super) slope: Slope,
    /// When it began.
    pub(super) at: f64,
    pub(super) from: f64,
    pub(super) grown: f64,
    pub(super) time: f64,
}

impl Rise {
    pub(super) fn new(at: u32, kib: u32) -> Self {
        let point = (at, kib);
        Self { from: point, check: point, last: point, passed: 0, recent: 0.0 }
    }

    /// Memory is this much now.
    pub(super) fn note(&mut self, at: u32, kib: u32) {
        let allowance = f64::from(self.last.1.saturating_sub(self.from.1)) * FALLEN;
        if f64::from(self.last.1.saturating_sub(kib)) > allowance {
            *self = Self::new(at, kib);
            return;
        }
        self.last = (at, kib.max(self.last.1));
        if at - self.check.0 < CHECK {
            return;
        }
        let recent = rate(self.check, self.last);
        let before = (self.check.0 > self.from.0).then(|| rate(self.from, self.check));
        match before {
            _ if recent <= 0.0 => *self = Self::new(at, kib),
            Some(before) if recent < before * STALLED => *self = Self::new(at, kib),
            Some(before) if recent > before * QUICKER => {
                (self.from, self.passed) = (self.check, 1);
            }
            _ => self.passed = self.passed.saturating_add(1),
        }
        self.check = self.last;
        self.recent = recent as f32;
    }

    /// The rise, when it has lasted long enough to be called one.
    pub(super) fn running(&self) -> Option<Running> {
        let time = self.last.0 - self.from.0;
        if self.passed < CHECKS || time < LASTS {
            return None;
        }
        let (whole, recent) = (rate(self.from, self.last), f64::from(self.recent));
        let slope = Slope { median: whole, low: whole.min(recent), high: whole.max(recent) };
        let (from, to) = (f64::from(self.from.1), f64::from(self.last.1));
        Some(Running { slope, at: f64::from(self.from.0), from, grown: to - from, time: f64::from(time) })
    }
}

fn rate(from: Point, to: Point) -> f64 {
    (f64::from(to.1) - f64::from(from.1)) / f64::from((to.0 - from.0).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: f64, memory: impl Fn(f64) -> f64) -> Option<Running> {
        let mut rise = Rise::new(0, memory(0.0) as u32);
        for at in 1..=(seconds * 10.0) as u32 {
            rise.note(at, memory(f64::from(at) / 10.0) as u32);
        }
        rise.running()
    }

    #[test]
    fn lasting_rise_has_rate() {
        let running = after(5.0, |s| s * 230.0 * 1024.0).unwrap();
        assert!((running.slope.median - 23.0 * 1024.0).abs() < 100.0, "{running:?}");
    }

    #[test]
    fn two_second_burst_is_no_runaway() {
        for seconds in [1.0, 2.0, 3.0, 4.0, 8.0] {
            assert_eq!(after(seconds, |s| s.min(2.0) * 3e6), None, "after {seconds} s");
        }
    }

    #[test]
    fn single_jump_is_no_runaway() {
        let mut rise = Rise::new(0, 0);
        rise.note(100, 4_000_000);
        assert_eq!(rise.running(), None);
    }

    #[test]
    fn fall_ends_runaway() {
        assert_eq!(after(8.1, |s| if s < 8.0 { s * 1e5 } else { 4e5 }), None);
    }
}
