//! Runs an action: verify, SIGTERM, SIGKILL, wait for the memory; or hold until released.

use std::collections::BTreeSet;
use std::iter;
use std::time::Duration;

use super::action::{Action, Batch, BatchResult, Initiator, Justification, Operation, OperationOutcome};
use super::authority::ExemptionReason;
use super::progress::{ActionPlan, ActionProgress, ActionStage, OperationAttempt};
use crate::Step;
use crate::effect::{ActionCommand, BpfCommand, Effect};
use watchdog_api::{ActionKind, ActionState};
use watchdog_types::units::{count, seconds, size};
use watchdog_types::{ActionId, BootTime, ProcessId};

/// A target that cannot be inspected within this time is exempt.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(3);
/// A process that runs this long after SIGKILL is in an uninterruptible wait.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum wait for the memory of exited processes.
const RECLAIM_TIMEOUT: Duration = Duration::from_secs(2);
/// Result of an action that policy would no longer take.
pub(super) const POLICY_CHANGED: &str = "the configuration no longer requests it";
/// How often processes forked by the targets become targets too.
const MAX_CHILD_ROUNDS: u32 = 3;

impl Step<'_> {
    /// Logs the action and verifies its targets before the first signal.
    pub(super) fn begin_action(&mut self, plan: ActionPlan, initiator: Initiator, urgent: bool) -> ActionId {
        let acts = &mut self.engine.actions;
        acts.last.0 += 1;
        let id = acts.last;
        let ActionPlan { kind, justification, finding, session, owner, reason, evidence, selection, cgroup } = plan;
        let (began, available) = (self.now, self.engine.close_watch.host.available);
        let user = session.and_then(|session| self.engine.sessions.get(session)).map(|session| session.uid);
        let targets = selection.targets;
        let action = Action {
            id,
            kind,
            initiator,
            justification,
            urgent,
            finding,
            session,
            owner,
            user,
            reason,
            evidence,
            targets,
            cgroup,
            began,
            available,
        };
        let operation = action.first_operation();
        let stage = ActionStage::Verifying { since: began, waiting: BTreeSet::new(), operation };
        let mut running = ActionProgress::new(action.clone(), stage);
        running.spared.extend(selection.spared);
        self.engine.actions.running.insert(id, running);
        if kind == ActionKind::Terminate {
            self.release_frozen_targets(id);
        }
        self.effect(Effect::Act(ActionCommand::Begin(Box::new(action))));
        self.journal_action(id, "begun");
        self.verify_targets(id, operation);
        id
    }

    /// Inspects the running targets and their ancestors before an operation.
    pub(super) fn verify_targets(&mut self, id: ActionId, operation: Operation) {
        let now = self.now;
        let Some(running) = self.engine.actions.running.get(&id) else { return };
        let table = &self.engine.table;
        let waiting: BTreeSet<ProcessId> = match running.action.kind {
            // A memory limit needs no verification.
            ActionKind::Throttle => BTreeSet::new(),
            ActionKind::Terminate | ActionKind::Freeze => {
                let with_wrappers = |target| iter::once(target).chain(table.living_above(target).map(|above| above.id));
                running.living().flat_map(with_wrappers).collect()
            }
        };
        self.effects.extend(waiting.iter().copied().map(Effect::Inspect));
        if let Some(running) = self.engine.actions.running.get_mut(&id) {
            running.stage = ActionStage::Verifying { since: now, waiting, operation };
        }
        self.on_verified(id);
    }

    pub(crate) fn actions_inspected(&mut self, process: ProcessId) {
        let running = self.engine.actions.running.values_mut();
        let ready: Vec<ActionId> =
            running.filter_map(|running| running.mark_verified(process).then_some(running.action.id)).collect();
        ready.into_iter().for_each(|id| self.on_verified(id));
    }

    /// Executes the operation once all inspections have arrived.
    fn on_verified(&mut self, id: ActionId) {
        let Some(running) = self.engine.actions.running.get(&id) else { return };
        let ActionStage::Verifying { waiting, operation, .. } = &running.stage else { return };
        if !waiting.is_empty() {
            return;
        }
        if !self.engine.is_still_wanted(running) {
            self.cancel_action(id);
            return;
        }
        let (now, operation) = (self.now, *operation);
        let stage = match operation {
            Operation::Kill => ActionStage::Killing { since: now },
            Operation::Term => ActionStage::Terminating { since: now },
            Operation::Freeze | Operation::Throttle => ActionStage::Held { since: now },
            Operation::Thaw | Operation::Unthrottle => ActionStage::Releasing,
        };
        self.execute(id, operation, stage);
    }

    /// Policy no longer wants the action.
    fn cancel_action(&mut self, id: ActionId) {
        let attempts = self.engine.actions.running.get(&id).is_some_and(|running| !running.attempts.is_empty());
        let state = if attempts { ActionState::Incomplete } else { ActionState::CalledOff };
        self.finish(id, state, format!("cancelled: {POLICY_CHANGED}"));
    }

    /// Sends the operation to running targets that are not exempt and have not received it.
    fn execute(&mut self, id: ActionId, operation: Operation, stage: ActionStage) {
        self.recheck_exemptions(id);
        let Some(running) = self.engine.actions.running.get_mut(&id) else { return };
        if operation == Operation::Kill && !running.action.urgent {
            let unreported = running.living().filter(|process| !running.attempts.contains_key(process));
            let unreported: Vec<ProcessId> = unreported.collect();
            running
                .spared
                .extend(unreported.into_iter().map(|process| (process, "it received no SIGTERM first".into())));
        }
        running.stage = stage;
        let targets: Vec<ProcessId> =
            running.living().filter(|process| !running.was_attempted(*process, operation)).collect();
        if running.living().next().is_none() {
            self.on_targets_exited(id);
            return;
        }
        let (cgroup, authority) = (running.action.cgroup.clone(), running.action.authority());
        if running.action.kind == ActionKind::Terminate && !running.by_user() {
            let new: Vec<ProcessId> = targets
                .iter()
                .copied()
                .filter(|target| self.engine.actions.terminated_by_policy.insert(*target))
                .collect();
            let now = self.now;
            self.engine.actions.recent_kills.extend(new.iter().map(|_| now));
        }
        if !targets.is_empty() {
            self.send(id, Batch { action: id, operation, targets, authority, cgroup });
        }
    }

    pub(super) fn send(&mut self, id: ActionId, batch: Batch) {
        if let Some(running) = self.engine.actions.running.get_mut(&id) {
            running.pending_batches += 1;
            self.effect(Effect::Act(ActionCommand::Execute(Box::new(batch))));
        }
    }

    /// Removes targets that have become exempt or have exited.
    fn recheck_exemptions(&mut self, id: ActionId) {
        let Some(running) = self.engine.actions.running.get(&id) else { return };
        let justification = running.action.justification;
        let freezes = running.action.kind == ActionKind::Freeze;
        if running.action.kind == ActionKind::Throttle {
            return;
        }
        let spared: Vec<(ProcessId, ExemptionReason)> = running
            .living()
            .filter(|process| self.engine.table.alive(*process).is_some())
            .filter_map(|process| {
                let stopped = || freezes.then(|| self.engine.already_stopped(process)).flatten();
                let permission_exemption = running.permission_exemption(self.engine, process);
                let rule =
                    || self.engine.exemption_reason(process, justification).or_else(stopped).map(ExemptionReason::Rule);
                Some((process, permission_exemption.or_else(rule)?))
            })
            .collect();
        let gone: Vec<ProcessId> =
            running.living().filter(|process| self.engine.table.alive(*process).is_none()).collect();
        let now = self.now;
        let Some(running) = self.engine.actions.running.get_mut(&id) else { return };
        running.spared.extend(spared);
        running.died.extend(gone.into_iter().map(|process| (process, now)));
    }

    pub(crate) fn on_batch_result(&mut self, result: BatchResult) {
        let BatchResult { action: id, operation, at, outcomes } = result;
        let Some(running) = self.engine.actions.running.get_mut(&id) else { return };
        running.pending_batches = running.pending_batches.saturating_sub(1);
        let mut missed = Vec::new();
        for (process, outcome) in outcomes {
            match outcome {
                OperationOutcome::AlreadyExited => missed.push(process),
                OperationOutcome::NotPermitted(why) => {
                    running.spared.insert(process, ExemptionReason::NotPermitted(why));
                    continue;
                }
                OperationOutcome::Sent | OperationOutcome::SentToCgroup | OperationOutcome::Refused(_) => {}
            }
            running.attempts.entry(process).or_default().push(OperationAttempt { at, operation, outcome });
        }
        let refused = running.refused().map(str::to_owned);
        // A release that was sent before the result of the hold arrived completes with its own result.
        let (held, releasing) =
            (running.is_held(), running.stage == ActionStage::Releasing && running.pending_batches == 0);
        let empty = running.living().next().is_none();
        missed.into_iter().for_each(|process| self.missed(process));
        if let Some(why) = refused {
            self.finish(id, ActionState::Incomplete, format!("no signal sent: {why}"));
        } else if releasing {
            self.on_release_result(id);
        } else if empty {
            self.on_targets_exited(id);
        } else if held {
            self.effect(Effect::Receipt(id));
            self.record_in_finding(id);
        }
    }

    pub(crate) fn actions_process_exited(&mut self, process: ProcessId, at: BootTime) {
        self.engine.actions.terminated_by_policy.remove(&process);
        self.engine.actions.backoff_until.remove(&process);
        let (mut empty, mut ready) = (Vec::new(), Vec::new());
        for (id, running) in &mut self.engine.actions.running {
            let ends_look = running.mark_verified(process);
            let targeted = running.action.targets.iter().any(|target| target.process == process);
            if targeted {
                running.died.insert(process, at);
            }
            if targeted && running.living().next().is_none() {
                empty.push(*id);
            } else if ends_look {
                ready.push(*id);
            }
        }
        empty.into_iter().for_each(|id| self.on_targets_exited(id));
        ready.into_iter().for_each(|id| self.on_verified(id));
    }

    /// No running target is left.
    pub(super) fn on_targets_exited(&mut self, id: ActionId) {
        let now = self.now;
        let Some(running) = self.engine.actions.running.get(&id) else { return };
        // The exit may arrive before the result of the signal; the receipt needs both.
        if running.pending_batches > 0 {
            return;
        }
        if running.attempts.is_empty() {
            let because = match running.spared.values().next() {
                _ if running.targets().next().is_some() => "all targets exited on their own".to_owned(),
                Some(because) => because.to_string(),
                None => "no targets left".to_owned(),
            };
            self.finish(id, ActionState::CalledOff, format!("cancelled: {because}"));
            return;
        }
        if running.action.kind != ActionKind::Terminate {
            // The cgroup is still frozen or throttled, with any other process in it.
            self.release(id, "all targets exited");
            return;
        }
        if running.rounds < MAX_CHILD_ROUNDS && self.include_new_children(id) {
            return;
        }
        if let Some(running) = self.engine.actions.running.get_mut(&id)
            && !matches!(running.stage, ActionStage::AwaitingReclaim { .. })
        {
            running.stage = ActionStage::AwaitingReclaim { since: now };
            self.effect(Effect::Bpf(BpfCommand::ReadHost));
        }
    }

    /// Makes processes that the targets forked meanwhile targets too.
    fn include_new_children(&mut self, id: ActionId) -> bool {
        let Some(running) = self.engine.actions.running.get(&id) else { return false };
        let known: BTreeSet<ProcessId> = running.action.targets.iter().map(|target| target.process).collect();
        let tops: Vec<ProcessId> = running.targets().map(|target| target.process).collect();
        let below = match running.action.justification {
            Justification::Helper => self.engine.helpers(tops),
            Justification::Orphaned | Justification::WholeSession(_) | Justification::IncludingKept(_) => {
                self.engine.subtree(tops)
            }
        };
        let new = below
            .into_iter()
            .filter(|process| !known.contains(process) && !running.spared.contains_key(process))
            .filter(|process| running.permission_exemption(self.engine, *process).is_none());
        let mut selection = self.engine.select_targets(new, running.action.justification);
        if !running.by_user() {
            selection.targets.truncate(self.remaining_kills());
        }
        if selection.targets.is_empty() {
            return false;
        }
        let Some(running) = self.engine.actions.running.get_mut(&id) else { return false };
        running.rounds += 1;
        running.action.targets.extend(selection.targets);
        running.spared.extend(selection.spared);
        let operation = running.action.first_operation();
        self.verify_targets(id, operation);
        true
    }

    pub(crate) fn actions_host_read(&mut self) {
        let (now, host) = (self.now, self.engine.close_watch.host);
        // The kernel reports an exit before it has freed the memory.
        let is_back = |running: &ActionProgress| {
            host.available.0 >= running.action.available.0.saturating_add(running.freed().0 / 2)
        };
        let counting = |running: &&ActionProgress| match running.stage {
            ActionStage::AwaitingReclaim { since } => is_back(running) || now.since(since) >= RECLAIM_TIMEOUT,
            _ => false,
        };
        let ready: Vec<ActionId> =
            self.engine.actions.running.values().filter(counting).map(|running| running.action.id).collect();
        ready.into_iter().for_each(|id| self.finish_reclaim(id));
    }

    fn finish_reclaim(&mut self, id: ActionId) {
        let Some(running) = self.engine.actions.running.get(&id) else { return };
        let ended = running.targets().filter(|target| running.died.contains_key(&target.process)).count();
        let result = format!(
            "{} terminated in {}, {} freed",
            count(ended as u64, "process", "processes"),
            seconds(self.now.since(running.action.began).as_secs_f64()),
            size(running.freed().0)
        );
        self.finish(id, ActionState::Done, result);
    }

    pub(crate) fn tick_actions(&mut self) {
        self.detect_suspend();
        let (now, kill_after) = (self.now, self.engine.config.actions.kill_after);
        let ids: Vec<ActionId> = self.engine.actions.running.keys().copied().collect();
        for id in ids {
            let Some(running) = self.engine.actions.running.get_mut(&id) else { continue };
            match &mut running.stage {
                ActionStage::Verifying { since, waiting, .. } if now.since(*since) >= VERIFY_TIMEOUT => {
                    let unseen = std::mem::take(waiting);
                    self.exempt_unverified(id, &unseen);
                    self.on_verified(id);
                }
                ActionStage::Terminating { since } if now.since(*since) >= kill_after => {
                    self.verify_targets(id, Operation::Kill)
                }
                ActionStage::Killing { since } if now.since(*since) >= KILL_TIMEOUT => {
                    let left = running.living().count();
                    let (all, waited) = (running.targets().count(), KILL_TIMEOUT.as_secs());
                    let result = format!("{left} of {all} still running {waited}s after SIGKILL");
                    self.finish(id, ActionState::Incomplete, result);
                }
                ActionStage::AwaitingReclaim { since } if now.since(*since) >= RECLAIM_TIMEOUT => {
                    self.finish_reclaim(id)
                }
                ActionStage::AwaitingReclaim { .. } => self.effect(Effect::Bpf(BpfCommand::ReadHost)),
                ActionStage::Held { .. } => self.tick_holds(id),
                ActionStage::Verifying { .. }
                | ActionStage::Terminating { .. }
                | ActionStage::Killing { .. }
                | ActionStage::Releasing
                | ActionStage::Finished { .. } => {}
            }
        }
        self.tick_policy();
        self.tick_emergency();
    }

    /// Exempts targets that were not inspected in time, or whose ancestors were not.
    fn exempt_unverified(&mut self, id: ActionId, unseen: &BTreeSet<ProcessId>) {
        let table = &self.engine.table;
        let Some(running) = self.engine.actions.running.get_mut(&id) else { return };
        let around = |target| iter::once(target).chain(table.living_above(target).map(|above| above.id));
        let spared: Vec<ProcessId> =
            running.living().filter(|target| around(*target).any(|process| unseen.contains(&process))).collect();
        let because = "it or an ancestor could not be inspected in time";
        running.spared.extend(spared.into_iter().map(|process| (process, because.into())));
    }
}
