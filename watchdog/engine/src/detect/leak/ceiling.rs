//! Ceilings: where growth ends, wanted or not.

use std::time::Duration;

use super::series::GrowthEstimate;
use watchdog_api::evidence::LeakLimit;
use watchdog_types::Bytes;

/// A rise that reaches a ceiling within this time cannot wait for a window to fill.
const URGENT: Duration = Duration::from_secs(120);
/// It must have taken this much, and this part of what the host had left: a burst of a tool takes less.
const URGENT_GROWN: Bytes = Bytes::from_mib(32);
const URGENT_PART_OF_HOST: f64 = 0.3;
/// A process that has a limit of its own is expected to use it: the rise must have come this near to it.
const URGENT_PART_OF_LIMIT: f64 = 0.75;
/// A garbage collector works hardest near the end of its heap, which is only a part of what the process holds.
const URGENT_PART_OF_HEAP: f64 = 0.85;

/// One ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling {
    /// What it is.
    pub limit: LeakLimit,
    /// How much it allows; of the host, what is left.
    pub bytes: Bytes,
    /// How much of that is left.
    pub left: Bytes,
}

/// The ceilings above a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ceilings([Option<Ceiling>; 4]);

impl Ceiling {
    /// Seconds until growth at this rate, in bytes per second, is there.
    #[must_use]
    pub fn seconds_left(&self, rate: f64) -> f64 {
        self.left.0 as f64 / rate.max(1.0)
    }

    fn is_urgent(&self, rise: &GrowthEstimate) -> bool {
        let used = self.bytes.0.saturating_sub(self.left.0) as f64 / self.bytes.0.max(1) as f64;
        let near = match self.limit {
            LeakLimit::Configured | LeakLimit::Cgroup => used >= URGENT_PART_OF_LIMIT,
            LeakLimit::V8Heap => used >= URGENT_PART_OF_HEAP,
            LeakLimit::Host => rise.grown.0 as f64 >= (rise.grown + self.left).0 as f64 * URGENT_PART_OF_HOST,
        };
        near && rise.grown >= URGENT_GROWN && self.seconds_left(rise.rate) <= URGENT.as_secs_f64()
    }
}

impl Ceilings {
    /// Adds one.
    pub fn add(&mut self, limit: LeakLimit, bytes: Bytes, left: Bytes) {
        self.0[limit as usize] = Some(Ceiling { limit, bytes, left });
    }

    /// The one that growth meets first.
    #[must_use]
    pub fn nearest(&self) -> Option<Ceiling> {
        self.0.iter().flatten().min_by_key(|ceiling| ceiling.left).copied()
    }

    /// Whether a rise that lasts since seconds reaches one of them too soon to wait.
    #[must_use]
    pub fn is_urgent(&self, rise: &GrowthEstimate) -> bool {
        self.0.iter().flatten().any(|ceiling| ceiling.is_urgent(rise))
    }
}
