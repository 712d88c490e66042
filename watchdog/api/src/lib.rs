//! The types of the control API, used by both binaries. Their JSON is a contract: fields may be added, never renamed.
//!
//! Bytes are integers, times are RFC 3339 strings, durations are seconds as numbers.

#![warn(missing_docs)]

mod action;
#[cfg(feature = "client")]
pub mod client;
mod config;
mod death;
mod event;
#[expect(
    missing_docs,
    reason = "the names of fields are those of the JSON; a comment stands where the name does not say it all"
)]
pub mod evidence;
mod explanation;
mod finding;
mod fleet;
mod gate;
mod history;
mod oom;
mod overview;
mod queue;
mod reclaim;
mod sender;
mod status;
mod subagent;
mod tree;
mod user_agents;

pub use action::{
    ActionKind, ActionState, ActionTarget, Actions, DecidedBy, EndRequest, Planned, ReapRequest, Receipt, Sent, Shown,
    Spared, ThawRequest,
};
pub use config::ConfigInForce;
pub use death::{
    Cause, Companion, Death, DeathFacts, DeathSeries, HeapLimit, HostThen, KernelReason, LeftRunning, LimitNear,
    MemoryThen, PressureThen,
};
pub use event::{DeniedAttempt, Event, EventDetail, Events, OtherEvent};
pub use evidence::Evidence;
pub use explanation::{Explanation, SessionBrief};
pub use finding::{Finding, FindingKind, Findings, Severity};
pub use fleet::{Fleet, FleetHost, FleetPool, HostChoice, HostState, PlaceRequest, StoreState};
pub use gate::{
    ConnectionRefused, Grant, LaunchRequest, LaunchUpdate, Occupant, RefusalReason, Refused, SessionLimits, Waiting,
};
pub use history::{
    ActionRecord, DeathNotice, End, FindingRecord, Growth, HostRecord, HostTrend, OomRecord, Past, Postmortem,
    ProcessMemory, Record, Repeats, SessionMemory, SessionStart, SessionSummary,
};
pub use oom::{Certainty, Holder, Large, MemoryHolders, OomKill, OomScope};
pub use overview::Overview;
pub use queue::{Breaker, Cancel, Cancelled, Headroom, Lease, ProfileBounds, Queue, RefusedLaunch, Waiter};
pub use reclaim::{ReclaimExemption, ReclaimRequest, ReclaimRun, ReclaimRunState, ReclaimTrigger, Reclaims};
pub use sender::{KillerRole, Relation, Sender};
pub use status::{
    Capability, ConfigStatus, Counts, FleetStatus, HistoryState, Host, ReclaimStatus, SetAside, Status, Tracking,
};
pub use subagent::{SubagentAnswer, SubagentCall, SubagentEvent};
pub use tree::{Process, ProcessKind, ProcessState, Session, SessionState, Tree};
pub use user_agents::{PROTECTED_SCORE, SharedAncestor, UserAgents};

use serde::{Deserialize, Serialize};

/// The body of every response that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Problem {
    /// The error, with the next step.
    pub error: String,
    /// The daemon is starting: retry the request in a moment. Left out otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starting: bool,
}

/// A process or a session of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The process that has this pid at the time of the request.
    Pid(u32),
    /// All live processes of this session.
    Session(u64),
}

/// The body of `POST /v1/adopt`: a [`Subject`], with `undo` to remove its mark. Unknown members are refused, because a
/// misspelt `undo` would do the opposite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schemars(extend("oneOf" = [{ "required": ["session"] }, { "required": ["pid"] }])))]
pub struct AdoptRequest {
    /// The process that has this pid now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// Every living process of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<u64>,
    /// Remove the mark.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub undo: bool,
}

impl AdoptRequest {
    /// A request for this subject.
    #[must_use]
    pub const fn new(subject: Subject, undo: bool) -> Self {
        match subject {
            Subject::Pid(pid) => Self { pid: Some(pid), session: None, undo },
            Subject::Session(session) => Self { pid: None, session: Some(session), undo },
        }
    }

    /// `None` if it names no subject, or two.
    #[must_use]
    pub const fn subject(&self) -> Option<Subject> {
        match *self {
            Self { pid: Some(pid), session: None, .. } => Some(Subject::Pid(pid)),
            Self { pid: None, session: Some(session), .. } => Some(Subject::Session(session)),
            Self { .. } => None,
        }
    }
}

/// Removes a member from a schema's required ones: records of older daemons lack it.
#[cfg(feature = "openapi")]
fn optional(member: &'static str) -> impl FnMut(&mut schemars::Schema) {
    move |schema| {
        if let Some(serde_json::Value::Array(required)) = schema.get_mut("required") {
            required.retain(|name| name != member);
        }
    }
}

/// The result of an adoption, or of its removal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Adopted {
    /// The processes whose mark changed.
    pub pids: Vec<u32>,
}
