//! An action on its way: looked at, told to end, killed, counted; or held until it is let go.

use std::collections::BTreeSet;
use std::iter;
use std::time::Duration;

use super::running::{Dealt, Plan, Running, Stage};
use super::{Action, Answer, Blow, Decided, Grounds, SpareReason, Struck, Wave};
use crate::api::{ActionKind, ActionState};
use crate::engine::Step;
use crate::engine::effect::{Effect, Happening, JournalEntry};
use crate::engine::id::{ActionId, BootTime, ProcessId};
use crate::units::{count, seconds, size};

/// A target that could not be looked at for this long is left alone: nothing is done on doubt.
const LOOK_PATIENCE: Duration = Duration::from_secs(3);
/// A process that is still there this long after SIGKILL waits for something that no signal interrupts.
const DYING: Duration = Duration::from_secs(5);
/// The memory of the dead is waited for this long.
const COUNTING: Duration = Duration::from_secs(2);
/// Policy tries again this long after something was called off, and to let go of what it could not,
pub(super) const AGAIN: Duration = Duration::from_secs(60);
/// and this long after it was refused, or had no effect.
const AGAIN_AFTER_REFUSAL: Duration = Duration::from_secs(600);
/// Said of what policy has decided, and would not any more.
pub(super) const UNWANTED: &str = "the configuration does not ask for it any more";
/// How often what the targets forked meanwhile becomes a target too.
const ROUNDS: u32 = 3;

