//! Findings: they open, change and close. Closed ones are kept for a while.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use watchdog_api::{Evidence, FindingKind, Severity};
use watchdog_types::{BootTime, FindingId, ProcessId, SessionId, Uid};

/// How many closed findings are remembered.
const CLOSED_MAX: usize = 1_000;
/// A finding of an earlier run that is not observed again within this time is closed. Leaks take the longest to show.
const CONFIRM: Duration = Duration::from_secs(300);

/// The identity of a finding: its kind and subject. For a group that is a process that stays
/// the same while its members come and go: of orphans the dead agent, of a burst the agent, of others the one that was the
/// oldest when the finding opened. For files that no process holds it is no process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Key {
    pub(super) kind: FindingKind,
    pub(super) about: ProcessId,
}

/// A detector's conclusion at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Detection {
    pub(super) key: Key,
    pub(super) severity: Severity,
    pub(super) session: Option<SessionId>,
    /// The process shown for the finding; of a group, its oldest top.
    pub(super) subject: ProcessId,
    /// All processes that the evidence lists, or would list without its limit.
    pub(super) members: Vec<ProcessId>,
    /// The user that may see it.
    pub(super) uid: Uid,
    /// When its cause happened; now for what became so by lasting.
    pub(super) cause: BootTime,
    pub(super) summary: String,
    pub(super) evidence: Evidence,
    pub(super) proposal: Proposal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Proposal {
    /// Report, and nothing else.
    Report,
    /// Terminate the processes whose verdict is clear.
    Terminate,
}

#[derive(Clone, Debug)]
pub(super) struct TrackedFinding {
    pub(super) id: FindingId,
    pub(super) seen: Detection,
    pub(super) opened: BootTime,
    pub(super) closed: Option<(BootTime, &'static str)>,
    /// The action that was taken.
    pub(super) taken: Option<String>,
}

/// An open finding, as a later run needs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredFinding {
    id: FindingId,
    opened: BootTime,
    seen: Box<Detection>,
}

impl StoredFinding {
    pub(super) fn of(finding: &TrackedFinding) -> Self {
        Self { id: finding.id, opened: finding.opened, seen: Box::new(finding.seen.clone()) }
    }

    pub(super) fn id(&self) -> FindingId {
        self.id
    }
}

/// The change by a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FindingChange {
    Opened(FindingId),
    /// Severity or proposal moved: worth a line in the journal.
    Changed(FindingId),
    Same,
}

#[derive(Debug, Default)]
pub(super) struct FindingStore {
    open: BTreeMap<FindingId, TrackedFinding>,
    by_key: HashMap<Key, FindingId>,
    closed: VecDeque<TrackedFinding>,
    /// Findings that were open when an earlier run ended and are not observed again yet.
    earlier: BTreeMap<Key, TrackedFinding>,
    /// When those are closed.
    confirm_until: BootTime,
    last: FindingId,
    totals: BTreeMap<FindingKind, u64>,
}

impl Proposal {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Terminate => "terminate",
        }
    }
}

impl FindingStore {
    /// Opens the finding, or updates the open one.
    pub(super) fn observe(&mut self, now: BootTime, seen: Detection) -> FindingChange {
        if let Some(id) = self.by_key.get(&seen.key).copied()
            && let Some(finding) = self.open.get_mut(&id)
        {
            let moved = finding.seen.severity != seen.severity || finding.seen.proposal != seen.proposal;
            finding.seen = seen;
            return if moved { FindingChange::Changed(id) } else { FindingChange::Same };
        }
        if let Some(mut finding) = self.earlier.remove(&seen.key) {
            let moved = finding.seen.severity != seen.severity || finding.seen.proposal != seen.proposal;
            let id = finding.id;
            finding.seen = seen;
            self.by_key.insert(finding.seen.key, id);
            self.open.insert(id, finding);
            return if moved { FindingChange::Changed(id) } else { FindingChange::Same };
        }
        self.last.0 += 1;
        let id = self.last;
        *self.totals.entry(seen.key.kind).or_default() += 1;
        self.by_key.insert(seen.key, id);
        self.open.insert(id, TrackedFinding { id, seen, opened: now, closed: None, taken: None });
        FindingChange::Opened(id)
    }

