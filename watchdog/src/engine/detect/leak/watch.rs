//! A series under watch: when its growth becomes a finding, and when that is over.

use std::time::Duration;

use super::ceiling::Ceilings;
use super::series::{Demand, Due, Growth, Series};
use crate::engine::id::{BootTime, Bytes};

/// A finding is over when nothing grew for this many of its windows,
const QUIET_WINDOWS: u32 = 2;
/// and for this long at least.
const QUIET_LEAST: Duration = Duration::from_secs(60);
/// Or when less than this part of the growth is left.
const GIVEN_BACK: f64 = 0.5;
/// Memory is higher than before when it is so by this part of the growth.
const HIGHER: f64 = 0.02;

/// A series, and what is found of it.
#[derive(Clone, Debug)]
pub struct Watch {
    series: Series,
    found: Option<Found>,
}

/// Growth that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// The growth, when it was last seen.
    pub growth: Growth,
    /// When that was.
    pub seen: BootTime,
    /// When growth began, as far as windows reach back.
    pub began: BootTime,
    /// The floor before it.
    pub from: Bytes,
    /// The highest memory since then, and when it was reached.
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
        Self { series: Series::new(at, memory), found: None }
    }

    /// Takes a sample. Time before it is unknown, unless [`hold`](Self::hold) has told of it.
    pub fn push(&mut self, at: BootTime, memory: Bytes, ceilings: &Ceilings, demand: Demand) -> Option<Change> {
        let due = self.series.push(at, memory);
        self.judge(due, ceilings, demand)
    }

    /// Nothing has moved until this moment.
    pub fn hold(&mut self, at: BootTime, ceilings: &Ceilings, demand: Demand) -> Option<Change> {
        let due = self.series.hold(at);
        self.judge(due, ceilings, demand)
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
            self.found = growth.map(|growth| Found::new(growth, now, memory));
            return growth.map(|_| Change::Opened);
        };
        if memory.0 as f64 > found.peak.1.0 as f64 + HIGHER * found.growth.grown.0 as f64 {
            found.peak = (now, memory);
        }
        if let Some(growth) = growth {
            found.growth = growth;
            found.seen = now;
            return Some(Change::Moved);
        }
        let over = found.over(now, memory)?;
        self.found = None;
        Some(Change::Closed(over))
    }
}

impl Found {
    fn new(growth: Growth, now: BootTime, memory: Bytes) -> Self {
        Self { growth, seen: now, began: now.minus(growth.window), from: growth.from, peak: (now, memory) }
    }

    /// How long memory has not been higher than before.
    #[must_use]
    pub fn plateau(&self, now: BootTime) -> Duration {
        now.since(self.peak.0)
    }

    /// Why it is over, if it is.
    fn over(&self, now: BootTime, memory: Bytes) -> Option<&'static str> {
        let kept = memory.0.saturating_sub(self.from.0) as f64;
        if kept < self.growth.grown.0 as f64 * GIVEN_BACK {
            return Some("given back");
        }
        let patience = (self.growth.window * QUIET_WINDOWS).max(QUIET_LEAST);
        (now.since(self.seen) > patience).then_some("plateau")
    }
}
