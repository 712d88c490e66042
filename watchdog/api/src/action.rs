//! `POST /v1/reap`, `POST /v1/end`, `POST /v1/thaw` and `GET /v1/actions`: actions on processes, and their receipts.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{FindingKind, ProcessKind, Subject};

/// The body of `POST /v1/reap`: terminate orphans.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ReapRequest {
    /// Orphans of these sessions, or only these processes. Empty for every open orphan finding.
    pub subjects: Vec<Subject>,
    /// Plan only.
    pub dry_run: bool,
    /// The processes that the user was shown: no other is terminated. Null for no such limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<Vec<Shown>>,
}

/// The body of `POST /v1/end`: terminate a whole session, or a kept process. Exactly one of `session` and `pid`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schemars(extend("oneOf" = [{ "required": ["session"] }, { "required": ["pid"] }])))]
pub struct EndRequest {
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub session: Option<u64>,
    /// A process, terminated with its descendants; only with `kept`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pid: Option<u32>,
    /// Terminate kept processes too.
    #[serde(default)]
    pub kept: bool,
    /// Plan only.
    #[serde(default)]
    pub dry_run: bool,
    /// The processes that the user was shown: no other is terminated. Null for no such limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expect: Option<Vec<Shown>>,
}

/// A process that the user was shown. A pid alone may have been reused by the time of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Shown {
    /// The pid.
    pub pid: u32,
    /// Start time, field 22 of /proc/PID/stat.
    pub start_time: u64,
}

/// The body of `POST /v1/thaw`: resume frozen or throttled processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ThawRequest {
    /// Processes of these sessions, or these processes. Empty for all.
    pub subjects: Vec<Subject>,
}

/// The response to a request to act.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Planned {
    /// Nothing was started.
    pub dry_run: bool,
    /// The actions that were started, or would be; one for each group of processes.
    pub actions: Vec<Receipt>,
    /// Processes of the subjects that are exempt.
    pub spared: Vec<Spared>,
    /// Memory of all targets, in bytes.
    pub memory_bytes: u64,
    /// The time between SIGTERM and SIGKILL.
    #[cfg_attr(feature = "openapi", schemars(range(min = 0)))]
    pub kill_after_seconds: f64,
}

/// A process that is exempt, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "openapi", schemars(transform = super::optional("not_permitted")))]
pub struct Spared {
    /// The pid.
    pub pid: u32,
    /// Start time, field 22 of /proc/PID/stat.
    pub start_time: u64,
    /// The program or script; empty when it belongs to another user, or is no longer known.
    pub name: String,
    /// The reason.
    pub because: String,
    /// The client, or the user in whose name policy acts, may not signal it.
    #[serde(default)]
    pub not_permitted: bool,
}

/// The response to `GET /v1/actions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Actions {
    /// Running actions and the most recent completed ones, oldest first.
    pub actions: Vec<Receipt>,
}

/// An action on a group of processes: its reason, targets and outcome. Recorded before it starts, and when it ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Receipt {
    /// Never reused, over all runs of the daemon; 0 for a plan.
    pub id: u64,
    /// The type of action.
    pub action: ActionKind,
    /// The state of the action.
    pub state: ActionState,
    /// Its initiator: a user, policy or an emergency.
    pub by: DecidedBy,
    /// The user who requested it; null for policy.
    pub asked_by_uid: Option<u32>,
    /// The finding that caused it, by its id in the daemon run that started the action.
    pub finding: Option<u64>,
    /// The kind of that finding.
    pub finding_kind: Option<FindingKind>,
    /// The session, by its id in that run.
    pub session: Option<u64>,
    /// The reason, in one sentence.
    pub reason: String,
    /// The numbers behind the reason.
    pub evidence: Map<String, Value>,
    /// Start of the action, RFC 3339.
    pub began_at: String,
    /// End of the action, RFC 3339; null until then.
    pub ended_at: Option<String>,
    /// Memory of the targets at the start, in bytes.
    pub memory_bytes: u64,
    /// Memory that exited targets had, in bytes.
    pub freed_bytes: u64,
    /// MemAvailable of the host at the start.
    pub available_before_bytes: u64,
    /// MemAvailable at the end; null until then.
    pub available_after_bytes: Option<u64>,
    /// The targets, in the order of their signals.
    pub targets: Vec<ActionTarget>,
    /// Targets that were dropped, and why.
    pub spared: Vec<Spared>,
    /// The outcome, in one sentence; empty until the end.
    pub result: String,
}

/// A target of an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ActionTarget {
    /// The pid.
    pub pid: u32,
    /// Start time, field 22 of /proc/PID/stat.
    pub start_time: u64,
    /// The process that forked it, if known.
    pub parent_pid: Option<u32>,
    /// Its role for the agent.
    pub kind: ProcessKind,
    /// The program or script, without arguments.
    pub name: String,
    /// Its user.
    pub uid: u32,
    /// Its memory at the start of the action, in bytes.
    pub memory_bytes: u64,
    /// The operations on it, in order.
    pub sent: Vec<Sent>,
    /// Exit time, RFC 3339; null while it lives.
    pub died_at: Option<String>,
}

/// An operation on a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Sent {
    /// Time, RFC 3339.
    pub at: String,
    /// `TERM`, `KILL`, `STOP`, `CONT`, or the file that was written: `cgroup.kill`, `cgroup.freeze`, `memory.high`.
    pub what: String,
    /// `sent`; `gone` (the process had exited); or why it was not done.
    pub answer: String,
}

/// The type of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ActionKind {
    /// SIGTERM, then SIGKILL after a grace period.
    Terminate,
    /// The session's memory.high is lowered to its present memory.
    Throttle,
    /// The processes are stopped until they are resumed.
    Freeze,
}

/// The state of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ActionState {
    /// Only planned: a dry run.
    Planned,
    /// In progress.
    Running,
    /// The processes are frozen or throttled.
    Holding,
    /// Completed.
    Done,
    /// Ended without a complete result; the targets show the details.
    Incomplete,
    /// Cancelled: no target was left to act on.
    CalledOff,
}

/// The initiator of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// A user, through the control API.
    Person,
    /// The configuration: `[actions]`.
    Policy,
    /// The configuration, because memory was nearly exhausted.
    Emergency,
}

impl ActionKind {
    /// All kinds.
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
    /// The final states, as the metrics list them.
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

    /// Whether the action has ended.
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
