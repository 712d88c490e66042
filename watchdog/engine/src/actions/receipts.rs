//! Receipts: what an action did, for the API.

use std::time::Duration;

use super::action::{Initiator, Operation, OperationOutcome, TargetSnapshot};
use super::authority::ExemptionReason;
use super::progress::{ActionPlan, ActionProgress, ActionStage};
use crate::Engine;
use crate::process::TrackedProcess;
use crate::view::DisplayContext;
use watchdog_api::{ActionKind, ActionState, ActionTarget, Actions, DecidedBy, Receipt, Sent, Spared};
use watchdog_types::{ActionId, BootTime, ProcessId, SessionId, Uid, Viewer};

impl Engine {
    /// `GET /v1/actions`
    #[must_use]
    pub fn actions(&self, viewer: Viewer, naming: &DisplayContext<'_>) -> Actions {
        Actions { actions: self.receipts_where(viewer, naming, |_| true) }
    }

    /// Latest first.
    #[must_use]
    pub fn actions_on(&self, viewer: Viewer, naming: &DisplayContext<'_>, process: ProcessId) -> Vec<Receipt> {
        let mut about = self.receipts_where(viewer, naming, |running| {
            running.action.targets.iter().any(|target| target.process == process)
                || running.spared.contains_key(&process)
        });
        about.reverse();
        about
    }

    /// Latest first.
    #[must_use]
    pub fn actions_in(&self, viewer: Viewer, naming: &DisplayContext<'_>, session: SessionId) -> Vec<Receipt> {
        let mut about = self.receipts_where(viewer, naming, |running| running.action.session == Some(session));
        about.reverse();
        about
    }

    fn receipts_where(
        &self,
        viewer: Viewer,
        naming: &DisplayContext<'_>,
        wanted: impl Fn(&ActionProgress) -> bool,
    ) -> Vec<Receipt> {
        let all = self.actions.finished.iter().chain(self.actions.running.values());
        let asked =
            |running: &ActionProgress| matches!(running.action.initiator, Initiator::User(uid) if viewer.sees(uid));
        let seen = all.filter(|running| viewer.sees(running.action.owner) || asked(running));
        let mut actions: Vec<Receipt> =
            seen.filter(|running| wanted(running)).map(|running| self.to_api_receipt(running, naming)).collect();
        actions.sort_by_key(|receipt| receipt.id);
        actions
    }

    /// The latest action that sent this process a terminating signal.
    pub(crate) fn terminating_action(&self, process: ProcessId) -> Option<ActionId> {
        let all = self.actions.finished.iter().chain(self.actions.running.values());
        let sent = all
            .filter(|running| running.action.kind == ActionKind::Terminate && running.attempts.contains_key(&process));
        sent.map(|running| running.action.id).max()
    }

    /// The receipt so far, with the user who may see it.
    #[must_use]
    pub fn receipt(&self, id: ActionId, naming: &DisplayContext<'_>) -> Option<(Uid, Receipt)> {
        let running = self.actions.get(id)?;
        Some((running.action.owner, self.to_api_receipt(running, naming)))
    }

    #[must_use]
    pub fn kill_after(&self) -> Duration {
        self.config.actions.kill_after
    }

    /// The receipt of a dry run.
    #[must_use]
    pub fn to_api_plan(&self, now: BootTime, plan: &ActionPlan, uid: Uid, naming: &DisplayContext<'_>) -> Receipt {
        Receipt {
            id: 0,
            action: plan.kind,
            state: ActionState::Planned,
            by: DecidedBy::Person,
            asked_by_uid: Some(uid.0),
            finding: plan.finding.map(|(id, _)| id.0),
            finding_kind: plan.finding.map(|(_, kind)| kind),
            session: plan.session.map(|session| session.0),
            reason: plan.reason.clone(),
            evidence: plan.evidence.clone().into(),
            began_at: naming.moment(now),
            ended_at: None,
            memory_bytes: plan.selection.memory().0,
            freed_bytes: 0,
            available_before_bytes: self.close_watch.host.available.0,
            available_after_bytes: None,
            targets: plan.selection.targets.iter().map(|target| to_api_target(target, None, naming)).collect(),
            spared: self.to_api_spared(plan.selection.spared.iter().map(|(id, because)| (*id, because))),
            result: String::new(),
        }
    }

