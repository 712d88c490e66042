//! One series: the memory of a process, a session or a role over time, and what it says about growth.

use std::time::Duration;

use super::demand::{Demand, LoadLike};
use super::envelope::{Rising, rising, steepness};
use super::minima::{Floors, SCALES, SPANS, Scales, length, window};
use super::onset::Line;
use super::runaway::{Rise, Running};
use super::sawtooth::Teeth;
use super::slope::Slope;
use super::trend::{MemoryTrend, trend};
use watchdog_types::{BootTime, Bytes};

/// Bytes that a series takes, however long it becomes.
pub const SERIES_BYTES: usize = size_of::<Series>();
const _: () = assert!(SERIES_BYTES <= 1_384);

/// Memory over time, in bounded space.
#[derive(Clone, Debug)]
pub struct Series {
    began: BootTime,
    last: BootTime,
    /// Time that does not count: the host was asleep.
    asleep: Duration,
    kib: u32,
    floors: Floors,
    teeth: Teeth,
    rise: Rise,
}

/// Growth, as far as it is proven.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GrowthEstimate {
    /// Bytes per second.
    pub rate: f64,
    /// The interval that the rate is in, with 95 % by Sen's method; of a runaway, its slowest and quickest second.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
    /// How long after the beginning of the series the window begins.
    pub after: Duration,
    /// How long the growth was seen.
    pub window: Duration,
    /// By how much the floor has grown.
    pub grown: Bytes,
    /// The floor at the beginning of the window.
    pub from: Bytes,
    /// 0 to 1: how straight the growth is, and how far beyond the least that is reported.
    pub confidence: f64,
}

