//! Plans, and the progress of actions.

use std::collections::{BTreeMap, BTreeSet};

use super::action::{Action, Initiator, Justification, Operation, OperationOutcome, TargetSnapshot};
use super::authority::ExemptionReason;
use super::targets::TargetSelection;
use crate::Engine;
use watchdog_api::evidence::ActionEvidence;
use watchdog_api::{ActionKind, ActionState, FindingKind};
use watchdog_types::{BootTime, Bytes, FindingId, ProcessId, SessionId, Uid};

#[derive(Clone, Debug, PartialEq)]
pub struct ActionPlan {
    pub kind: ActionKind,
    pub justification: Justification,
    pub finding: Option<(FindingId, FindingKind)>,
    pub session: Option<SessionId>,
    pub owner: Uid,
    pub reason: String,
    pub evidence: ActionEvidence,
    pub selection: TargetSelection,
    /// The session's own cgroup.
    pub cgroup: Option<String>,
}

/// An operation that was sent to a process, or was to be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OperationAttempt {
    pub(super) at: BootTime,
    pub(super) operation: Operation,
    pub(super) outcome: OperationOutcome,
}

impl OperationAttempt {
    pub(super) fn refused(&self) -> Option<&str> {
        match &self.outcome {
            OperationOutcome::Refused(why) | OperationOutcome::NotPermitted(why) => Some(why),
            OperationOutcome::Sent | OperationOutcome::SentToCgroup | OperationOutcome::AlreadyExited => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct ActionProgress {
    pub(super) action: Action,
    /// The finding in this run of the daemon; ids of an earlier run are not comparable.
    pub(super) current_finding: Option<FindingId>,
    pub(super) stage: ActionStage,
    pub(super) attempts: BTreeMap<ProcessId, Vec<OperationAttempt>>,
    pub(super) died: BTreeMap<ProcessId, BootTime>,
    pub(super) spared: BTreeMap<ProcessId, ExemptionReason>,
    /// Batches without a result.
    pub(super) pending_batches: u32,
    pub(super) rounds: u32,
    pub(super) available_after: Option<Bytes>,
    /// When the last release failed, and why it was requested.
    pub(super) release_failed: Option<(BootTime, String)>,
    pub(super) result: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ActionStage {
    /// Waits for inspections of the targets and their ancestors before this operation.
    Verifying {
        since: BootTime,
        waiting: BTreeSet<ProcessId>,
        operation: Operation,
    },
    /// SIGTERM was sent.
    Terminating {
        since: BootTime,
    },
    /// SIGKILL was sent.
    Killing {
        since: BootTime,
    },
    /// All targets have exited; the kernel is freeing their memory.
    AwaitingReclaim {
        since: BootTime,
    },
    /// The targets are frozen or throttled.
    Held {
        since: BootTime,
    },
    Releasing,
    Finished {
        at: BootTime,
        state: ActionState,
    },
}

impl ActionProgress {
    pub(super) fn new(action: Action, stage: ActionStage) -> Self {
        Self {
            current_finding: action.finding.map(|(finding, _)| finding),
            action,
            stage,
            attempts: BTreeMap::new(),
            died: BTreeMap::new(),
            spared: BTreeMap::new(),
            pending_batches: 0,
            rounds: 0,
            available_after: None,
            release_failed: None,
            result: String::new(),
        }
    }

    /// Records an inspection, or an exit that makes it unnecessary. Returns whether it was the last one.
    pub(super) fn mark_verified(&mut self, process: ProcessId) -> bool {
        let ActionStage::Verifying { waiting, .. } = &mut self.stage else { return false };
        waiting.remove(&process) && waiting.is_empty()
    }

    /// Whether the action needs frequent ticks.
    pub(super) fn is_active(&self) -> bool {
        !matches!(self.stage, ActionStage::Held { .. } | ActionStage::Finished { .. })
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self.stage, ActionStage::Held { .. })
    }

    pub(super) fn by_user(&self) -> bool {
        matches!(self.action.initiator, Initiator::User(_))
    }

    /// Why the action's authority does not cover a process, which may have changed its user ids since.
    pub(super) fn permission_exemption(&self, engine: &Engine, process: ProcessId) -> Option<ExemptionReason> {
        let known = engine.table.get(process)?;
        match (self.action.initiator, known.user_ids) {
            (_, Some(ids)) => self.action.authority().refusal(process.pid, ids).map(ExemptionReason::NotPermitted),
            (Initiator::User(uid), None) => (!engine.may_signal(process, uid)).then_some(ExemptionReason::OtherUser),
            (Initiator::Policy | Initiator::Emergency, None) => None,
        }
    }

    /// Targets that are not exempt, dead or alive.
    pub(super) fn targets(&self) -> impl Iterator<Item = &TargetSnapshot> {
        self.action.targets.iter().filter(|target| !self.spared.contains_key(&target.process))
    }

    pub(super) fn living(&self) -> impl Iterator<Item = ProcessId> {
        self.targets().map(|target| target.process).filter(|process| !self.died.contains_key(process))
    }

    /// Whether the operation was sent, as far as known.
    pub(super) fn was_attempted(&self, process: ProcessId, operation: Operation) -> bool {
        let done = |attempts: &OperationAttempt| {
            attempts.operation == operation
                && !matches!(attempts.outcome, OperationOutcome::Refused(_) | OperationOutcome::NotPermitted(_))
        };
        self.attempts.get(&process).is_some_and(|all| all.iter().any(done))
    }

    /// Whether every attempt on the process failed.
    pub(super) fn was_only_refused(&self, process: ProcessId) -> bool {
        self.attempts.get(&process).is_some_and(|all| all.iter().all(|attempts| attempts.refused().is_some()))
    }

    /// Memory of the targets that exited.
    pub(super) fn freed(&self) -> Bytes {
        self.targets().filter(|target| self.died.contains_key(&target.process)).map(|target| target.memory).sum()
    }

    /// Why all attempts failed.
    pub(super) fn refused(&self) -> Option<&str> {
        let all: Vec<&OperationAttempt> = self.attempts.values().flatten().collect();
        // The first error stands for all.
        all.iter().all(|attempts| attempts.refused().is_some()).then(|| all.first()?.refused()).flatten()
    }
}
