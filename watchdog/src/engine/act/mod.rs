//! Acting: who is ended, frozen or throttled, by whose decision, and what became of it.
//!
//! Whoever decides ([`ask`] for a person, [`policy`] for the configuration, [`emergency`] when memory runs out) names
//! candidates. One rule, [`spare`], says of each whether it may be touched, and it is asked again after a fresh look at /proc and
//! before every signal. [`run`] then takes the action through its stages; everything is written down before it is done.

mod ask;
mod authority;
mod awake;
mod choose;
mod emergency;
mod held;
mod policy;
mod resume;
mod run;
mod running;
mod show;
mod spare;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::ask::{Ask, AskError, What};
pub use self::authority::{Authority, SpareReason, UserIds};
use self::awake::Awake;
use self::emergency::Emergency;
pub use self::running::Plan;
use self::running::{Running, Stage};
use super::id::{ActionId, BootTime, Bytes, FindingId, ProcessId, SessionId, Uid};
use crate::api::{ActionKind, FindingKind, ProcessKind};

/// Actions that are over and still shown, whatever their age.
const REMEMBERED: usize = 100;
/// An action that is over is shown at least this long: a client that waits for many asks for each receipt in turn.
const SHOWN_FOR: Duration = Duration::from_secs(60);
/// Actions that are over and shown at most, 1 KiB each.
const REMEMBERED_AT_MOST: usize = 10_000;

/// What was decided, whole: it is written down before anything is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// Its number.
    pub id: ActionId,
    /// What is done.
    pub kind: ActionKind,
    /// Who decided it.
    pub by: Decided,
    /// On what grounds.
    pub grounds: Grounds,
    /// SIGKILL is sent at once: there is no time for a grace.
    pub urgent: bool,
    /// The finding that it follows from.
    pub finding: Option<(FindingId, FindingKind)>,
    /// The session that it concerns.
    pub session: Option<SessionId>,
    /// Whose processes these are, as far as they are one user's: who may see the receipt beside root.
    pub owner: Uid,
    /// The user of that session, whose rights policy has; `None` where the session is not known.
    #[serde(default)]
    pub user: Option<Uid>,
    /// Why, in one sentence.
    pub reason: String,
    /// The numbers behind it.
    pub evidence: Map<String, Value>,
    /// To whom; those that are signalled first stand first.
    pub targets: Vec<Target>,
    /// The cgroup that is frozen or throttled, or that may be killed as a whole if it holds the targets and nobody else.
    pub cgroup: Option<String>,
    /// When it was decided.
    pub began: BootTime,
    /// MemAvailable then.
    pub available: Bytes,
}

impl Action {
    /// What is dealt to the targets first.
    fn first_blow(&self) -> Blow {
        match self.kind {
            ActionKind::Terminate if self.urgent => Blow::Kill,
            ActionKind::Terminate => Blow::Term,
            ActionKind::Freeze => Blow::Freeze,
            ActionKind::Throttle => Blow::Throttle,
        }
    }
}

/// Who decided on an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decided {
    /// This user.
    Person(Uid),
    /// The configuration, about a finding.
    Policy,
    /// The configuration, because memory was about to run out.
    Emergency,
}

/// A target as it was when the action was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Who.
    pub process: ProcessId,
    /// Who forked it.
    pub parent: Option<ProcessId>,
    /// What it is to its agent.
    pub kind: ProcessKind,
    /// What it runs, in a word.
    pub name: String,
    /// Its user.
    pub uid: Uid,
    /// What it held.
    pub memory: Bytes,
}

/// On what grounds somebody is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grounds {
    /// It was left behind: its nearest agent is dead.
    LeftBehind,
    /// It is a helper of a living agent, and what is wrong with it is a finding, or memory runs out.
    Helper,
    /// A person ends the whole session that it is in.
    WholeSession(SessionId),
    /// A person ends it in a session, although it may be meant to stay.
    Kept(SessionId),
}

/// Something that is done to a process or to a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Blow {
    /// SIGTERM.
    Term,
    /// SIGKILL, and then its memory is taken from it at once: process_mrelease(2).
    Kill,
    /// It is stopped: SIGSTOP, or the cgroup's freezer.
    Freeze,
    /// It goes on: SIGCONT, or the cgroup's freezer.
    Thaw,
    /// The cgroup's memory.high is lowered to what it holds.
    Throttle,
    /// The cgroup's memory.high is what it was made with.
    Loosen,
}

/// One order to the hand that acts: what, and to whom, in this order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wave {
    /// Of which action.
    pub action: ActionId,
    /// What.
    pub blow: Blow,
    /// To whom.
    pub targets: Vec<ProcessId>,
    /// With whose power. What was frozen or throttled is released whoever the processes belong to by now.
    pub authority: Authority,
    /// The cgroup to do it through: for [`Blow::Throttle`] and [`Blow::Loosen`] always; for others only if it holds exactly the
    /// targets.
    pub cgroup: Option<String>,
}