impl Series {
    /// A series that begins with a sample.
    #[must_use]
    pub fn new(at: BootTime, memory: Bytes) -> Self {
        let kib = kib(memory);
        let mut floors = Floors::new();
        floors.note(0, kib, None);
        Self {
            began: at,
            last: at,
            asleep: Duration::ZERO,
            kib,
            floors,
            teeth: Teeth::new(kib),
            rise: Rise::new(0, kib),
        }
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

    /// The host was asleep until this moment, and the processes with it: the clock of the series stands still meanwhile. A
    /// load that sleep interrupts would look slow, and a drop would look overdue.
    pub fn skip(&mut self, until: BootTime) {
        self.asleep += until.since(self.last);
        self.last = self.last.max(until);
    }

    fn note(&mut self, at: BootTime, kib: u32, between: Option<u32>) -> Due {
        if at < self.last {
            return Due::default();
        }
        let tenths = self.tenths(at);
        (self.last, self.kib) = (at, kib);
        self.teeth.note(tenths, kib, &self.floors);
        self.rise.note(tenths, kib);
        Due(self.floors.note(tenths, kib, between))
    }

    /// The growth without end that the scales show, of the longest window that shows any.
    #[must_use]
    pub fn growth(&self, due: Due, demand: &Demand) -> Option<GrowthEstimate> {
        let now = self.tenths(self.last);
        let asked = |scale: &usize| span(f64::from(window(*scale))) >= demand.window;
        due.0.iter().rev().filter(asked).find_map(|scale| {
            let growth = rising(&self.floors, self.teeth.due(now, length(scale)), scale, demand.factor)
                .map(GrowthEstimate::from)?;
            let longer = (scale + 1..SCALES)
                .filter_map(|scale| steepness(&self.floors, self.teeth.due(now, length(scale)), scale));
            let load_like = LoadLike {
                rate: growth.rate,
                quickest: longer.map(per_second).fold(growth.rate, f64::max),
                lasted: growth.window.mul_f64(SPANS as f64 / (SPANS as f64 - 1.0)),
            };
            (!demand.is_load(load_like)).then_some(growth)
        })
    }

    /// When this growth began, as far as the series reaches back.
    #[must_use]
    pub fn onset(&self, growth: &GrowthEstimate) -> BootTime {
        let (first, time) = (tenths(growth.after), tenths(growth.window));
        let grown = growth.grown.0 as f64 / 1024.0;
        let line = Line {
            seen: (first, first + time),
            middle: growth.from.0 as f64 / 1024.0 + grown / 2.0,
            grown,
            rate: (growth.rate / 10_240.0).max(f64::MIN_POSITIVE),
        };
        self.moment(line.onset(&self.floors).max(0.0))
    }

    /// The rise that the series is in, when it has lasted for some seconds.
    #[must_use]
    pub fn running(&self) -> Option<GrowthEstimate> {
        let running = self.rise.running()?;
        // What a collection has taken away before, it may take away again.
        let tooth = self.teeth.due(self.tenths(self.last), 0).map(|due| due.size).fold(0.0, f64::max);
        (running.grown > tooth).then(|| GrowthEstimate::from(running))
    }

    /// What memory did not fall below in the last sixteenth of about this window.
    #[must_use]
    pub fn floor(&self, of: Duration) -> Bytes {
        let scale = (0..SCALES).find(|scale| span(f64::from(window(*scale))) >= of).unwrap_or(SCALES - 1);
        let last = self.floors.minima(scale).last();
        last.map_or(self.memory(), |minimum| Bytes::from_kib(u64::from(minimum.kib)))
    }

    /// What memory did until this moment, if it has not moved since the last sample. `None` of a young series.
    pub(super) fn trend(&self, now: BootTime) -> Option<MemoryTrend> {
        let trend = trend(&self.floors, self.tenths(now))?;
        let moment = |tenths: u32| self.moment(f64::from(tenths));
        let memory = |kib: u32| Bytes::from_kib(u64::from(kib));
        Some(MemoryTrend {
            level: memory(trend.level),
            flat_since: trend.flat_since.map(moment),
            before: trend.before.map(|(at, kib)| (moment(at), memory(kib))),
        })
    }

    /// When the clock of the series showed this, if the host was not asleep since.
    fn moment(&self, tenths: f64) -> BootTime {
        let ago = f64::from(self.tenths(self.last)) - tenths;
        self.last.minus(span(ago.max(0.0)))
    }

    /// Time awake since the beginning.
    pub(super) fn age(&self) -> Duration {
        self.last.since(self.began).saturating_sub(self.asleep)
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

    /// Time awake since the beginning, in tenths of a second: enough for thirteen years.
    fn tenths(&self, at: BootTime) -> u32 {
        let awake = at.since(self.began).saturating_sub(self.asleep);
        u32::try_from(awake.as_millis() / 100).unwrap_or(u32::MAX)
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

impl GrowthEstimate {
    fn of(slope: Slope, at: f64, from: f64, grown: f64, time: f64, confidence: f64) -> Self {
        Self {
            rate: per_second(slope.median),
            low: per_second(slope.low),
            high: per_second(slope.high),
            after: span(at),
            window: span(time),
            grown: bytes(grown),
            from: bytes(from),
            confidence,
        }
    }
}

impl From<Rising> for GrowthEstimate {
    fn from(rising: Rising) -> Self {
        let Rising { slope, at, from, grown, time, bent, times } = rising;
        Self::of(slope, at, from, grown, time, (1.0 - bent) * (1.0 - 0.4 / times.max(1.0)))
    }
}

impl From<Running> for GrowthEstimate {
    fn from(running: Running) -> Self {
        let Running { slope, at, from, grown, time } = running;
        let steady = if slope.high > 0.0 { slope.low / slope.high } else { 0.0 };
        Self::of(slope, at, from, grown, time, 0.5 + 0.4 * steady)
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

fn tenths(span: Duration) -> f64 {
    span.as_secs_f64() * 10.0
}

/// From tenths of a second.
fn span(tenths: f64) -> Duration {
    Duration::from_secs_f64(tenths / 10.0)
}
