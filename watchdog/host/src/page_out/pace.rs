//! The rate of an order, and the swap that must remain.

use std::time::{Duration, Instant};

use crate::swap;
use watchdog_types::Bytes;

/// Maximum per call. All limits are checked again between two calls.
const STEP: Bytes = Bytes(16 << 20);
/// Lowest rate, so that each order ends in reasonable time.
const MIN_RATE: Bytes = Bytes(1 << 20);
/// Calls per second at a low rate.
const STEPS: u64 = 4;
/// Interval between two checks for cancellation during a wait.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The rate and the limits of an order.
pub(super) struct Pace<'a> {
    rate: Bytes,
    reserve: Bytes,
    swap: bool,
    proceed: &'a dyn Fn() -> bool,
    /// The rate allows the next call at this time.
    due: Instant,
}

impl<'a> Pace<'a> {
    pub(super) fn new(rate: Bytes, reserve: Bytes, proceed: &'a dyn Fn() -> bool) -> Self {
        let swap = swap::totals().0 > Bytes(0);
        Self { rate: rate.max(MIN_RATE), reserve, swap, proceed, due: Instant::now() }
    }

    pub(super) fn may_proceed(&self) -> bool {
        (self.proceed)()
    }

    /// Maximum of one call.
    pub(super) fn step(&self) -> Bytes {
        STEP.min(Bytes(self.rate.0 / STEPS))
    }

    pub(super) fn has_swap(&self) -> bool {
        self.swap
    }

    /// Free swap above the reserve. Read for each call: other processes need swap too.
    pub(super) fn swap_room(&self) -> Bytes {
        Bytes(swap::swap_free().0.saturating_sub(self.reserve.0))
    }

    /// Waits until the rate allows the next call; `false` when the order was cancelled.
    pub(super) fn wait(&mut self, paged_out: Bytes) -> bool {
        let nanos = u128::from(paged_out.0) * 1_000_000_000 / u128::from(self.rate.0);
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        // Unused time is not accumulated.
        self.due = self.due.max(Instant::now()) + cost;
        while let Some(rest) = self.due.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) {
            if !self.may_proceed() {
                return false;
            }
            std::thread::sleep(rest.min(CHECK_INTERVAL));
        }
        self.may_proceed()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn rate_spaces_calls() {
        let mut pace = Pace::new(Bytes(40 << 20), Bytes(0), &|| true);
        let began = Instant::now();
        for _ in 0..4 {
            assert!(pace.wait(Bytes(2 << 20)));
        }
        assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
        assert_eq!(pace.step(), Bytes(10 << 20));
    }

    #[test]
    fn cancelled_wait_ends_early() {
        let asked = Cell::new(0);
        let proceed = || {
            asked.set(asked.get() + 1);
            asked.get() < 3
        };
        let mut pace = Pace::new(Bytes(0), Bytes(0), &proceed);
        let began = Instant::now();
        assert!(!pace.wait(Bytes(1 << 30)));
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn reserve_above_free_swap_blocks() {
        assert_eq!(Pace::new(Bytes(0), Bytes(u64::MAX), &|| true).swap_room(), Bytes(0));
    }
}