impl Step<'_> {
    /// Begins an action: it is written down, and its targets are looked at once more.
    pub(super) fn begin_action(&mut self, plan: Plan, by: Decided, urgent: bool) -> ActionId {
        let acts = &mut self.engine.acts;
        acts.last.0 += 1;
        let id = acts.last;
        let Plan { kind, grounds, finding, session, owner, reason, evidence, chosen, cgroup } = plan;
        let (began, available) = (self.now, self.engine.close_watch.host.available);
        let user = session.and_then(|session| self.engine.sessions.get(session)).map(|session| session.uid);
        let targets = chosen.targets;
        let action = Action {
            id,
            kind,
            by,
            grounds,
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
        let blow = action.first_blow();
        let stage = Stage::Looking { since: began, waiting: BTreeSet::new(), blow };
        let mut running = Running::new(action.clone(), stage);
        running.spared.extend(chosen.spared);
        self.engine.acts.running.insert(id, running);
        if kind == ActionKind::Terminate {
            self.let_go_of(id);
        }
        self.effect(Effect::BeginAction(Box::new(action)));
        self.journal_action(id, "begun");
        self.look(id, blow);
        id
    }

    /// Has the living targets looked at, and what they may be a part of, before a blow.
    pub(super) fn look(&mut self, id: ActionId, blow: Blow) {
        let now = self.now;
        let Some(running) = self.engine.acts.running.get(&id) else { return };
        let table = &self.engine.table;
        let waiting: BTreeSet<ProcessId> = match running.action.kind {
            // A limit harms nobody.
            ActionKind::Throttle => BTreeSet::new(),
            ActionKind::Terminate | ActionKind::Freeze => {
                let with_wrappers = |target| iter::once(target).chain(table.living_above(target).map(|above| above.id));
                running.living().flat_map(with_wrappers).collect()
            }
        };
        self.effects.extend(waiting.iter().copied().map(Effect::Inspect));
        if let Some(running) = self.engine.acts.running.get_mut(&id) {
            running.stage = Stage::Looking { since: now, waiting, blow };
        }
        self.looked(id);
    }

    /// A process was looked at.
    pub(in crate::engine) fn act_inspected(&mut self, process: ProcessId) {
        let running = self.engine.acts.running.values_mut();
        let ready: Vec<ActionId> =
            running.filter_map(|running| running.looked_at(process).then_some(running.action.id)).collect();
        ready.into_iter().for_each(|id| self.looked(id));
    }

    /// All that could be looked at was: strikes.
    fn looked(&mut self, id: ActionId) {
        let Some(running) = self.engine.acts.running.get(&id) else { return };
        let Stage::Looking { waiting, blow, .. } = &running.stage else { return };
        if !waiting.is_empty() {
            return;
        }
        if !self.engine.is_still_wanted(running) {
            self.call_off(id);
            return;
        }
        let (now, blow) = (self.now, *blow);
        let stage = match blow {
            Blow::Kill => Stage::Killing { since: now },
            Blow::Term => Stage::Ending { since: now },
            Blow::Freeze | Blow::Throttle => Stage::Holding { since: now },
            Blow::Thaw | Blow::Loosen => Stage::Releasing,
        };
        self.strike(id, blow, stage);
    }

    /// Policy has decided this, and would not today.
    fn call_off(&mut self, id: ActionId) {
        let dealt = self.engine.acts.running.get(&id).is_some_and(|running| !running.dealt.is_empty());
        let state = if dealt { ActionState::Incomplete } else { ActionState::CalledOff };
        self.finish(id, state, format!("called off: {UNWANTED}"));
    }

    /// Deals a blow to whoever lives, may still be touched, and has not had it.
    fn strike(&mut self, id: ActionId, blow: Blow, stage: Stage) {
        self.spare_again(id);
        let Some(running) = self.engine.acts.running.get_mut(&id) else { return };
        if blow == Blow::Kill && !running.action.urgent {
            let untold = running.living().filter(|process| !running.dealt.contains_key(process));
            let untold: Vec<ProcessId> = untold.collect();
            running.spared.extend(untold.into_iter().map(|process| (process, "it was not told to end before".into())));
        }
        running.stage = stage;
        let targets: Vec<ProcessId> = running.living().filter(|process| !running.was_dealt(*process, blow)).collect();
        if running.living().next().is_none() {
            self.all_gone(id);
            return;
        }
        let (cgroup, authority) = (running.action.cgroup.clone(), running.action.authority());
        if running.action.kind == ActionKind::Terminate && !running.by_person() {
            let new: Vec<ProcessId> =
                targets.iter().copied().filter(|target| self.engine.acts.struck.insert(*target)).collect();
            let now = self.now;
            self.engine.acts.kills.extend(new.iter().map(|_| now));
        }
        if !targets.is_empty() {
            self.send(id, Wave { action: id, blow, targets, authority, cgroup });
        }
    }

    pub(super) fn send(&mut self, id: ActionId, wave: Wave) {
        if let Some(running) = self.engine.acts.running.get_mut(&id) {
            running.unanswered += 1;
            self.effect(Effect::Strike(Box::new(wave)));
        }
    }

    /// Lets go of targets that are not to be touched any more.
    fn spare_again(&mut self, id: ActionId) {
        let Some(running) = self.engine.acts.running.get(&id) else { return };
        let grounds = running.action.grounds;
        let freezes = running.action.kind == ActionKind::Freeze;
        if running.action.kind == ActionKind::Throttle {
            return;
        }
        let spared: Vec<(ProcessId, SpareReason)> = running
            .living()
            .filter(|process| self.engine.table.alive(*process).is_some())
            .filter_map(|process| {
                let stopped = || freezes.then(|| self.engine.stopped(process)).flatten();
                let out_of_reach = running.out_of_reach(self.engine, process);
                let rule = || self.engine.spare(process, grounds).or_else(stopped).map(SpareReason::Rule);
                Some((process, out_of_reach.or_else(rule)?))
            })
            .collect();
        let gone: Vec<ProcessId> =
            running.living().filter(|process| self.engine.table.alive(*process).is_none()).collect();
        let now = self.now;
        let Some(running) = self.engine.acts.running.get_mut(&id) else { return };
        running.spared.extend(spared);
        running.died.extend(gone.into_iter().map(|process| (process, now)));
    }

    /// What became of a wave.
    pub(in crate::engine) fn struck(&mut self, struck: Struck) {
        let Struck { action: id, blow, at, answers } = struck;
        let Some(running) = self.engine.acts.running.get_mut(&id) else { return };
        running.unanswered = running.unanswered.saturating_sub(1);
        let mut missed = Vec::new();
        for (process, answer) in answers {
            match answer {
                Answer::Gone => missed.push(process),
                Answer::NotPermitted(why) => {
                    running.spared.insert(process, SpareReason::NotPermitted(why));
                    continue;
                }
                Answer::Sent | Answer::SentToCgroup | Answer::Refused(_) => {}
            }
            running.dealt.entry(process).or_default().push(Dealt { at, blow, answer });
        }
        let refused = running.refused().map(str::to_owned);
        // Who is let go before the answer to the first blow has come is let go when the answer to the second has.
        let (held, releasing) = (running.is_held(), running.stage == Stage::Releasing && running.unanswered == 0);
        let empty = running.living().next().is_none();
        missed.into_iter().for_each(|process| self.missed(process));
        if let Some(why) = refused {
            self.finish(id, ActionState::Incomplete, format!("nothing was done: {why}"));
        } else if releasing {
            self.released(id);
        } else if empty {
            self.all_gone(id);
        } else if held {
            self.effect(Effect::Receipt(id));
            self.taken(id);
        }
    }

    /// A process is gone.
    pub(in crate::engine) fn act_gone(&mut self, process: ProcessId, at: BootTime) {
        self.engine.acts.struck.remove(&process);
        self.engine.acts.rests.remove(&process);
        let (mut empty, mut ready) = (Vec::new(), Vec::new());
        for (id, running) in &mut self.engine.acts.running {
            let ends_look = running.looked_at(process);
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
        empty.into_iter().for_each(|id| self.all_gone(id));
        ready.into_iter().for_each(|id| self.looked(id));
    }

    /// No target lives any more, or none is to be touched.
    pub(super) fn all_gone(&mut self, id: ActionId) {
        let now = self.now;
        let Some(running) = self.engine.acts.running.get(&id) else { return };
        // An exit may be told before what was sent: the receipt waits for both.
        if running.unanswered > 0 {
            return;
        }
        if running.dealt.is_empty() {
            let because = match running.spared.values().next() {
                _ if running.targets().next().is_some() => "they ended by themselves".to_owned(),
                Some(because) => because.to_string(),
                None => "nobody is left".to_owned(),
            };
            self.finish(id, ActionState::CalledOff, format!("called off: {because}"));
            return;
        }
        if running.action.kind != ActionKind::Terminate {
            // Their cgroup is held still, with whoever else is in there.
            self.let_go(id, "the processes are gone");
            return;
        }
        if running.rounds < ROUNDS && self.takes_newcomers(id) {
            return;
        }
        if let Some(running) = self.engine.acts.running.get_mut(&id)
            && !matches!(running.stage, Stage::Counting { .. })
        {
            running.stage = Stage::Counting { since: now };
            self.effect(Effect::LookAtHost);
        }
    }

    /// What the targets forked after they were chosen becomes targets too.
    fn takes_newcomers(&mut self, id: ActionId) -> bool {
        let Some(running) = self.engine.acts.running.get(&id) else { return false };
        let known: BTreeSet<ProcessId> = running.action.targets.iter().map(|target| target.process).collect();
        let tops: Vec<ProcessId> = running.targets().map(|target| target.process).collect();
        let below = match running.action.grounds {
            Grounds::Helper => self.engine.helpers(tops),
            Grounds::LeftBehind | Grounds::WholeSession(_) | Grounds::Kept(_) => self.engine.subtree(tops),
        };
        let new = below
            .into_iter()
            .filter(|process| !known.contains(process) && !running.spared.contains_key(process))
            .filter(|process| running.out_of_reach(self.engine, *process).is_none());
        let mut chosen = self.engine.choose(new, running.action.grounds);
        if !running.by_person() {
            chosen.targets.truncate(self.room_for_kills());
        }
        if chosen.targets.is_empty() {
            return false;
        }
        let Some(running) = self.engine.acts.running.get_mut(&id) else { return false };
        running.rounds += 1;
        running.action.targets.extend(chosen.targets);
        running.spared.extend(chosen.spared);
        let blow = running.action.first_blow();
        self.look(id, blow);
        true
    }

    /// The host's memory was read.
    pub(in crate::engine) fn act_host(&mut self) {
        let (now, host) = (self.now, self.engine.close_watch.host);
        // The kernel tells of an exit before, or while, it takes the memory back.
        let is_back =
            |running: &Running| host.available.0 >= running.action.available.0.saturating_add(running.freed().0 / 2);
        let counting = |running: &&Running| match running.stage {
            Stage::Counting { since } => is_back(running) || now.since(since) >= COUNTING,
            _ => false,
        };
        let ready: Vec<ActionId> =
            self.engine.acts.running.values().filter(counting).map(|running| running.action.id).collect();
        ready.into_iter().for_each(|id| self.counted(id));
    }

    fn counted(&mut self, id: ActionId) {
        let Some(running) = self.engine.acts.running.get(&id) else { return };
        let ended = running.targets().filter(|target| running.died.contains_key(&target.process)).count();
        let result = format!(
            "{} ended after {}, {} freed",
            count(ended as u64, "process", "processes"),
            seconds(self.now.since(running.action.began).as_secs_f64()),
            size(running.freed().0)
        );
        self.finish(id, ActionState::Done, result);
    }

    pub(in crate::engine) fn tick_actions(&mut self) {
        self.tick_awake();
        let (now, kill_after) = (self.now, self.engine.config.actions.kill_after);
        let ids: Vec<ActionId> = self.engine.acts.running.keys().copied().collect();
        for id in ids {
            let Some(running) = self.engine.acts.running.get_mut(&id) else { continue };
            match &mut running.stage {
                Stage::Looking { since, waiting, .. } if now.since(*since) >= LOOK_PATIENCE => {
                    let unseen = std::mem::take(waiting);
                    self.spare_unseen(id, &unseen);
                    self.looked(id);
                }
                Stage::Ending { since } if now.since(*since) >= kill_after => self.look(id, Blow::Kill),
                Stage::Killing { since } if now.since(*since) >= DYING => {
                    let left = running.living().count();
                    let result = format!("{left} of {} still there after SIGKILL", running.targets().count());
                    self.finish(id, ActionState::Incomplete, result);
                }
                Stage::Counting { since } if now.since(*since) >= COUNTING => self.counted(id),
                Stage::Counting { .. } => self.effect(Effect::LookAtHost),
                Stage::Holding { .. } => self.tick_held(id),
                Stage::Looking { .. }
                | Stage::Ending { .. }
                | Stage::Killing { .. }
                | Stage::Releasing
                | Stage::Over { .. } => {}
            }
        }
        self.tick_policy();
        self.tick_emergency();
    }

    /// Lets go of targets that could not be looked at, or that may be a part of what could not.
    fn spare_unseen(&mut self, id: ActionId, unseen: &BTreeSet<ProcessId>) {
        let table = &self.engine.table;
        let Some(running) = self.engine.acts.running.get_mut(&id) else { return };
        let around = |target| iter::once(target).chain(table.living_above(target).map(|above| above.id));
        let spared: Vec<ProcessId> =
            running.living().filter(|target| around(*target).any(|process| unseen.contains(&process))).collect();
        let because = "it could not be looked at in time, or what it runs below could not";
        running.spared.extend(spared.into_iter().map(|process| (process, because.into())));
    }

    /// Nothing more is done: the receipt.
    pub(super) fn finish(&mut self, id: ActionId, state: ActionState, result: String) {
        let (now, available) = (self.now, self.engine.close_watch.host.available);
        let Some(mut running) = self.engine.acts.running.remove(&id) else { return };
        running.stage = Stage::Over { at: now, state };
        running.available_after = Some(available);
        running.result = result;
        let emergency = matches!(running.action.by, Decided::Emergency);
        if !running.by_person() {
            self.leave_alone(&running, state);
        }
        self.engine.acts.remember(running, now);
        if emergency {
            self.emergency_over(state);
        }
        self.effect(Effect::Receipt(id));
        self.effect(Effect::EndAction(id));
        self.taken(id);
        self.journal_action(id, "over");
    }

    /// Whoever outlived an action that did not come about is not tried at once again. Who was not reached at all is not one who
    /// was struck.
    fn leave_alone(&mut self, running: &Running, state: ActionState) {
        let pause = match state {
            ActionState::CalledOff => Some(AGAIN),
            ActionState::Incomplete => Some(AGAIN_AFTER_REFUSAL),
            ActionState::Planned | ActionState::Running | ActionState::Holding | ActionState::Done => None,
        };
        let living = running.action.targets.iter().map(|target| target.process);
        let living: Vec<ProcessId> = living.filter(|process| self.engine.table.alive(*process).is_some()).collect();
        for process in living {
            let acts = &mut self.engine.acts;
            acts.rests.extend(pause.map(|pause| (process, self.now.plus(pause))));
            if !running.dealt.contains_key(&process) || running.was_refused(process) {
                acts.struck.remove(&process);
            }
        }
    }

    /// Has the finding say what was done about it.
    pub(super) fn taken(&mut self, id: ActionId) {
        let Some(running) = self.engine.acts.get(id) else { return };
        let Some(finding) = running.about else { return };
        let what = running.action.kind.name();
        let taken = if running.result.is_empty() {
            format!("{what} (action {id})")
        } else {
            format!("{what} (action {id}): {}", running.result)
        };
        self.engine.findings.acted(finding, taken);
    }

    fn journal_action(&mut self, id: ActionId, change: &str) {
        let Some(running) = self.engine.acts.get(id) else { return };
        let Action { kind, session, ref reason, ref targets, .. } = running.action;
        let summary = if running.result.is_empty() { reason.clone() } else { running.result.clone() };
        let process = targets.first().map(|target| target.process);
        let what = Happening::Action { action: id, kind, change: change.to_owned(), summary };
        self.effect(Effect::Journal(JournalEntry { at: self.now, process, session, what }));
    }
}