    fn to_api_receipt(&self, running: &ActionProgress, naming: &DisplayContext<'_>) -> Receipt {
        let action = &running.action;
        let (state, ended) = match running.stage {
            // Not held before the result is known.
            ActionStage::Held { .. } if running.pending_batches == 0 => (ActionState::Holding, None),
            ActionStage::Finished { at, state } => (state, Some(at)),
            ActionStage::Verifying { .. }
            | ActionStage::Held { .. }
            | ActionStage::Terminating { .. }
            | ActionStage::Killing { .. }
            | ActionStage::AwaitingReclaim { .. }
            | ActionStage::Releasing => (ActionState::Running, None),
        };
        let (by, asked_by_uid) = match action.initiator {
            Initiator::User(uid) => (DecidedBy::Person, Some(uid.0)),
            Initiator::Policy => (DecidedBy::Policy, None),
            Initiator::Emergency => (DecidedBy::Emergency, None),
        };
        // Targets that became exempt after a signal stay in the receipt.
        let is_reported = |target: &&TargetSnapshot| {
            !running.spared.contains_key(&target.process) || running.attempts.contains_key(&target.process)
        };
        let reported = || action.targets.iter().filter(is_reported);
        Receipt {
            id: action.id.0,
            action: action.kind,
            state,
            by,
            asked_by_uid,
            finding: action.finding.map(|(id, _)| id.0),
            finding_kind: action.finding.map(|(_, kind)| kind),
            session: action.session.map(|session| session.0),
            reason: action.reason.clone(),
            evidence: action.evidence.clone().into(),
            began_at: naming.moment(action.began),
            ended_at: ended.map(|at| naming.moment(at)),
            memory_bytes: reported().map(|target| target.memory.0).sum(),
            freed_bytes: running.freed().0,
            available_before_bytes: action.available.0,
            available_after_bytes: running.available_after.map(|bytes| bytes.0),
            targets: reported().map(|target| to_api_target(target, Some(running), naming)).collect(),
            spared: self.to_api_spared(running.spared.iter().map(|(id, because)| (*id, because))),
            result: running.result.clone(),
        }
    }

    #[must_use]
    pub(super) fn to_api_spared<'a>(
        &self,
        spared: impl Iterator<Item = (ProcessId, &'a ExemptionReason)>,
    ) -> Vec<Spared> {
        spared
            .map(|(id, because)| Spared {
                pid: id.pid.0,
                start_time: id.start_time.0,
                // Names of other users' processes are withheld.
                name: self
                    .table
                    .get(id)
                    .filter(|_| *because != ExemptionReason::OtherUser)
                    .map_or_else(String::new, TrackedProcess::label),
                because: because.to_string(),
                not_permitted: !matches!(because, ExemptionReason::Rule(_)),
            })
            .collect()
    }
}

fn to_api_target(
    target: &TargetSnapshot,
    running: Option<&ActionProgress>,
    naming: &DisplayContext<'_>,
) -> ActionTarget {
    let attempts = running.and_then(|running| running.attempts.get(&target.process));
    let died = running.and_then(|running| running.died.get(&target.process));
    ActionTarget {
        pid: target.process.pid.0,
        start_time: target.process.start_time.0,
        parent_pid: target.parent.map(|parent| parent.pid.0),
        kind: target.kind,
        name: target.name.clone(),
        uid: target.uid.0,
        memory_bytes: target.memory.0,
        sent: attempts
            .into_iter()
            .flatten()
            .map(|attempts| Sent {
                at: naming.moment(attempts.at),
                what: operation_name(attempts.operation, &attempts.outcome).to_owned(),
                answer: match &attempts.outcome {
                    OperationOutcome::Sent | OperationOutcome::SentToCgroup => "sent".to_owned(),
                    OperationOutcome::AlreadyExited => "gone".to_owned(),
                    OperationOutcome::Refused(why) | OperationOutcome::NotPermitted(why) => why.clone(),
                },
            })
            .collect(),
        died_at: died.map(|at| naming.moment(*at)),
    }
}

fn operation_name(operation: Operation, outcome: &OperationOutcome) -> &'static str {
    let whole = *outcome == OperationOutcome::SentToCgroup;
    match operation {
        Operation::Term => "TERM",
        Operation::Kill if whole => "cgroup.kill",
        Operation::Kill => "KILL",
        Operation::Freeze | Operation::Thaw if whole => "cgroup.freeze",
        Operation::Freeze => "STOP",
        Operation::Thaw => "CONT",
        Operation::Throttle | Operation::Unthrottle => "memory.high",
    }
}
