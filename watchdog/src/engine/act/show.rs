//! Actions as they are shown: receipts.

use std::time::Duration;

use super::running::{Plan, Running, Stage};
use super::{Answer, Blow, Decided, SpareReason, Target};
use crate::api::{ActionKind, ActionState, ActionTarget, Actions, DecidedBy, Receipt, Sent, Spared};
use crate::engine::Engine;
use crate::engine::id::{ActionId, BootTime, ProcessId, SessionId, Uid};
use crate::engine::process::Process;
use crate::engine::view::{Naming, Viewer};

impl Engine {
    /// `GET /v1/actions`
    #[must_use]
    pub fn actions(&self, viewer: Viewer, naming: &Naming<'_>) -> Actions {
        Actions { actions: self.actions_that(viewer, naming, |_| true) }
    }

    /// The receipts of whatever concerned this process, the latest first.
    #[must_use]
    pub fn actions_on(&self, viewer: Viewer, naming: &Naming<'_>, process: ProcessId) -> Vec<Receipt> {
        let mut about = self.actions_that(viewer, naming, |running| {
            running.action.targets.iter().any(|target| target.process == process)
                || running.spared.contains_key(&process)
        });
        about.reverse();
        about
    }

    /// The receipts of what concerned this session, the latest first.
    #[must_use]
    pub fn actions_in(&self, viewer: Viewer, naming: &Naming<'_>, session: SessionId) -> Vec<Receipt> {
        let mut about = self.actions_that(viewer, naming, |running| running.action.session == Some(session));
        about.reverse();
        about
    }

    fn actions_that(&self, viewer: Viewer, naming: &Naming<'_>, wanted: impl Fn(&Running) -> bool) -> Vec<Receipt> {
        let all = self.acts.over.iter().chain(self.acts.running.values());
        let asked = |running: &Running| matches!(running.action.by, Decided::Person(uid) if viewer.sees(uid));
        let seen = all.filter(|running| viewer.sees(running.action.owner) || asked(running));
        let mut actions: Vec<Receipt> =
            seen.filter(|running| wanted(running)).map(|running| self.shown_action(running, naming)).collect();
        actions.sort_by_key(|receipt| receipt.id);
        actions
    }

    /// The last action in which something was sent to this process, before it died.
    pub(in crate::engine) fn action_that_ended(&self, process: ProcessId) -> Option<ActionId> {
        let all = self.acts.over.iter().chain(self.acts.running.values());
        let sent =
            all.filter(|running| running.action.kind == ActionKind::Terminate && running.dealt.contains_key(&process));
        sent.map(|running| running.action.id).max()
    }

    /// The receipt of an action, as far as it has come, and whose it is.
    #[must_use]
    pub fn receipt(&self, id: ActionId, naming: &Naming<'_>) -> Option<(Uid, Receipt)> {
        let running = self.acts.get(id)?;
        Some((running.action.owner, self.shown_action(running, naming)))
    }

    /// How long a process has to end after SIGTERM before it gets SIGKILL.
    #[must_use]
    pub fn kill_after(&self) -> Duration {
        self.config.actions.kill_after
    }

