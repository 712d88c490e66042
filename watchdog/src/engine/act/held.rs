//! What is frozen or throttled, until it is let go.

use std::collections::BTreeSet;

use super::run::{AGAIN, UNWANTED};
use super::running::{Running, Stage};
use super::{Authority, Blow, Decided, Target, Wave};
use crate::api::{ActionKind, ActionState};
use crate::engine::Step;
use crate::engine::effect::Effect;
use crate::engine::id::{ActionId, ProcessId};
use crate::units::span;

impl Step<'_> {
    /// Who is frozen hears no signal but SIGKILL: whoever is to end is let go.
    pub(super) fn let_go_of(&mut self, ends: ActionId) {
        let running = &self.engine.acts.running;
        let Some(ending) = running.get(&ends) else { return };
        let ended: BTreeSet<ProcessId> = ending.living().collect();
        let freezes = |held: &&Running| {
            held.is_held()
                && held.action.kind == ActionKind::Freeze
                && held.living().any(|target| ended.contains(&target))
        };
        let held: Vec<ActionId> = running.values().filter(freezes).map(|held| held.action.id).collect();
        held.into_iter().for_each(|id| self.let_go(id, "it is ended instead"));
    }

    /// What is held is let go when its reason is gone.
    pub(super) fn tick_held(&mut self, id: ActionId) {
        let Some(running) = self.engine.acts.running.get(&id) else { return };
        if let Some((at, because)) = running.stuck.clone() {
            if self.now.since(at) >= AGAIN {
                self.let_go(id, &because);
            }
            return;
        }
        let by_policy = matches!(running.action.by, Decided::Policy);
        // An earlier run's finding is opened anew, if it is not over.
        let over = running.about.is_none_or(|finding| !self.engine.findings.is_still_open(finding));
        let table = &self.engine.table;
        let kept = running.living().filter_map(|process| table.alive(process)).any(|known| known.verdict.is_kept());
        if !self.engine.is_still_wanted(running) {
            self.let_go(id, UNWANTED);
        } else if by_policy && over {
            self.let_go(id, "what it was about is over");
        } else if kept && running.action.kind == ActionKind::Freeze {
            self.let_go(id, "it is meant to stay");
        }
    }

    /// Lets go of what an action froze or throttled.
    pub(super) fn let_go(&mut self, id: ActionId, because: &str) {
        let Some(running) = self.engine.acts.running.get(&id).filter(|running| running.is_held()) else { return };
        let Stage::Holding { since } = running.stage else { return };
        let blow = if running.action.kind == ActionKind::Throttle { Blow::Loosen } else { Blow::Thaw };
        // The dead too: what was done to them was done to their cgroup, perhaps.
        let held = running.targets().map(|target| target.process).filter(|process| !running.was_refused(*process));
        let (targets, cgroup) = (held.collect(), running.action.cgroup.clone());
        let result = format!("let go after {}: {because}", span(self.now.since(since)));
        if let Some(running) = self.engine.acts.running.get_mut(&id) {
            running.stage = Stage::Releasing;
            running.stuck = Some((self.now, because.to_owned()));
            running.result = result;
        }
        self.send(id, Wave { action: id, blow, targets, authority: Authority::ROOT, cgroup });
    }

    pub(super) fn released(&mut self, id: ActionId) {
        let Some(running) = self.engine.acts.running.get(&id) else { return };
        let refused = |target: &Target| running.dealt.get(&target.process)?.last()?.refused();
        let why = running.targets().find_map(refused).map(|why| format!("not let go: {why}"));
        let lives = running.living().next().is_some();
        let result = running.result.clone();
        match why {
            None => self.finish(id, ActionState::Done, result),
            // Nobody is left stopped because of an error that may pass.
            Some(why) if lives => {
                let now = self.now;
                if let Some(running) = self.engine.acts.running.get_mut(&id) {
                    running.stage = Stage::Holding { since: now };
                    running.result = why;
                }
                self.effect(Effect::Receipt(id));
                self.taken(id);
            }
            Some(why) => self.finish(id, ActionState::Incomplete, why),
        }
    }
}
