//! One series: the memory of a process, a session or a role over time, and what it says about growth.

use std::time::Duration;

use super::envelope::{Rising, rising};
use super::floors::{Floors, Scales, window};
use super::rise::{Rise, Running};
use super::slope::Slope;
use super::teeth::Teeth;
use crate::engine::id::{BootTime, Bytes};

/// Bytes that a series takes, however long it becomes.
pub const SERIES_BYTES: usize = size_of::<Series>();
const _: () = assert!(SERIES_BYTES <= 1_344);

/// A rate from which on growth is a load until it has lasted: programs read their work into memory this quickly, and
/// nothing that leaks as quickly lasts long unseen.
const LOAD: f64 = 16.0 * 1024.0 * 1024.0;
/// A load that lasts this long is none. Language servers read for two minutes.
const LOAD_LASTS: Duration = Duration::from_secs(200);
/// When memory would run out within so many seconds, half of that time is enough.
const LOAD_THREATENS: f64 = 600.0;

/// Memory over time, in bounded space.
#[derive(Clone, Debug)]
pub struct Series {
    began: BootTime,
    last: BootTime,
    kib: u32,
    floors: Floors,
    teeth: Teeth,
    rise: Rise,
}

/// Growth, as far as it is proven.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// Bytes per second.
    pub rate: f64,
    /// The interval that the rate is in, with 95 % by Sen's method; of a runaway, its slowest and quickest second.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
    /// How long the growth was seen.
    pub window: Duration,
    /// By how much the floor has grown.
    pub grown: Bytes,
    /// The floor at the beginning of the window.
    pub from: Bytes,
    /// 0 to 1: how straight the growth is, and how far beyond what is worth a word.
    pub confidence: f64,
}

/// What is asked of growth before it is called a leak.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// So many times the usual amount.
    pub factor: f64,
    /// Nothing is said of shorter windows.
    pub window: Duration,
    /// What is left until memory runs out: the less, the sooner a load is called a leak.
    pub left: Bytes,
}

impl Default for Demand {
    fn default() -> Self {
        Self { factor: 1.0, window: Duration::ZERO, left: Bytes(u64::MAX) }
    }
}

impl Demand {
    /// Whether growth at this rate is no more than a load for all that a window of this length shows.
    fn is_load(&self, rate: f64, window: Duration) -> bool {
        let seconds_left = self.left.0 as f64 / rate.max(1.0);
        let patience = if seconds_left <= LOAD_THREATENS { LOAD_LASTS / 2 } else { LOAD_LASTS };
        rate >= LOAD && window < patience
    }
}

impl Series {
    /// A series that begins with a sample.
    #[must_use]
    pub fn new(at: BootTime, memory: Bytes) -> Self {
        let kib = kib(memory);
        let mut floors = Floors::new();
        floors.note(0, kib, None);
        Self { began: at, last: at, kib, floors, teeth: Teeth::new(kib), rise: Rise::new(0, kib) }
    }

    /// Takes a sample, and says at which scales there is something new to judge. One that is older than the last is
    /// left out. Nothing is assumed of the time between the two.
    pub fn push(&mut self, at: BootTime, memory: Bytes) -> Due {
        self.note(at, kib(memory), None)
    }

    /// Nothing has moved since the last sample.
    pub fn hold(&mut self, at: BootTime) -> Due {
        self.note(at, self.kib, Some(self.kib))
    }

    fn note(&mut self, at: BootTime, kib: u32, between: Option<u32>) -> Due {
        if at < self.last {
            return Due::default();
        }
        let tenths = self.tenths(at);
        (self.last, self.kib) = (at, kib);
        self.teeth.note(tenths, kib, between.is_some());
        self.rise.note(tenths, kib);
        Due(self.floors.note(tenths, kib, between))
    }

    /// The growth without end that the scales show, of the longest window that shows any.
    #[must_use]
    pub fn growth(&self, due: Due, demand: &Demand) -> Option<Growth> {
        let asked = |scale: &usize| span(f64::from(window(*scale))) >= demand.window;
        due.0.iter().rev().filter(asked).find_map(|scale| {
            let growth = rising(&self.floors, &self.teeth, scale, demand.factor).map(Growth::from)?;
            let load = demand.is_load(growth.rate, span(f64::from(window(scale))));
            (!load).then_some(growth)
        })
    }

    /// The rise that the series is in, when it has lasted for some seconds.
    #[must_use]
    pub fn running(&self) -> Option<Growth> {
        let running = self.rise.running()?;
        // What a collection has taken away before, it may take away again.
        let tooth = self.teeth.due().map(|due| due.size).fold(0.0, f64::max);
        (running.grown > tooth).then(|| Growth::from(running))
    }

    /// When the first sample was taken.
    #[must_use]
    pub fn began(&self) -> BootTime {
        self.began
    }

    /// When the last sample was taken.
    #[must_use]
    pub fn last(&self) -> BootTime {
        self.last
    }

    /// Memory at the last sample, in steps of a KiB.
    #[must_use]
    pub fn memory(&self) -> Bytes {
        Bytes::from_kib(u64::from(self.kib))
    }

    /// Time since the beginning, in tenths of a second: enough for thirteen years.
    fn tenths(&self, at: BootTime) -> u32 {
        u32::try_from(at.since(self.began).as_millis() / 100).unwrap_or(u32::MAX)
    }
}

/// Scales of which a span has become complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due(Scales);

impl Due {
    /// Whether there is nothing new to judge.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == Scales::default()
    }
}

impl Growth {
    fn of(slope: Slope, from: f64, grown: f64, time: f64, confidence: f64) -> Self {
        Self {
            rate: per_second(slope.median),
            low: per_second(slope.low),
            high: per_second(slope.high),
            window: span(time),
            grown: bytes(grown),
            from: bytes(from),
            confidence,
        }
    }
}

impl From<Rising> for Growth {
    fn from(rising: Rising) -> Self {
        let Rising { slope, from, grown, time, bent, times } = rising;
        Self::of(slope, from, grown, time, (1.0 - bent) * (1.0 - 0.4 / times.max(1.0)))
    }
}

impl From<Running> for Growth {
    fn from(running: Running) -> Self {
        let Running { slope, from, grown, time } = running;
        let steady = if slope.high > 0.0 { slope.low / slope.high } else { 0.0 };
        Self::of(slope, from, grown, time, 0.5 + 0.4 * steady)
    }
}

fn kib(memory: Bytes) -> u32 {
    // The largest value stands for "no sample" where minima are kept.
    u32::try_from(memory.0 / 1024).unwrap_or(u32::MAX).min(u32::MAX - 1)
}

fn bytes(kib: f64) -> Bytes {
    Bytes((kib.max(0.0) * 1024.0) as u64)
}

/// From KiB per tenth of a second.
fn per_second(rate: f64) -> f64 {
    rate * 1024.0 * 10.0
}

/// From tenths of a second.
fn span(tenths: f64) -> Duration {
    Duration::from_secs_f64(tenths / 10.0)
}