    /// What would be done.
    #[must_use]
    pub fn shown_plan(&self, now: BootTime, plan: &Plan, uid: Uid, naming: &Naming<'_>) -> Receipt {
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
            evidence: plan.evidence.clone(),
            began_at: naming.moment(now),
            ended_at: None,
            memory_bytes: plan.chosen.memory().0,
            freed_bytes: 0,
            available_before_bytes: self.close_watch.host.available.0,
            available_after_bytes: None,
            targets: plan.chosen.targets.iter().map(|target| shown_target(target, None, naming)).collect(),
            spared: self.shown_spared(plan.chosen.spared.iter().map(|(id, because)| (*id, because))),
            result: String::new(),
        }
    }

    fn shown_action(&self, running: &Running, naming: &Naming<'_>) -> Receipt {
        let action = &running.action;
        let (state, ended) = match running.stage {
            // Until it is known what came of it, nothing is held.
            Stage::Holding { .. } if running.unanswered == 0 => (ActionState::Holding, None),
            Stage::Over { at, state } => (state, Some(at)),
            Stage::Looking { .. }
            | Stage::Holding { .. }
            | Stage::Ending { .. }
            | Stage::Killing { .. }
            | Stage::Counting { .. }
            | Stage::Releasing => (ActionState::Running, None),
        };
        let (by, asked_by_uid) = match action.by {
            Decided::Person(uid) => (DecidedBy::Person, Some(uid.0)),
            Decided::Policy => (DecidedBy::Policy, None),
            Decided::Emergency => (DecidedBy::Emergency, None),
        };
        // Who was spared after something was done to him is told of as well.
        let is_told = |target: &&Target| {
            !running.spared.contains_key(&target.process) || running.dealt.contains_key(&target.process)
        };
        let told = || action.targets.iter().filter(is_told);
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
            evidence: action.evidence.clone(),
            began_at: naming.moment(action.began),
            ended_at: ended.map(|at| naming.moment(at)),
            memory_bytes: told().map(|target| target.memory.0).sum(),
            freed_bytes: running.freed().0,
            available_before_bytes: action.available.0,
            available_after_bytes: running.available_after.map(|bytes| bytes.0),
            targets: told().map(|target| shown_target(target, Some(running), naming)).collect(),
            spared: self.shown_spared(running.spared.iter().map(|(id, because)| (*id, because))),
            result: running.result.clone(),
        }
    }

    /// Processes that are left alone.
    #[must_use]
    pub(super) fn shown_spared<'a>(&self, spared: impl Iterator<Item = (ProcessId, &'a SpareReason)>) -> Vec<Spared> {
        spared
            .map(|(id, because)| Spared {
                pid: id.pid.0,
                start_time: id.start_time.0,
                // What another user runs is not the asker's to know.
                name: self
                    .table
                    .get(id)
                    .filter(|_| *because != SpareReason::OtherUser)
                    .map_or_else(String::new, Process::label),
                because: because.to_string(),
                not_permitted: !matches!(because, SpareReason::Rule(_)),
            })
            .collect()
    }
}

fn shown_target(target: &Target, running: Option<&Running>, naming: &Naming<'_>) -> ActionTarget {
    let dealt = running.and_then(|running| running.dealt.get(&target.process));
    let died = running.and_then(|running| running.died.get(&target.process));
    ActionTarget {
        pid: target.process.pid.0,
        start_time: target.process.start_time.0,
        parent_pid: target.parent.map(|parent| parent.pid.0),
        kind: target.kind,
        name: target.name.clone(),
        uid: target.uid.0,
        memory_bytes: target.memory.0,
        sent: dealt
            .into_iter()
            .flatten()
            .map(|dealt| Sent {
                at: naming.moment(dealt.at),
                what: blow_name(dealt.blow, &dealt.answer).to_owned(),
                answer: match &dealt.answer {
                    Answer::Sent | Answer::SentToCgroup => "sent".to_owned(),
                    Answer::Gone => "gone".to_owned(),
                    Answer::Refused(why) | Answer::NotPermitted(why) => why.clone(),
                },
            })
            .collect(),
        died_at: died.map(|at| naming.moment(*at)),
    }
}

fn blow_name(blow: Blow, answer: &Answer) -> &'static str {
    let whole = *answer == Answer::SentToCgroup;
    match blow {
        Blow::Term => "TERM",
        Blow::Kill if whole => "cgroup.kill",
        Blow::Kill => "KILL",
        Blow::Freeze | Blow::Thaw if whole => "cgroup.freeze",
        Blow::Freeze => "STOP",
        Blow::Thaw => "CONT",
        Blow::Throttle | Blow::Loosen => "memory.high",
    }
}
