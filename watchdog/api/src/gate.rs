//! Launches through the gate.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The body of `POST /v1/launch`. The process that becomes the agent is the client itself, or the one that `pid` names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schemars(extend("required" = ["path"])))]
pub struct LaunchRequest {
    /// The profile whose limits apply in addition to those of the profile that recognises the command; null for the latter
    /// alone.
    pub profile: Option<String>,
    /// The program that will be executed.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1)))]
    pub path: String,
    /// Its arguments; the first sixteen identify the program.
    pub argv: Vec<String>,
    /// -100 to 100; higher goes first among the launches of one user. Above 0 it precedes other users' launches only if
    /// root asks.
    #[cfg_attr(feature = "openapi", schemars(range(min = -100, max = 100)))]
    pub priority: i32,
    /// The longest wait; null for the configured one.
    #[cfg_attr(feature = "openapi", schemars(extend("exclusiveMinimum" = 0)))]
    pub timeout_seconds: Option<f64>,
    /// Refuse the launch instead of queueing it.
    pub no_wait: bool,
    /// Expected memory of the session, in bytes; null for the configured or learned value.
    #[cfg_attr(feature = "openapi", schemars(range(min = 1)))]
    pub memory_bytes: Option<u64>,
    /// A process that the client forked, of the client's user, to launch instead of the client.
    pub pid: Option<u32>,
    /// Start time of `pid`, field 22 of /proc/PID/stat; required with it.
    pub start_time: Option<u64>,
    /// The ticket of `POST /v1/fleet/place`: the launch takes the place in the fleet that it reserves.
    pub ticket: Option<String>,
}

/// A line of the response to [`LaunchRequest`]. The last is a grant or a refusal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LaunchUpdate {
    /// The launch waits in the queue.
    Waiting(Waiting),
    /// The launch may start.
    Granted(Grant),
    /// The launch is refused.
    Refused(Refused),
}

/// The position of a launch in the queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Waiting {
    /// 1 for the next launch.
    pub position: u64,
    /// The reason of the wait.
    pub reason: RefusalReason,
    /// The reason in one sentence, with the numbers.
    pub detail: String,
    /// Estimated wait, from recent grants; null without an estimate.
    pub estimate_seconds: Option<f64>,
}

/// A granted launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Grant {
    /// Always true.
    #[cfg_attr(feature = "openapi", schemars(extend("const" = true)))]
    pub granted: bool,
    /// The session whose root is the launched process.
    pub session: u64,
    /// The profile whose limits apply.
    pub profile: String,
    /// Memory that is reserved until the session uses it, in bytes.
    pub memory_bytes: u64,
    /// Time in the queue.
    pub waited_seconds: f64,
    /// Variables to merge into the process's environment.
    pub environment: BTreeMap<String, String>,
    /// The lowest oom_score_adj that the process must set.
    pub oom_score_adj: i32,
    /// The limits of the session.
    pub limits: SessionLimits,
}

/// The limits of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct SessionLimits {
    /// Memory of all its processes together, in bytes.
    pub max_memory_bytes: Option<u64>,
    /// Helpers that may run at the same time.
    pub max_helpers: Option<u32>,
    /// Nesting depth of agents.
    pub max_depth: Option<u32>,
    /// Its cgroup, below the root of the hierarchy; null without one.
    pub cgroup: Option<String>,
    /// Why it has no cgroup although the configuration requires one.
    pub cgroup_problem: Option<String>,
}

/// Why a launch is refused or waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RefusalReason {
    /// The maximum number of sessions is running.
    Quota,
    /// The breaker is open: the host is short of memory.
    Breaker,
    /// There is too little memory for this launch.
    Memory,
    /// A limit on tasks is near: forks of the agent would fail.
    Tasks,
    /// The maximum number of launches was started recently.
    Rate,
    /// Agents are nested too deeply.
    Depth,
    /// The maximum number of launches is waiting.
    QueueFull,
    /// The longest wait has passed.
    Timeout,
    /// The launch was removed from the queue.
    Cancelled,
    /// All hosts of the fleet together run the maximum number of sessions, or the fleet's store is lost.
    Fleet,
}

impl RefusalReason {
    /// Every reason.
    pub const ALL: [Self; 10] = [
        Self::Quota,
        Self::Breaker,
        Self::Memory,
        Self::Tasks,
        Self::Rate,
        Self::Depth,
        Self::QueueFull,
        Self::Timeout,
        Self::Cancelled,
        Self::Fleet,
    ];

    /// The name in JSON and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quota => "quota",
            Self::Breaker => "breaker",
            Self::Memory => "memory",
            Self::Tasks => "tasks",
            Self::Rate => "rate",
            Self::Depth => "depth",
            Self::QueueFull => "queue_full",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Fleet => "fleet",
        }
    }
}

/// A refused launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Refused {
    /// Always false.
    #[cfg_attr(feature = "openapi", schemars(extend("const" = false)))]
    pub granted: bool,
    /// The reason, in one word.
    pub reason: RefusalReason,
    /// The limit, its value and the present state, in one sentence.
    pub detail: String,
    /// When a retry is useful; null when it never is.
    pub retry_after_seconds: Option<f64>,
    /// The limit, as the configuration names it: `[gate] max_sessions`.
    pub bound: String,
    /// The sessions that use up the limit; of other users only their number.
    #[serde(default)]
    pub holders: Vec<Occupant>,
}

/// The body of the 503 for a connection beyond the limit. It also refuses the launch that the client may have been about to
/// request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ConnectionRefused {
    /// What went wrong, and what to do.
    pub error: String,
    /// The refusal of a launch.
    #[serde(flatten)]
    pub refused: Refused,
}

/// A session that counts against a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Occupant {
    /// The session.
    pub session: u64,
    /// Its agent's pid.
    pub pid: u32,
    /// Its profile.
    pub profile: String,
    /// Its user.
    pub user: String,
    /// Its present memory, in bytes.
    pub memory_bytes: u64,
}
