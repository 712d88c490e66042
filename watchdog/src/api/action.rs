//! `POST /v1/reap`, `POST /v1/end`, `POST /v1/thaw` and `GET /v1/actions`: what is done to processes, and the receipts.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{FindingKind, ProcessKind, Subject};

/// The body of `POST /v1/reap`: end what was left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReapRequest {
    /// Whose orphans: of a session, or of these processes only. Empty for every open orphan finding.
    pub subjects: Vec<Subject>,
    /// Say what would be done, and do nothing.
    pub dry_run: bool,
    /// Whom the asker was shown: nobody else is ended. Null for whoever is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<Vec<Shown>>,
}

/// The body of `POST /v1/end`: end a whole session, or a process that is meant to stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndRequest {
    /// Which.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub session: Option<u64>,
    /// A process, which ends with what it started; instead of a session, and only with `kept`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pid: Option<u32>,
    /// What is meant to stay ends too.
    #[serde(default)]
    pub kept: bool,
    /// Say what would be done, and do nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Whom the asker was shown: nobody else is ended. Null for whoever is there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expect: Option<Vec<Shown>>,
}

/// A process that somebody was shown. A pid alone may be another's by the time that is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shown {
    /// Its pid.
    pub pid: u32,
    /// Its start, field 22 of /proc/PID/stat.
    pub start_time: u64,
}

/// The body of `POST /v1/thaw`: let go of what was frozen or throttled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ThawRequest {
    /// Whose: of a session, or of these processes. Empty for all.
    pub subjects: Vec<Subject>,
}

/// The answer to a request to act.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// Nothing was begun.
    pub dry_run: bool,
    /// What is done, or would be, group by group.
    pub actions: Vec<Receipt>,
    /// What belongs there and is left alone.
    pub spared: Vec<Spared>,
    /// What all targets hold, in bytes.
    pub memory_bytes: u64,
    /// How long a process has to end after SIGTERM before it gets SIGKILL.
    pub kill_after_seconds: f64,
}

/// A process that is left alone, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spared {
    /// Its pid.
    pub pid: u32,
    /// Its start, field 22 of /proc/PID/stat.
    pub start_time: u64,
    /// What it runs, in a word.
    pub name: String,
    /// Why.
    pub because: String,
    /// Because the asker, or the user of the session whose rights policy has, may not signal it.
    #[serde(default)]
    pub not_permitted: bool,
}

/// The answer to `GET /v1/actions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Actions {
    /// Those under way and the last of those that are over, the oldest first.
    pub actions: Vec<Receipt>,
}

/// What is done to a group of processes, why, and what came of it: written down before it begins, and when it is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// Counted up over all runs of the daemon, never used again; 0 for what was only planned.
    pub id: u64,
    /// What is done.
    pub action: ActionKind,
    /// How far it is.
    pub state: ActionState,
    /// Who decided it.
    pub by: DecidedBy,
    /// The user who asked for it; null when nobody did.
    pub asked_by_uid: Option<u32>,
    /// The finding that it follows from, if it does, by its number in the run of the daemon that began it.
    pub finding: Option<u64>,
    /// That finding's kind.
    pub finding_kind: Option<FindingKind>,
    /// The session that it concerns, by its number in that run.
    pub session: Option<u64>,
    /// Why, in one sentence.
    pub reason: String,
    /// The numbers behind it.
    pub evidence: Map<String, Value>,
    /// When it began, RFC 3339.
    pub began_at: String,
    /// When it was over, RFC 3339; null until then.
    pub ended_at: Option<String>,
    /// What its targets held when it began, in bytes.
    pub memory_bytes: u64,
    /// What those of them that are gone had held, in bytes.
    pub freed_bytes: u64,
    /// MemAvailable of the host when it began.
    pub available_before_bytes: u64,
    /// MemAvailable once it was over; null until then.
    pub available_after_bytes: Option<u64>,
    /// To whom, those that were signalled first before the others.
    pub targets: Vec<ActionTarget>,
    /// Whom it was called off for, and why.
    pub spared: Vec<Spared>,
    /// What came of it, in one sentence; empty until it is over.
    pub result: String,
}

/// A target of an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionTarget {
    /// Its pid.
    pub pid: u32,
    /// Its start, field 22 of /proc/PID/stat.
    pub start_time: u64,
    /// The pid of who forked it, where that is known.
    pub parent_pid: Option<u32>,
    /// What it is to its agent.
    pub kind: ProcessKind,
    /// What it runs, in a word; never an argument.
    pub name: String,
    /// Its user.
    pub uid: u32,
    /// What it held when the action began, in bytes.
    pub memory_bytes: u64,
    /// What was sent to it, in order.
    pub sent: Vec<Sent>,
    /// When it exited, RFC 3339; null while it has not.
    pub died_at: Option<String>,
}

/// Something that was done to a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// When, RFC 3339.
    pub at: String,
    /// `TERM`, `KILL`, `STOP`, `CONT`, or what was written: `cgroup.kill`, `cgroup.freeze`, `memory.high`.
    pub what: String,
    /// `sent`; `gone` (it was dead, or its pid another's); or why it was not done.
    pub answer: String,
}

/// What is done to processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionKind {
    /// They are ended: SIGTERM, a grace, SIGKILL.
    Terminate,
    /// Their session's memory.high is lowered to what it holds.
    Throttle,
    /// They are stopped, until they are let go.
    Freeze,
}

/// How far an action is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionState {
    /// Nothing was begun: a dry run.
    Planned,
    /// It is under way.
    Running,
    /// What it froze or throttled is held.
    Holding,
    /// All was done.
    Done,
    /// It is over, and not all came out as it should: the targets tell.
    Incomplete,
    /// Nothing was done in the end: no target was to be touched any more.
    CalledOff,
}

/// Who decided on an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// A person, through the control API.
    Person,
    /// The configuration: `[actions]`.
    Policy,
    /// The configuration, because memory was about to run out.
    Emergency,
}

impl ActionKind {
    /// Every kind, as the metrics list them.
    pub const ALL: [Self; 3] = [Self::Terminate, Self::Throttle, Self::Freeze];

    /// The name in JSON, metrics and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Terminate => "terminate",
            Self::Throttle => "throttle",
            Self::Freeze => "freeze",
        }
    }
}

impl ActionState {
    /// What comes of actions, as the metrics list it.
    pub const OUTCOMES: [Self; 4] = [Self::Holding, Self::Done, Self::Incomplete, Self::CalledOff];

    /// The name in JSON, metrics and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Running => "running",
            Self::Holding => "holding",
            Self::Done => "done",
            Self::Incomplete => "incomplete",
            Self::CalledOff => "called_off",
        }
    }

    /// Nothing more comes of it.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Incomplete | Self::CalledOff)
    }
}

impl DecidedBy {
    /// The name in JSON and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Policy => "policy",
            Self::Emergency => "emergency",
        }
    }
}
