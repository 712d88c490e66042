//! What an action is made of while it is on its way.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::choose::Chosen;
use super::{Action, Answer, Blow, Decided, Grounds, SpareReason, Target};
use crate::api::{ActionKind, ActionState, FindingKind};
use crate::engine::Engine;
use crate::engine::id::{BootTime, Bytes, FindingId, ProcessId, SessionId, Uid};

/// Something that could be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What.
    pub kind: ActionKind,
    /// On what grounds.
    pub grounds: Grounds,
    /// The finding that it follows from.
    pub finding: Option<(FindingId, FindingKind)>,
    /// The session that it concerns.
    pub session: Option<SessionId>,
    /// Whose that is.
    pub owner: Uid,
    /// Why, in one sentence.
    pub reason: String,
    /// The numbers behind it.
    pub evidence: Map<String, Value>,
    /// To whom, and to whom not.
    pub chosen: Chosen,
    /// The session's own cgroup, if it has one.
    pub cgroup: Option<String>,
}

/// A blow that was dealt.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Dealt {
    pub(super) at: BootTime,
    pub(super) blow: Blow,
    pub(super) answer: Answer,
}

impl Dealt {
    pub(super) fn refused(&self) -> Option<&str> {
        match &self.answer {
            Answer::Refused(why) | Answer::NotPermitted(why) => Some(why),
            Answer::Sent | Answer::SentToCgroup | Answer::Gone => None,
        }
    }
}

/// An action that was begun.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) action: Action,
    /// The finding that it follows from, by its number in this run of the daemon; another run's numbers are others'.
    pub(super) about: Option<FindingId>,
    pub(super) stage: Stage,
    /// What was done to whom.
    pub(super) dealt: BTreeMap<ProcessId, Vec<Dealt>>,
    pub(super) died: BTreeMap<ProcessId, BootTime>,
    /// Who is left alone after all, and why.
    pub(super) spared: BTreeMap<ProcessId, SpareReason>,
    /// Waves to which the answer is still to come.
    pub(super) unanswered: u32,
    pub(super) rounds: u32,
    pub(super) available_after: Option<Bytes>,
    /// When it could last not be let go, and why it is to be.
    pub(super) stuck: Option<(BootTime, String)>,
    pub(super) result: String,
}

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The targets are looked at once more, and what stands around them, before this is dealt.
    Looking { since: BootTime, waiting: BTreeSet<ProcessId>, blow: Blow },
    /// They were told to end.
    Ending { since: BootTime },
    /// Those that did not were killed.
    Killing { since: BootTime },
    /// All are gone: their memory is waited for.
    Counting { since: BootTime },
    /// They are frozen or throttled.
    Holding { since: BootTime },
    /// They are being let go.
    Releasing,
    /// Nothing more is done.
    Over { at: BootTime, state: ActionState },
}

impl Running {
    pub(super) fn new(action: Action, stage: Stage) -> Self {
        Self {
            about: action.finding.map(|(finding, _)| finding),
            action,
            stage,
            dealt: BTreeMap::new(),
            died: BTreeMap::new(),
            spared: BTreeMap::new(),
            unanswered: 0,
            rounds: 0,
            available_after: None,
            stuck: None,
            result: String::new(),
        }
    }

    /// A process was looked at, or needs no look any more. Whether it was the last that was waited for.
    pub(super) fn looked_at(&mut self, process: ProcessId) -> bool {
        let Stage::Looking { waiting, .. } = &mut self.stage else { return false };
        waiting.remove(&process) && waiting.is_empty()
    }

    /// Something is to happen to it soon.
    pub(super) fn moves(&self) -> bool {
        !matches!(self.stage, Stage::Holding { .. } | Stage::Over { .. })
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self.stage, Stage::Holding { .. })
    }

    /// A person decided it, and not the configuration.
    pub(super) fn by_person(&self) -> bool {
        matches!(self.action.by, Decided::Person(_))
    }

    /// Why the power of this action does not reach a process; `None` when it does. The process may have changed its user.
    pub(super) fn out_of_reach(&self, engine: &Engine, process: ProcessId) -> Option<SpareReason> {
        let known = engine.table.get(process)?;
        match (self.action.by, known.user_ids) {
            (_, Some(ids)) => self.action.authority().refusal(process.pid, ids).map(SpareReason::NotPermitted),
            (Decided::Person(uid), None) => (!engine.is_of(process, uid)).then_some(SpareReason::OtherUser),
            (Decided::Policy | Decided::Emergency, None) => None,
        }
    }

    /// Those who are still to be touched, dead or alive.
    pub(super) fn targets(&self) -> impl Iterator<Item = &Target> {
        self.action.targets.iter().filter(|target| !self.spared.contains_key(&target.process))
    }

    /// Those of them who live.
    pub(super) fn living(&self) -> impl Iterator<Item = ProcessId> {
        self.targets().map(|target| target.process).filter(|process| !self.died.contains_key(process))
    }

    /// Whether this was dealt to the process, as far as anybody knows.
    pub(super) fn was_dealt(&self, process: ProcessId, blow: Blow) -> bool {
        let done =
            |dealt: &Dealt| dealt.blow == blow && !matches!(dealt.answer, Answer::Refused(_) | Answer::NotPermitted(_));
        self.dealt.get(&process).is_some_and(|all| all.iter().any(done))
    }

    /// Whether something was to be dealt to the process, and nothing was.
    pub(super) fn was_refused(&self, process: ProcessId) -> bool {
        self.dealt.get(&process).is_some_and(|all| all.iter().all(|dealt| dealt.refused().is_some()))
    }

    /// What those held that are gone.
    pub(super) fn freed(&self) -> Bytes {
        self.targets().filter(|target| self.died.contains_key(&target.process)).map(|target| target.memory).sum()
    }

    /// Why nothing at all could be done.
    pub(super) fn refused(&self) -> Option<&str> {
        let all: Vec<&Dealt> = self.dealt.values().flatten().collect();
        // Why the first one was; where all were, the reason is one.
        all.iter().all(|dealt| dealt.refused().is_some()).then(|| all.first()?.refused()).flatten()
    }
}
