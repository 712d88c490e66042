//! What a run did.

use std::collections::BTreeSet;
use std::time::Duration;

use watchdog_types::{Bytes, PagedOutProcess, ProcessId, SessionId};

#[derive(Debug, Default)]
pub(super) struct RunTally {
    pub(super) sessions: BTreeSet<SessionId>,
    pub(super) processes: BTreeSet<ProcessId>,
    pub(super) before: Bytes,
    pub(super) after: Bytes,
    pub(super) swapped: Bytes,
    /// By how much compressed swap grew; `None` without it.
    pub(super) compressed: Option<Bytes>,
    pub(super) took: Duration,
    pub(super) cpu: Duration,
    /// The first failure.
    pub(super) failure: Option<String>,
}

impl RunTally {
    /// A process that several orders page out counts once.
    pub(super) fn add(&mut self, session: SessionId, result: &PagedOutProcess) {
        let (before, after) = (result.before.rss(), result.after.rss());
        self.sessions.insert(session);
        let counted = if self.processes.insert(result.id) { Bytes(0) } else { before };
        self.before += Bytes(before.0 - counted.0);
        self.after = Bytes((self.after + after).0.saturating_sub(counted.0));
        self.swapped += result.swapped();
    }

    pub(super) fn out(&self) -> Bytes {
        Bytes(self.before.0.saturating_sub(self.after.0))
    }
}
