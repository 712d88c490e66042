//! The state of reclaim.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::idle_watch::IdleWatch;
use super::learned_yield::LearnedYields;
use super::obstacle::PageOutObstacle;
use super::page_out_record::PageOutRecord;
use super::run::Run;
use watchdog_types::{BootTime, Bytes, ProcessId};

/// Finished runs that are kept for the API.
const MAX_FINISHED: usize = 50;

#[derive(Debug, Default)]
pub(crate) struct ReclaimState {
    pub(super) idle: IdleWatch,
    /// Processes that were paged out, or that are excluded.
    pub(super) records: BTreeMap<ProcessId, PageOutRecord>,
    pub(super) learned: LearnedYields,
    /// It was persisted like this, at this time.
    persisted: (LearnedYields, BootTime),
    pub(super) run: Option<Run>,
    /// Oldest first.
    pub(super) finished: VecDeque<Run>,
    /// Runs so far.
    pub(super) runs: u64,
    /// Orders so far.
    pub(super) orders: u64,
    /// The order in progress, and its run.
    pub(super) in_flight: Option<(u64, u64)>,
    /// The latest order that was cancelled.
    pub(super) cancelled: u64,
    /// The budget allows no order before this.
    pub(super) next_order: BootTime,
    /// When the last order finished, until the host's memory is read; see [`ReclaimState::awaits_host`].
    pub(super) answered: Option<BootTime>,
    /// Until then the daemon starts no run, because memory pressure rose.
    pub(super) halted_until: Option<BootTime>,
    /// While set, no order is sent.
    pub(super) obstacle: Option<PageOutObstacle>,
    pub(super) totals: ReclaimTotals,
    /// When the current emergency began to page out.
    pub(super) emergency: Option<BootTime>,
}

/// Sums since the daemon started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReclaimTotals {
    /// Resident memory that was paged out.
    pub reclaimed: Bytes,
    /// The part of it that returned.
    pub refaulted: Bytes,
    /// Time spent paging out.
    pub took: Duration,
}

/// The host's memory is read every second at least.
const HOST_READ: Duration = Duration::from_secs(2);

/// Returning memory changes what was learned with each sample.
const PERSIST_INTERVAL: Duration = Duration::from_secs(60);

impl ReclaimState {
    /// What an earlier run learned.
    pub(crate) fn restore(&mut self, yields: LearnedYields) {
        self.persisted.0.clone_from(&yields);
        self.learned = yields;
    }

    /// What was learned, if it must be persisted now.
    pub(super) fn take_changed_yields(&mut self, now: BootTime, run_ended: bool) -> Option<LearnedYields> {
        let (known, at) = &self.persisted;
        let due = run_ended || now.since(*at) >= PERSIST_INTERVAL;
        if !due || *known == self.learned {
            return None;
        }
        self.persisted = (self.learned.clone(), now);
        Some(self.learned.clone())
    }

    pub(super) fn finish(&mut self, run: Run) {
        self.finished.push_back(run);
        if self.finished.len() > MAX_FINISHED {
            self.finished.pop_front();
        }
    }

    /// Whether the host's memory has not been read since the last order.
    pub(super) fn awaits_host(&self, now: BootTime) -> bool {
        self.answered.is_some_and(|answered| now.since(answered) < HOST_READ)
    }

    /// Time until the next order; `None` while none is due.
    pub(crate) fn due(&self, now: BootTime) -> Option<Duration> {
        let run = self.run.as_ref().filter(|run| !run.is_measuring())?;
        let waits = run.ended.is_none() && self.in_flight.is_none() && self.answered.is_none();
        waits.then(|| self.next_order.since(now))
    }

    /// The host's memory was read.
    pub(crate) fn host_read(&mut self) {
        self.answered = None;
    }

    /// The process runs another program, or has exited.
    pub(crate) fn forget(&mut self, process: ProcessId) {
        self.idle.forget(process);
        self.records.remove(&process);
    }
}
