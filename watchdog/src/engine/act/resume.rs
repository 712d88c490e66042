//! What an earlier run of the daemon had begun, taken up where it was, and nothing done twice.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::running::{Dealt, Running, Stage};
use super::{ActionRecord, Answer, Blow};
use crate::api::{ActionKind, ActionState};
use crate::engine::Step;
use crate::engine::effect::Effect;
use crate::engine::id::{ActionId, BootTime, ProcessId};

/// Said of a process that lives, and of which no session is known any more: nothing is done on doubt.
const STRANGE: &str = "whose it is was lost with the daemon that was killed";

impl Step<'_> {
    /// What was written down. Who of the targets is there shows at the first scan.
    pub(in crate::engine) fn resume(&mut self, records: Vec<ActionRecord>) {
        let last = records.iter().map(ActionRecord::action).max();
        self.engine.acts.raise(last.unwrap_or_default());
        self.engine.acts.resumed = records;
    }

    /// The first scan is in the table: the actions go on. All of `there` live.
    pub(in crate::engine) fn resume_after_scan(&mut self, there: &HashSet<ProcessId>) {
        let records = std::mem::take(&mut self.engine.acts.resumed);
        for running in begun(records, self.now) {
            let id = running.action.id;
            self.engine.acts.running.insert(id, running);
            self.go_on(id, there);
        }
    }

    fn go_on(&mut self, id: ActionId, there: &HashSet<ProcessId>) {
        let now = self.now;
        let table = &self.engine.table;
        let Some(running) = self.engine.acts.running.get_mut(&id) else { return };
        let unknown: Vec<_> = running.living().filter(|process| table.alive(*process).is_none()).collect();
        let (strange, dead): (Vec<_>, Vec<_>) = unknown.into_iter().partition(|process| there.contains(process));
        let held = running.is_held();
        if !held {
            running.spared.extend(strange.iter().map(|process| (*process, STRANGE.into())));
        }
        running.died.extend(dead.into_iter().map(|process| (process, now)));
        if running.action.kind == ActionKind::Terminate && !running.by_person() {
            // Newcomers too, who are no targets of what was written down first.
            let dealt = running.dealt.keys().copied().filter(|process| table.alive(*process).is_some());
            self.engine.acts.struck.extend(dealt);
        }
        if let Some(missing) = self.engine.acts.rights.missing.clone() {
            self.finish(id, ActionState::Incomplete, format!("the daemon may not go on: {missing}"));
        } else if held && !strange.is_empty() {
            // What we did to exactly this process is taken back, whoever's it is.
            self.let_go(id, STRANGE);
        } else if !strange.is_empty() && running.living().next().is_none() {
            let result = format!("{} of {} are left alone: {STRANGE}", strange.len(), running.action.targets.len());
            self.finish(id, ActionState::Incomplete, result);
        } else if running.living().next().is_none() {
            self.all_gone(id);
        } else if let Stage::Looking { blow, .. } = running.stage {
            self.look(id, blow);
        } else {
            let looks: Vec<Effect> = running.living().map(Effect::Inspect).collect();
            self.effects.extend(looks);
        }
    }
}

/// The actions that were not over, as far as they had come.
fn begun(records: Vec<ActionRecord>, now: BootTime) -> Vec<Running> {
    let mut all: BTreeMap<ActionId, Running> = BTreeMap::new();
    for record in records {
        match record {
            ActionRecord::Begun(action) => {
                let stage = Stage::Looking { since: now, waiting: BTreeSet::new(), blow: action.first_blow() };
                all.insert(action.id, Running { about: None, ..Running::new(*action, stage) });
            }
            // Whether it was dealt nobody knows who was killed right after this: it is never dealt twice.
            ActionRecord::Striking { action, blow, process, at } => {
                if let Some(running) = all.get_mut(&action) {
                    let dealt = Dealt { at, blow, answer: Answer::Sent };
                    running.dealt.entry(process).or_default().push(dealt);
                }
            }
            ActionRecord::Struck { action, blow, process, answer } => {
                let dealt = all.get_mut(&action).and_then(|running| running.dealt.get_mut(&process));
                if let Some(last) = dealt.and_then(|dealt| dealt.iter_mut().rfind(|dealt| dealt.blow == blow)) {
                    last.answer = answer;
                }
            }
            ActionRecord::Over(action) => drop(all.remove(&action)),
            ActionRecord::Count(_) => {}
        }
    }
    for running in all.values_mut() {
        running.stage = stage(running, now);
    }
    all.into_values().collect()
}

/// Where an action goes on. Whoever was not reached yet is looked at, and struck then; for the others time has not stood still.
fn stage(running: &Running, now: BootTime) -> Stage {
    let first = |blow: Blow| {
        let of = running.dealt.values().flatten().filter(|dealt| dealt.blow == blow);
        of.map(|dealt| dealt.at).min()
    };
    let looking = Stage::Looking { since: now, waiting: BTreeSet::new(), blow: running.action.first_blow() };
    if let Some(since) = first(Blow::Throttle).or(first(Blow::Freeze)) {
        return Stage::Holding { since };
    }
    if first(Blow::Kill).is_some() {
        let all = running.targets().all(|target| running.was_dealt(target.process, Blow::Kill));
        return match (all, running.action.urgent) {
            (true, _) => Stage::Killing { since: now },
            (false, true) => looking,
            // The others' time was over as well.
            (false, false) => Stage::Ending { since: BootTime(0) },
        };
    }
    match first(Blow::Term) {
        Some(since) if running.targets().all(|target| running.was_dealt(target.process, Blow::Term)) => {
            Stage::Ending { since }
        }
        _ => looking,
    }
}
