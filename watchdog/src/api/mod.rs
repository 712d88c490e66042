//! The types of the control API, used by both binaries. Their JSON is a contract: fields may be added, never renamed.
//!
//! Bytes are integers, moments are RFC 3339 strings, spans are seconds as numbers.

mod action;
mod death;
mod event;
mod finding;
mod gate;
mod history;
mod status;
mod tree;

pub use action::{
    ActionKind, ActionState, ActionTarget, Actions, DecidedBy, EndRequest, Planned, ReapRequest, Receipt, Sent, Shown,
    Spared, ThawRequest,
};
pub use death::{
    Cause, Certainty, Companion, Death, DeathFacts, Explanation, HeapLimit, Holder, HostThen, Large, MemoryThen,
    OomKill, OomScope, Relation, Sender, SessionBrief,
};
pub use event::{Event, Events};
pub use finding::{Finding, FindingKind, Findings, Severity};
pub use gate::{
    Breaker, Cancel, Cancelled, Grant, LaunchRequest, LaunchUpdate, Lease, Occupant, ProfileBounds, Queue,
    RefusalReason, Refused, RefusedLaunch, Room, SessionLimits, SubagentAnswer, SubagentCall, SubagentEvent, Waiter,
    Waiting,
};
pub use history::{
    ActionRecord, End, FindingRecord, Growth, HostRecord, HostTrend, OomRecord, Past, Postmortem, ProcessMemory,
    Record, Repeats, SessionMemory, SessionStart, SessionSummary,
};
pub use status::{Capability, Counts, HistoryState, Host, SetAside, Status, Tracking};
pub use tree::{Process, ProcessKind, ProcessState, Session, SessionState, Tree};

use serde::{Deserialize, Serialize};

/// The body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What went wrong, in one sentence, with the next step.
    pub error: String,
    /// The daemon is starting: the same request will be answered in a moment.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starting: bool,
}

/// A process or a session, as somebody names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The process that has this pid now.
    Pid(u32),
    /// Every living process of this session.
    Session(u64),
}

/// The body of `POST /v1/adopt`: a [`Subject`], or what was said of one is taken back. A word that is not known is refused:
/// `undo` written wrong would do the opposite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdoptRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<u64>,
    /// It is not meant to stay any more.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub undo: bool,
}

impl AdoptRequest {
    /// A request about this subject.
    #[must_use]
    pub const fn new(subject: Subject, undo: bool) -> Self {
        match subject {
            Subject::Pid(pid) => Self { pid: Some(pid), session: None, undo },
            Subject::Session(session) => Self { pid: None, session: Some(session), undo },
        }
    }

    /// Whom it is about; `None` when it names nobody, or two.
    #[must_use]
    pub const fn subject(&self) -> Option<Subject> {
        match *self {
            Self { pid: Some(pid), session: None, .. } => Some(Subject::Pid(pid)),
            Self { pid: None, session: Some(session), .. } => Some(Subject::Session(session)),
            Self { .. } => None,
        }
    }
}

/// What an adoption did, or its undoing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopted {
    /// The processes that are now marked as intended, or are no more.
    pub pids: Vec<u32>,
}
