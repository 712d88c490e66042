//! The actions in progress, and those that finished lately.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

#[cfg(test)]
use super::action::Action;
use super::action::{ActionLogRecord, Permissions};
use super::emergency_state::EmergencyState;
use super::progress::{ActionProgress, ActionStage};
use super::suspend_detector::SuspendDetector;
use watchdog_api::ActionKind;
use watchdog_types::{ActionId, BootTime, FindingId, ProcessId};

/// Finished actions that are kept regardless of age.
const MIN_FINISHED: usize = 100;
/// A finished action is kept at least this long: a client that waits for many actions polls them in turn.
const KEEP_FINISHED: Duration = Duration::from_secs(60);
/// Hard limit of kept finished actions, about 1 KiB each.
const MAX_FINISHED: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct ActionTracker {
    pub(super) last: ActionId,
    pub(super) running: BTreeMap<ActionId, ActionProgress>,
    pub(super) finished: VecDeque<ActionProgress>,
    /// Living processes that policy has terminated once. It does not signal them again.
    pub(super) terminated_by_policy: BTreeSet<ProcessId>,
    /// Processes that policy failed to act on, and when it may retry.
    pub(super) backoff_until: BTreeMap<ProcessId, BootTime>,
    /// Findings whose targets a user released. Policy does not hold them again.
    pub(super) released_findings: BTreeSet<FindingId>,
    /// One entry for each process that policy terminated within the last minute.
    pub(super) recent_kills: VecDeque<BootTime>,
    /// When the rate limit was last reported.
    pub(super) rate_limited_at: Option<BootTime>,
    pub(super) emergency: EmergencyState,
    pub(super) suspend: SuspendDetector,
    pub(crate) permissions: Permissions,
    /// Log of an earlier run. It is resumed after the second scan, which completes the table.
    pub(super) resumed: Vec<ActionLogRecord>,
}

impl ActionTracker {
    #[cfg(test)]
    pub(crate) fn action(&self, id: ActionId) -> Option<&Action> {
        self.get(id).map(|running| &running.action)
    }

    /// The daemon or one of its ancestors.
    pub(crate) fn is_protected(&self, process: ProcessId) -> bool {
        self.permissions.protected.contains(&process)
    }

    pub(crate) fn last(&self) -> ActionId {
        self.last
    }

    /// Marks ids up to this one as used.
    pub(crate) fn raise(&mut self, last: ActionId) {
        self.last = self.last.max(last);
    }

    pub(super) fn get(&self, id: ActionId) -> Option<&ActionProgress> {
        self.running.get(&id).or_else(|| self.finished.iter().rev().find(|running| running.action.id == id))
    }

    /// Whether policy ignores this process: it was terminated before, or an attempt failed recently.
    pub(super) fn skips(&self, process: ProcessId) -> bool {
        self.terminated_by_policy.contains(&process) || self.backoff_until.contains_key(&process)
    }

    pub(super) fn retain_finished(&mut self, running: ActionProgress, now: BootTime) {
        while self.finished.len() >= MIN_FINISHED
            && self.finished.front().is_some_and(|oldest| {
                let is_recent =
                    matches!(oldest.stage, ActionStage::Finished { at, .. } if now.since(at) < KEEP_FINISHED);
                !is_recent || self.finished.len() >= MAX_FINISHED
            })
        {
            self.finished.pop_front();
        }
        self.finished.push_back(running);
    }

    /// The action that terminates this process.
    pub(super) fn terminating(&self, process: ProcessId) -> Option<ActionId> {
        let ends = |running: &&ActionProgress| {
            running.is_active()
                && running.action.kind == ActionKind::Terminate
                && running.living().any(|it| it == process)
        };
        self.running.values().find(ends).map(|running| running.action.id)
    }

    /// Whether an action needs frequent ticks.
    pub(crate) fn pending(&self) -> bool {
        self.running.values().any(ActionProgress::is_active)
    }
}
