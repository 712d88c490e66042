//! What growth must show before it is called a leak, and which growth is only a load.
//!
//! Nothing distinguishes a leak from a load of the same rate while both grow. The headroom decides how long
//! growth may pass as a load. With hours of headroom: as long as loads of its size last. With less: only if it is quicker
//! than any leak.

use std::time::Duration;

use watchdog_types::Bytes;

/// Headroom, in seconds, from which on growth may be a load at all.
const LOAD_IS_SAFE: f64 = 5_400.0;
/// The lowest rate of a load, in bytes per second.
const SLOWEST_LOAD: f64 = 1.9 * MIB;
/// How long a load lasts at most, below [`LARGE_LOAD`].
const LOAD_LASTS: Duration = Duration::from_secs(720);
/// From this rate on, in bytes per second, loads last longer, nearly in proportion to their size: time is the fourth power of
/// the rate, so the 0.8th of the size.
const LARGE_LOAD: f64 = 9.5 * MIB;
/// How long any load lasts at most. A window shows it when the load fills two thirds of it.
const LOAD_LASTS_AT_MOST: Duration = Duration::from_secs(2_700);
/// The part of the remaining time that a load lasts at most.
const LOAD_TAKES: f64 = 0.25;
/// Growth that is slower than this part of what a longer window shows is the end of a load.
const SLOWS: f64 = 0.9;
/// The lowest rate of a load with less headroom, in bytes per second: programs read their work into memory this quickly, and
/// a leak of this rate is soon noticed.
const QUICK_LOAD: f64 = 16.0 * MIB;
/// How long such a load lasts at most. Language servers read for two minutes.
const QUICK_LOAD_LASTS: Duration = Duration::from_secs(200);
/// Headroom, in seconds, below which half of that time is enough.
const LOAD_THREATENS: f64 = 600.0;
const MIB: f64 = 1024.0 * 1024.0;

/// What growth must show before it is called a leak.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// The required growth, as a multiple of the usual one.
    pub factor: f64,
    /// Shorter windows are ignored.
    pub window: Duration,
    /// What is left until memory runs out: the less, the sooner a load is called a leak.
    pub left: Bytes,
}

/// Growth that may be a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadLike {
    /// Bytes per second.
    pub(super) rate: f64,
    /// The highest rate that this window or a longer one shows.
    pub(super) quickest: f64,
    pub(super) lasted: Duration,
}

impl Default for Demand {
    fn default() -> Self {
        Self { factor: 1.0, window: Duration::ZERO, left: Bytes(u64::MAX) }
    }
}

impl Demand {
    /// Whether growth is no more than a load.
    pub(super) fn is_load(&self, LoadLike { rate, quickest, lasted }: LoadLike) -> bool {
        let seconds_left = self.left.0 as f64 / rate.max(1.0);
        if seconds_left >= LOAD_IS_SAFE {
            let of_its_size = LOAD_LASTS.mul_f64((quickest / LARGE_LOAD).powi(4).clamp(1.0, 100.0));
            let patience = of_its_size.min(LOAD_LASTS_AT_MOST).as_secs_f64().min(seconds_left * LOAD_TAKES);
            return rate < quickest * SLOWS || quickest >= SLOWEST_LOAD && lasted.as_secs_f64() < patience;
        }
        let patience = if seconds_left <= LOAD_THREATENS { QUICK_LOAD_LASTS / 2 } else { QUICK_LOAD_LASTS };
        rate >= QUICK_LOAD && lasted < patience
    }
}
