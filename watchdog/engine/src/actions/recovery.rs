//! Resumes actions that an earlier run of the daemon started. No operation is sent twice.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::action::{ActionLogRecord, Operation, OperationOutcome};
use super::progress::{ActionProgress, ActionStage, OperationAttempt};
use crate::Step;
use crate::effect::Effect;
use watchdog_api::{ActionKind, ActionState};
use watchdog_types::{ActionId, BootTime, ProcessId};

/// Exemption of a running process whose session is unknown.
const LOST_OWNER: &str = "its session is unknown after a daemon crash";

impl Step<'_> {
    /// Keeps the log until the table is complete, with the second scan.
    pub(crate) fn resume_actions(&mut self, records: Vec<ActionLogRecord>) {
        let last = records.iter().map(ActionLogRecord::action).max();
        self.engine.actions.raise(last.unwrap_or_default());
        self.engine.actions.resumed = records;
    }

    /// Resumes after a scan. `there` are the running processes.
    pub(crate) fn resume_after_scan(&mut self, there: &HashSet<ProcessId>) {
        let records = std::mem::take(&mut self.engine.actions.resumed);
        for running in begun(records, self.now) {
            let id = running.action.id;
            self.engine.actions.running.insert(id, running);
            self.resume_action(id, there);
        }
    }

    fn resume_action(&mut self, id: ActionId, there: &HashSet<ProcessId>) {
        let now = self.now;
        let table = &self.engine.table;
        let Some(running) = self.engine.actions.running.get_mut(&id) else { return };
        let unknown: Vec<_> = running.living().filter(|process| table.alive(*process).is_none()).collect();
        let (strange, dead): (Vec<_>, Vec<_>) = unknown.into_iter().partition(|process| there.contains(process));
        let held = running.is_held();
        if !held {
            running.spared.extend(strange.iter().map(|process| (*process, LOST_OWNER.into())));
        }
        running.died.extend(dead.into_iter().map(|process| (process, now)));
        if running.action.kind == ActionKind::Terminate && !running.by_user() {
            // Includes processes that became targets after the action was logged.
            let attempts = running.attempts.keys().copied().filter(|process| table.alive(*process).is_some());
            self.engine.actions.terminated_by_policy.extend(attempts);
        }
        if let Some(missing) = self.engine.actions.permissions.missing.clone() {
            self.finish(id, ActionState::Incomplete, format!("not resumed: {missing}"));
        } else if held && !strange.is_empty() {
            // The hold was placed on exactly this process, so it is released even if it changed its user.
            self.release(id, LOST_OWNER);
        } else if !strange.is_empty() && running.living().next().is_none() {
            let result =
                format!("{} of {} targets are exempt: {LOST_OWNER}", strange.len(), running.action.targets.len());
            self.finish(id, ActionState::Incomplete, result);
        } else if running.living().next().is_none() {
            self.on_targets_exited(id);
        } else if let ActionStage::Verifying { operation, .. } = running.stage {
            self.verify_targets(id, operation);
        } else {
            let looks: Vec<Effect> = running.living().map(Effect::Inspect).collect();
            self.effects.extend(looks);
        }
    }
}

/// The unfinished actions of a log.
fn begun(records: Vec<ActionLogRecord>, now: BootTime) -> Vec<ActionProgress> {
    let mut all: BTreeMap<ActionId, ActionProgress> = BTreeMap::new();
    for record in records {
        match record {
            ActionLogRecord::Begun(action) => {
                let stage = ActionStage::Verifying {
                    since: now,
                    waiting: BTreeSet::new(),
                    operation: action.first_operation(),
                };
                all.insert(action.id, ActionProgress { current_finding: None, ..ActionProgress::new(*action, stage) });
            }
            // The daemon may have died before or after the signal. Assume it was sent: never send it twice.
            ActionLogRecord::Sending { action, operation, process, at } => {
                if let Some(running) = all.get_mut(&action) {
                    let attempts = OperationAttempt { at, operation, outcome: OperationOutcome::Sent };
                    running.attempts.entry(process).or_default().push(attempts);
                }
            }
            ActionLogRecord::Sent { action, operation, process, outcome } => {
                let attempts = all.get_mut(&action).and_then(|running| running.attempts.get_mut(&process));
                if let Some(last) =
                    attempts.and_then(|attempts| attempts.iter_mut().rfind(|attempts| attempts.operation == operation))
                {
                    last.outcome = outcome;
                }
            }
            ActionLogRecord::Finished(action) => drop(all.remove(&action)),
            ActionLogRecord::Count(_) => {}
        }
    }
    for running in all.values_mut() {
        running.stage = stage(running, now);
    }
    all.into_values().collect()
}

/// The stage to resume at. Targets without a signal are verified first; the grace of the others kept running.
fn stage(running: &ActionProgress, now: BootTime) -> ActionStage {
    let first = |operation: Operation| {
        let of = running.attempts.values().flatten().filter(|attempts| attempts.operation == operation);
        of.map(|attempts| attempts.at).min()
    };
    let looking =
        ActionStage::Verifying { since: now, waiting: BTreeSet::new(), operation: running.action.first_operation() };
    if let Some(since) = first(Operation::Throttle).or(first(Operation::Freeze)) {
        return ActionStage::Held { since };
    }
    if first(Operation::Kill).is_some() {
        let all = running.targets().all(|target| running.was_attempted(target.process, Operation::Kill));
        return match (all, running.action.urgent) {
            (true, _) => ActionStage::Killing { since: now },
            (false, true) => looking,
            // The grace of the other targets is over too.
            (false, false) => ActionStage::Terminating { since: BootTime(0) },
        };
    }
    match first(Operation::Term) {
        Some(since) if running.targets().all(|target| running.was_attempted(target.process, Operation::Term)) => {
            ActionStage::Terminating { since }
        }
        _ => looking,
    }
}
