//! Ceilings: where growth ends, whether anybody wants it or not.

use std::time::Duration;

use super::series::Growth;
use crate::engine::id::Bytes;

/// A rise that reaches a ceiling within this time cannot wait for a window to fill.
const URGENT: Duration = Duration::from_secs(120);
/// It must have taken this much, and this part of what the host had left: a burst of a tool takes less.
const URGENT_GROWN: Bytes = Bytes::from_mib(32);
const URGENT_PART_OF_HOST: f64 = 0.2;
/// A process that has a limit of its own is expected to use it: the rise must have come this near to it.
const URGENT_PART_OF_LIMIT: f64 = 0.75;
/// A garbage collector works hardest near the end of its heap, which is only a part of what the process holds.
const URGENT_PART_OF_HEAP: f64 = 0.85;

/// What ends growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// `[leaks] limit` of the configuration.
    Configured,
    /// memory.max of a cgroup above the process.
    Cgroup,
    /// The heap limit of V8.
    V8Heap,
    /// What the host has available, and its free swap.
    Host,
}

/// One ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling {
    /// What it is.
    pub limit: Limit,
    /// How much it allows; of the host, what is left.
    pub bytes: Bytes,
    /// How much of that is left.
    pub left: Bytes,
}

/// The ceilings above a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ceilings([Option<Ceiling>; 4]);

impl Limit {
    /// The name in evidence.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Cgroup => "cgroup",
            Self::V8Heap => "v8-heap",
            Self::Host => "host",
        }
    }
}

impl Ceiling {
    /// Seconds until growth at this rate, in bytes per second, is there.
    #[must_use]
    pub fn seconds_left(&self, rate: f64) -> f64 {
        self.left.0 as f64 / rate.max(1.0)
    }

    fn is_urgent(&self, rise: &Growth) -> bool {
        let used = self.bytes.0.saturating_sub(self.left.0) as f64 / self.bytes.0.max(1) as f64;
        let near = match self.limit {
            Limit::Configured | Limit::Cgroup => used >= URGENT_PART_OF_LIMIT,
            Limit::V8Heap => used >= URGENT_PART_OF_HEAP,
            Limit::Host => rise.grown.0 as f64 >= (rise.grown + self.left).0 as f64 * URGENT_PART_OF_HOST,
        };
        near && rise.grown >= URGENT_GROWN && self.seconds_left(rise.rate) <= URGENT.as_secs_f64()
    }
}

impl Ceilings {
    /// Adds one.
    pub fn add(&mut self, limit: Limit, bytes: Bytes, left: Bytes) {
        self.0[limit as usize] = Some(Ceiling { limit, bytes, left });
    }

    /// The one that growth meets first.
    #[must_use]
    pub fn nearest(&self) -> Option<Ceiling> {
        self.0.iter().flatten().min_by_key(|ceiling| ceiling.left).copied()
    }

    /// Whether a rise that lasts since seconds reaches one of them too soon to wait.
    #[must_use]
    pub fn is_urgent(&self, rise: &Growth) -> bool {
        self.0.iter().flatten().any(|ceiling| ceiling.is_urgent(rise))
    }
}