    pub(super) fn close(&mut self, now: BootTime, key: Key, because: &'static str) -> Option<FindingId> {
        let id = self.by_key.remove(&key)?;
        let finding = self.open.remove(&id)?;
        self.archive(finding, now, because);
        Some(id)
    }

    fn archive(&mut self, mut finding: TrackedFinding, now: BootTime, because: &'static str) {
        finding.closed = Some((now, because));
        if self.closed.len() == CLOSED_MAX {
            self.closed.pop_front();
        }
        self.closed.push_back(finding);
    }

    /// A finding was open when an earlier run ended: when it is observed again, it is the same one.
    pub(super) fn restore(&mut self, now: BootTime, stored: StoredFinding) {
        let StoredFinding { id, opened, seen } = stored;
        self.raise(id);
        self.confirm_until = now.plus(CONFIRM);
        self.earlier.insert(seen.key, TrackedFinding { id, seen: *seen, opened, closed: None, taken: None });
    }

    /// An earlier run closed a finding.
    pub(super) fn forget(&mut self, id: FindingId) {
        self.raise(id);
        self.earlier.retain(|_, finding| finding.id != id);
    }

    /// Closes those of an earlier run, when their time is over.
    pub(super) fn expire(&mut self, now: BootTime) -> Vec<FindingId> {
        if now < self.confirm_until {
            return Vec::new();
        }
        let expired: Vec<TrackedFinding> = std::mem::take(&mut self.earlier).into_values().collect();
        let ids = expired.iter().map(|finding| finding.id).collect();
        expired
            .into_iter()
            .for_each(|finding| self.archive(finding, now, "not observed again after the daemon restarted"));
        ids
    }

    /// The findings that a later run must know.
    pub(super) fn stored(&self) -> impl Iterator<Item = StoredFinding> {
        self.earlier.values().chain(self.open.values()).map(StoredFinding::of)
    }

    pub(super) fn last(&self) -> FindingId {
        self.last
    }

    /// Later ids are above this one.
    pub(super) fn raise(&mut self, last: FindingId) {
        self.last = self.last.max(last);
    }

    /// An action was taken. The finding may have closed by then.
    pub(super) fn acted(&mut self, id: FindingId, taken: String) {
        let closed = self.closed.iter_mut().rev().find(|finding| finding.id == id);
        if let Some(finding) = self.open.get_mut(&id).or(closed) {
            finding.taken = Some(taken);
        }
    }

    pub(super) fn is_still_open(&self, id: FindingId) -> bool {
        self.open.contains_key(&id)
    }

    pub(super) fn is_open(&self, key: Key) -> bool {
        self.by_key.contains_key(&key)
    }

    pub(super) fn severity(&self, key: Key) -> Option<Severity> {
        Some(self.open.get(self.by_key.get(&key)?)?.seen.severity)
    }

    pub(super) fn get(&self, id: FindingId) -> Option<&TrackedFinding> {
        self.open.get(&id).or_else(|| self.closed.iter().rev().find(|finding| finding.id == id))
    }

    pub(super) fn open(&self) -> impl Iterator<Item = &TrackedFinding> {
        self.open.values()
    }

    /// Closed and open ones, in the order in which they opened.
    pub(super) fn all(&self) -> Vec<&TrackedFinding> {
        let mut all: Vec<&TrackedFinding> = self.closed.iter().chain(self.open.values()).collect();
        all.sort_by_key(|finding| finding.id);
        all
    }

    pub(super) fn totals(&self) -> &BTreeMap<FindingKind, u64> {
        &self.totals
    }
}