/// What became of a wave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Struck {
    /// Of which action.
    pub action: ActionId,
    /// What was done.
    pub blow: Blow,
    /// When.
    pub at: BootTime,
    /// To whom, and the answer.
    pub answers: Vec<(ProcessId, Answer)>,
}

/// What became of a blow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It was dealt.
    Sent,
    /// It was dealt to the whole cgroup at once.
    SentToCgroup,
    /// It was dead, or its pid was another's: nothing was done.
    Gone,
    /// Nothing was done, and this is why.
    Refused(String),
    /// Nothing was done, because the process is out of the action's reach.
    NotPermitted(String),
}

/// A line of what a daemon has to know that was killed in the middle of an action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ActionRecord {
    /// Numbers up to this one were given.
    Count(ActionId),
    /// An action is decided. Nothing was done yet.
    Begun(Box<Action>),
    /// This is about to be dealt to this process.
    Striking {
        /// Of which action.
        action: ActionId,
        /// What.
        blow: Blow,
        /// To whom.
        process: ProcessId,
        /// When.
        at: BootTime,
    },
    /// That was done, and this came of it.
    Struck {
        /// Of which action.
        action: ActionId,
        /// What.
        blow: Blow,
        /// To whom.
        process: ProcessId,
        /// The answer.
        answer: Answer,
    },
    /// Nothing more is done.
    Over(ActionId),
}

impl ActionRecord {
    /// The action that it is about, or up to which numbers were given.
    #[must_use]
    pub fn action(&self) -> ActionId {
        match self {
            Self::Count(action) | Self::Over(action) => *action,
            Self::Begun(action) => action.id,
            Self::Striking { action, .. } | Self::Struck { action, .. } => *action,
        }
    }
}

/// What the daemon may do, and to whom never. Told once, at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// Why it may not signal others' processes; `None` when it may.
    pub missing: Option<String>,
    /// The daemon itself, and all that stands above it.
    pub guarded: BTreeSet<ProcessId>,
}

/// What the engine knows of actions.
#[derive(Debug, Default)]
pub(super) struct Actions {
    last: ActionId,
    running: BTreeMap<ActionId, Running>,
    over: VecDeque<Running>,
    /// Whom policy has ended already, as far as they live: nobody is ended twice.
    struck: BTreeSet<ProcessId>,
    /// Whom policy tried to touch in vain, and until when it does not try again.
    rests: BTreeMap<ProcessId, BootTime>,
    /// Findings of which a person let go what policy held: it is not taken again.
    freed: BTreeSet<FindingId>,
    /// When policy ended whom, within the last minute.
    kills: VecDeque<BootTime>,
    /// When the rate bound last held policy back.
    held_back: Option<BootTime>,
    emergency: Emergency,
    awake: Awake,
    pub(super) rights: Rights,
    /// An earlier run's, until the first scan shows who of their targets is there.
    resumed: Vec<ActionRecord>,
}

impl Actions {
    /// What was decided, for whoever checks it.
    #[cfg(test)]
    pub(super) fn action(&self, id: ActionId) -> Option<&Action> {
        self.get(id).map(|running| &running.action)
    }

    /// The last id that was given.
    pub(super) fn last(&self) -> ActionId {
        self.last
    }

    /// No id up to this one is given any more.
    pub(super) fn raise(&mut self, last: ActionId) {
        self.last = self.last.max(last);
    }

    /// An action, under way or over.
    fn get(&self, id: ActionId) -> Option<&Running> {
        self.running.get(&id).or_else(|| self.over.iter().rev().find(|running| running.action.id == id))
    }

    /// Policy leaves this process alone: it was struck, or could not be a moment ago.
    fn is_done_with(&self, process: ProcessId) -> bool {
        self.struck.contains(&process) || self.rests.contains_key(&process)
    }

    /// Remembers an action that is over, and forgets old ones.
    fn remember(&mut self, running: Running, now: BootTime) {
        while self.over.len() >= REMEMBERED
            && self.over.front().is_some_and(|oldest| {
                let is_recent = matches!(oldest.stage, Stage::Over { at, .. } if now.since(at) < SHOWN_FOR);
                !is_recent || self.over.len() >= REMEMBERED_AT_MOST
            })
        {
            self.over.pop_front();
        }
        self.over.push_back(running);
    }

    /// The action that is ending this process.
    fn ending(&self, process: ProcessId) -> Option<ActionId> {
        let ends = |running: &&Running| {
            running.moves() && running.action.kind == ActionKind::Terminate && running.living().any(|it| it == process)
        };
        self.running.values().find(ends).map(|running| running.action.id)
    }

    /// An action is in such a state that ticks should come soon.
    pub(super) fn pending(&self) -> bool {
        self.running.values().any(Running::moves)
    }
}
