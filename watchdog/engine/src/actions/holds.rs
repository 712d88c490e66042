//! Frozen and throttled targets, and their release.

use std::collections::BTreeSet;

use super::action::{Batch, Initiator, Operation, TargetSnapshot};
use super::authority::Authority;
use super::execution::POLICY_CHANGED;
use super::finish::RETRY_BACKOFF;
use super::progress::{ActionProgress, ActionStage};
use crate::Step;
use crate::effect::Effect;
use watchdog_api::{ActionKind, ActionState};
use watchdog_types::units::span;
use watchdog_types::{ActionId, ProcessId};

impl Step<'_> {
    /// Releases frozen targets of a termination: a frozen process handles no signal but SIGKILL.
    pub(super) fn release_frozen_targets(&mut self, ends: ActionId) {
        let running = &self.engine.actions.running;
        let Some(ending) = running.get(&ends) else { return };
        let ended: BTreeSet<ProcessId> = ending.living().collect();
        let freezes = |held: &&ActionProgress| {
            held.is_held()
                && held.action.kind == ActionKind::Freeze
                && held.living().any(|target| ended.contains(&target))
        };
        let held: Vec<ActionId> = running.values().filter(freezes).map(|held| held.action.id).collect();
        held.into_iter().for_each(|id| self.release(id, "terminated instead"));
    }

    /// Releases the targets when the reason for the hold no longer applies.
    pub(super) fn tick_holds(&mut self, id: ActionId) {
        let Some(running) = self.engine.actions.running.get(&id) else { return };
        if let Some((at, because)) = running.release_failed.clone() {
            if self.now.since(at) >= RETRY_BACKOFF {
                self.release(id, &because);
            }
            return;
        }
        let by_policy = matches!(running.action.initiator, Initiator::Policy);
        // The finding of an earlier run has another id, or is closed.
        let over = running.current_finding.is_none_or(|finding| !self.engine.findings.is_still_open(finding));
        let table = &self.engine.table;
        let kept = running.living().filter_map(|process| table.alive(process)).any(|known| known.verdict.is_kept());
        if !self.engine.is_still_wanted(running) {
            self.release(id, POLICY_CHANGED);
        } else if by_policy && over {
            self.release(id, "its finding closed");
        } else if kept && running.action.kind == ActionKind::Freeze {
            self.release(id, "a target is kept");
        }
    }

    pub(super) fn release(&mut self, id: ActionId, because: &str) {
        let Some(running) = self.engine.actions.running.get(&id).filter(|running| running.is_held()) else { return };
        let ActionStage::Held { since } = running.stage else { return };
        let operation =
            if running.action.kind == ActionKind::Throttle { Operation::Unthrottle } else { Operation::Thaw };
        // Dead targets are included: their cgroup may be frozen.
        let held = running.targets().map(|target| target.process).filter(|process| !running.was_only_refused(*process));
        let (targets, cgroup) = (held.collect(), running.action.cgroup.clone());
        let result = format!("released after {}: {because}", span(self.now.since(since)));
        if let Some(running) = self.engine.actions.running.get_mut(&id) {
            running.stage = ActionStage::Releasing;
            running.release_failed = Some((self.now, because.to_owned()));
            running.result = result;
        }
        self.send(id, Batch { action: id, operation, targets, authority: Authority::ROOT, cgroup });
    }

    pub(super) fn on_release_result(&mut self, id: ActionId) {
        let Some(running) = self.engine.actions.running.get(&id) else { return };
        let refused = |target: &TargetSnapshot| running.attempts.get(&target.process)?.last()?.refused();
        let why = running.targets().find_map(refused).map(|why| format!("not released: {why}"));
        let lives = running.living().next().is_some();
        let result = running.result.clone();
        match why {
            None => self.finish(id, ActionState::Done, result),
            // The error may be temporary: retry later.
            Some(why) if lives => {
                let now = self.now;
                if let Some(running) = self.engine.actions.running.get_mut(&id) {
                    running.stage = ActionStage::Held { since: now };
                    running.result = why;
                }
                self.effect(Effect::Receipt(id));
                self.record_in_finding(id);
            }
            Some(why) => self.finish(id, ActionState::Incomplete, why),
        }
    }
}
