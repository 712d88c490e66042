//! Finishes an action: its receipt, its finding, and the pause of policy.

use std::time::Duration;

use super::action::{Action, Initiator};
use super::progress::{ActionProgress, ActionStage};
use crate::Step;
use crate::effect::{ActionCommand, Effect, JournalEntry, JournalEvent};
use watchdog_api::ActionState;
use watchdog_types::{ActionId, ProcessId};

/// Retry delay of policy after a cancellation, and of a failed release.
pub(super) const RETRY_BACKOFF: Duration = Duration::from_secs(60);
/// Retry delay of policy after a refusal, or an action without effect.
const REFUSAL_BACKOFF: Duration = Duration::from_secs(600);

impl Step<'_> {
    /// Ends the action and publishes its receipt.
    pub(super) fn finish(&mut self, id: ActionId, state: ActionState, result: String) {
        let (now, available) = (self.now, self.engine.close_watch.host.available);
        let Some(mut running) = self.engine.actions.running.remove(&id) else { return };
        running.stage = ActionStage::Finished { at: now, state };
        running.available_after = Some(available);
        running.result = result;
        let emergency = matches!(running.action.initiator, Initiator::Emergency);
        if !running.by_user() {
            self.back_off(&running, state);
        }
        self.engine.actions.retain_finished(running, now);
        if emergency {
            self.emergency_over(state);
        }
        self.effect(Effect::Receipt(id));
        self.effect(Effect::Act(ActionCommand::Finish(id)));
        self.record_in_finding(id);
        self.journal_action(id, "over");
    }

    /// Delays the next attempt of policy on surviving targets. Targets that received no signal may be signalled again.
    fn back_off(&mut self, running: &ActionProgress, state: ActionState) {
        let pause = match state {
            ActionState::CalledOff => Some(RETRY_BACKOFF),
            ActionState::Incomplete => Some(REFUSAL_BACKOFF),
            ActionState::Planned | ActionState::Running | ActionState::Holding | ActionState::Done => None,
        };
        let living = running.action.targets.iter().map(|target| target.process);
        let living: Vec<ProcessId> = living.filter(|process| self.engine.table.alive(*process).is_some()).collect();
        for process in living {
            let acts = &mut self.engine.actions;
            acts.backoff_until.extend(pause.map(|pause| (process, self.now.plus(pause))));
            if !running.attempts.contains_key(&process) || running.was_only_refused(process) {
                acts.terminated_by_policy.remove(&process);
            }
        }
    }

    pub(super) fn record_in_finding(&mut self, id: ActionId) {
        let Some(running) = self.engine.actions.get(id) else { return };
        let Some(finding) = running.current_finding else { return };
        let what = running.action.kind.name();
        let taken = if running.result.is_empty() {
            format!("{what} (action {id})")
        } else {
            format!("{what} (action {id}): {}", running.result)
        };
        self.engine.findings.acted(finding, taken);
    }

    pub(super) fn journal_action(&mut self, id: ActionId, change: &str) {
        let Some(running) = self.engine.actions.get(id) else { return };
        let Action { kind, session, ref reason, ref targets, .. } = running.action;
        let summary = if running.result.is_empty() { reason.clone() } else { running.result.clone() };
        let process = targets.first().map(|target| target.process);
        let what = JournalEvent::Action { action: id, kind, change: change.to_owned(), summary };
        self.effect(Effect::Journal(JournalEntry { at: self.now, process, session, what }));
    }
}
