//! A series under watch: when its growth becomes a finding, and when that is over.

use std::time::Duration;

use super::ceiling::Ceilings;
use super::demand::Demand;
use super::series::{Due, GrowthEstimate, Series};
use watchdog_types::{BootTime, Bytes};

/// Memory is flat when it was not higher than before for this part of the shortest window that showed growth, and for this
/// long at least.
const FLAT_PART: f64 = 0.4;
const FLAT_LEAST: Duration = Duration::from_secs(20);
/// A finding is over when memory was flat for this part of that window, and for this long at least.
const QUIET_PART: f64 = 0.75;
const QUIET_LEAST: Duration = Duration::from_secs(75);
/// A finding is also over when less than this part of the growth is left.
const GIVEN_BACK: f64 = 0.5;
/// Memory is higher than before when it is so by this part of the growth.
const HIGHER: f64 = 0.02;
/// Windows at least this many times as long as the shortest are slow to notice that growth has stopped.
const SLOW: u32 = 2;

/// Why a finding closes when memory stays where it is.
const PLATEAU: &str = "plateau";

/// A series, and what is found of it.
#[derive(Clone, Debug)]
pub struct Watch {
    series: Series,
    found: Option<Found>,
    stopped: Option<Stopped>,
}

/// A plateau that closed a finding.
#[derive(Clone, Copy, Debug)]
struct Stopped {
    /// By the clock of the series.
    after: Duration,
    top: Bytes,
}

/// Growth that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// The growth, when it was last seen.
    pub growth: GrowthEstimate,
    /// When that was.
    pub seen: BootTime,
    /// When growth began, as far as the series reaches back.
    pub began: BootTime,
    /// The floor before it.
    pub from: Bytes,
    /// The shortest window that showed it, and the growth in it.
    shortest: (Duration, Bytes),
    /// When a window of about that length showed it last.
    confirmed: BootTime,
    /// The highest floor since then, and when it was reached.
    peak: (BootTime, Bytes),
}

/// What a sample changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A leak was found.
    Opened,
    /// There is something new to say of it.
    Moved,
    /// It is over, for this reason.
    Closed(&'static str),
}

impl Watch {
    /// A watch that begins with a sample.
    #[must_use]
    pub fn new(at: BootTime, memory: Bytes) -> Self {
        Self { series: Series::new(at, memory), found: None, stopped: None }
    }

    /// Takes a sample. Time before it is unknown, unless [`hold`](Self::hold) has covered it.
    pub fn push(&mut self, at: BootTime, memory: Bytes, ceilings: &Ceilings, demand: Demand) -> Option<Change> {
        let due = self.series.push(at, memory);
        self.judge(due, ceilings, demand)
    }

    /// Nothing has moved until this moment.
    pub fn hold(&mut self, at: BootTime, ceilings: &Ceilings, demand: Demand) -> Option<Change> {
        let due = self.series.hold(at);
        self.judge(due, ceilings, demand)
    }

    /// The host was asleep until this moment.
    pub fn skip(&mut self, until: BootTime) {
        self.series.skip(until);
    }

    /// What is found, while it is.
    #[must_use]
    pub fn found(&self) -> Option<&Found> {
        self.found.as_ref()
    }

    /// The series.
    #[must_use]
    pub fn series(&self) -> &Series {
        &self.series
    }

    fn judge(&mut self, due: Due, ceilings: &Ceilings, demand: Demand) -> Option<Change> {
        let (now, memory) = (self.series.last(), self.series.memory());
        let runaway = || self.series.running().filter(|rise| ceilings.is_urgent(rise));
        let grown = || {
            let left = ceilings.nearest().map_or(Bytes(u64::MAX), |nearest| nearest.left);
            self.series.growth(due, &Demand { left, ..demand })
        };
        let growth = if due.is_empty() { runaway() } else { grown().or_else(runaway) };
        let Some(found) = &mut self.found else {
            let growth = growth.filter(|growth| !self.is_old(growth))?;
            self.found = Some(Found::new(growth, self.series.onset(&growth), now, self.series.floor(growth.window)));
            return Some(Change::Opened);
        };
        let floor = self.series.floor(found.shortest.0);
        if floor.0 as f64 > found.peak.1.0 as f64 + HIGHER * found.shortest.1.0 as f64 {
            found.peak = (now, floor);
        }
        if let Some(growth) = growth {
            found.confirm(growth, now);
        }
        if let Some(over) = found.over(now, memory) {
            self.stopped = (over == PLATEAU).then_some(Stopped { after: self.series.age(), top: found.peak.1 });
            self.found = None;
            return Some(Change::Closed(over));
        }
        growth.map(|_| Change::Moved)
    }

    /// Whether this is the growth that ended in a plateau, and memory is no higher since.
    fn is_old(&self, growth: &GrowthEstimate) -> bool {
        self.stopped.is_some_and(|stopped| {
            let higher = growth.grown.0 as f64 * HIGHER;
            growth.after < stopped.after && (self.series.memory().0 as f64) <= stopped.top.0 as f64 + higher
        })
    }
}

impl Found {
    fn new(growth: GrowthEstimate, began: BootTime, now: BootTime, floor: Bytes) -> Self {
        let shortest = (growth.window, growth.grown);
        Self { growth, seen: now, began, from: growth.from, shortest, confirmed: now, peak: (now, floor) }
    }

    fn confirm(&mut self, growth: GrowthEstimate, now: BootTime) {
        (self.growth, self.seen) = (growth, now);
        if growth.window < self.shortest.0 {
            self.shortest = (growth.window, growth.grown);
        }
        if growth.window <= self.shortest.0 * SLOW {
            self.confirmed = now;
        }
    }

    /// Whether memory has not been higher than before for a while.
    #[must_use]
    pub fn is_flat(&self, now: BootTime) -> bool {
        self.plateau(now) >= self.shortest.0.mul_f64(FLAT_PART).max(FLAT_LEAST)
    }

    /// How long memory has not been higher than before.
    #[must_use]
    pub fn plateau(&self, now: BootTime) -> Duration {
        now.since(self.peak.0)
    }

    /// Why it is over, if it is.
    fn over(&self, now: BootTime, memory: Bytes) -> Option<&'static str> {
        let kept = memory.0.saturating_sub(self.from.0) as f64;
        let grown = self.growth.grown.0.max(self.peak.1.0.saturating_sub(self.from.0));
        if kept < grown as f64 * GIVEN_BACK {
            return Some("given back");
        }
        let quiet = now.since(self.peak.0.max(self.confirmed));
        (quiet >= self.shortest.0.mul_f64(QUIET_PART).max(QUIET_LEAST)).then_some(PLATEAU)
    }
}
