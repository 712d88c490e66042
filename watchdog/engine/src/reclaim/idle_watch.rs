//! Which processes are idle, and since when, by the measure of the stale detector.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::detect::idle::{IdleSince, STEADY_FACTOR};
use crate::process::TrackedProcess;
use watchdog_types::{Activity, BootTime, ProcessId};

/// Activity is read every eighth of the idle time, within these bounds. It costs 40 µs per process: 0.7 ms of CPU per second
/// for a thousand processes read every minute. While no page-out is near, steady processes are read at a fifth of this pace.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const MAX_INTERVAL: Duration = Duration::from_secs(60);
/// After this many readings that failed to arrive, a process does not count as idle.
const MAX_MISSED: u32 = 3;
/// Processes beyond this number are not watched, and never count as idle.
const MAX_WATCHED: usize = 16_384;

#[derive(Debug, Default)]
pub(super) struct IdleWatch {
    quiet: BTreeMap<ProcessId, IdleSince>,
    last_read: Option<BootTime>,
    interval: Duration,
    /// No page-out is near.
    slow: bool,
    /// Counts whatever may change an idle time.
    changes: u64,
}

impl IdleWatch {
    /// Whether activity must be read now: at each interval, and once a page-out is near. `None`: no session may be paged out, so
    /// no process is watched.
    pub(super) fn is_due(&mut self, now: BootTime, shortest_idle: Option<Duration>, page_out_is_near: bool) -> bool {
        let Some(idle) = shortest_idle else {
            self.changes += u64::from(self.last_read.take().is_some());
            self.quiet.clear();
            return false;
        };
        let before = (self.interval, self.slow);
        self.interval = (idle / 8).clamp(MIN_INTERVAL, MAX_INTERVAL);
        let approached = self.slow && page_out_is_near;
        self.slow = !page_out_is_near;
        self.changes += u64::from(before != (self.interval, self.slow));
        let due = approached || self.last_read.is_none_or(|read| now.since(read) >= self.interval);
        if due {
            self.last_read = Some(now);
            self.changes += 1;
        }
        due
    }

    /// Whether this process is among those to read now.
    pub(super) fn wants(&self, process: ProcessId, now: BootTime) -> bool {
        let Some(quiet) = self.quiet.get(&process) else { return true };
        let pace = if self.slow { self.pace(quiet) } else { self.interval };
        // A reading arrives a moment after its request.
        now.since(quiet.seen.at) + self.interval / 2 >= pace
    }

    /// The longest time between two readings.
    fn pace(&self, quiet: &IdleSince) -> Duration {
        if quiet.steady { self.interval * STEADY_FACTOR } else { self.interval }
    }

    /// Forgets all processes but these.
    pub(super) fn retain(&mut self, watched: &BTreeSet<ProcessId>) {
        self.quiet.retain(|process, _| watched.contains(process));
        self.changes += 1;
    }

    pub(super) fn forget(&mut self, process: ProcessId) {
        self.changes += u64::from(self.quiet.remove(&process).is_some());
    }

    pub(super) fn record(&mut self, seen: Activity, process: &TrackedProcess) {
        self.changes += 1;
        IdleSince::record(&mut self.quiet, MAX_WATCHED, seen, process, self.interval);
    }

    /// Since when the process is idle, and its observed idle time. `None` without a recent reading.
    pub(super) fn rest(&self, process: ProcessId, now: BootTime) -> Option<(BootTime, Duration)> {
        let quiet = self.quiet.get(&process)?;
        let fresh = now.since(quiet.seen.at) <= self.pace(quiet) * MAX_MISSED;
        fresh.then(|| (quiet.since, quiet.seen.at.since(quiet.since)))
    }

    pub(super) const fn changes(&self) -> u64 {
        self.changes
    }

    /// When activity was last requested; `None` while no process is watched.
    pub(super) const fn last_read(&self) -> Option<BootTime> {
        self.last_read
    }

    /// When the activity of this process was last read.
    pub(super) fn last_reading(&self, process: ProcessId) -> Option<BootTime> {
        self.quiet.get(&process).map(|quiet| quiet.seen.at)
    }
}
