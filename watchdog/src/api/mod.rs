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
    ActionKind, ActionState, ActionTarget, Actions, DecidedBy, EndRequest, Planned, ReapRequest, Receipt, Sent, Spared,
    ThawRequest,
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
    Record, SessionMemory, SessionStart, SessionSummary,
};
pub use status::{Capability, Counts, HistoryState, Host, Status, Tracking};
pub use tree::{Process, ProcessKind, ProcessState, Session, SessionState, Tree};

use serde::{Deserialize, Serialize};

/// The body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What went wrong, in one sentence, with the next step.
    pub error: String,
}

/// The body of a request to adopt a process or a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The process that has this pid now.
    Pid(u32),
    /// Every living process of this session.
    Session(u64),
}

/// What an adoption did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopted {
    /// The processes that are now marked as intended.
    pub pids: Vec<u32>,
}
