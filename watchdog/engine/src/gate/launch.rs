//! Launches: the request, the lease, and the answers to the client.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use watchdog_api::{RefusalReason, SubagentEvent};
use watchdog_types::{
    BootTime, Bounds, Bytes, CgroupLimit, FleetName, Image, Pid, ProcessId, SessionId, TaskLimit, Uid,
};

/// The profile of a launch that no profile matches.
pub const UNPROFILED: &str = "other";

/// The setting that a launch without enough memory on the host waits for.
pub(super) const HOST_RESERVE: &str = "[gate] reserve";
/// Retry delay where nothing better is known.
pub(super) const DEFAULT_RETRY: Duration = Duration::from_secs(30);
/// Retry delay of launches that wait for memory.
pub(super) const MEMORY_RETRY: Duration = Duration::from_secs(15);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// The process that becomes the agent.
    pub process: ProcessId,
    pub ppid: Pid,
    pub uid: Uid,
    /// comm of the launcher.
    pub comm: String,
    /// The program that it will execute.
    pub image: Image,
    /// The requested profile; `None` for the one that matches the image.
    pub profile: Option<String>,
    /// Higher values first.
    pub priority: i32,
    /// Maximum time in the queue; `None` for the configured one.
    pub timeout: Option<Duration>,
    /// Queue the launch if it cannot be granted at once.
    pub waits: bool,
    /// Expected memory as stated by the client.
    pub memory: Option<Bytes>,
    /// The cgroups above the process that have a memory limit, innermost first.
    #[serde(default)]
    pub cgroups: Vec<CgroupLimit>,
    /// The limits on tasks that hold for the process.
    #[serde(default)]
    pub tasks: Vec<TaskLimit>,
    /// The ticket of a place in the fleet that is reserved for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<FleetName>,
}

/// Why a queued launch is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cancellation {
    /// Its client disconnected or exited.
    #[serde(rename = "Gone")]
    ClientGone,
    /// `watchdogctl queue --cancel`.
    Cancelled,
}

/// A granted launch. Persisted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchLease {
    /// The root of the session.
    pub process: ProcessId,
    pub profile: String,
    pub uid: Uid,
    pub granted: BootTime,
    pub expected: Bytes,
    /// Paths of the limited cgroups above the process.
    #[serde(default)]
    pub cgroups: Vec<String>,
}

/// The answer to a client whose launch is granted.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchGrant {
    pub lease: LaunchLease,
    pub session: SessionId,
    pub waited: Duration,
    /// Variables to add to the agent's environment.
    pub environment: BTreeMap<String, String>,
    /// Minimum oom_score_adj of the agent.
    pub oom_score_adj: i32,
    pub limits: Bounds,
}

/// Why a launch is refused or waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocker {
    pub reason: RefusalReason,
    /// One sentence with the limit and the current value.
    pub detail: String,
    /// The limit as the configuration names it: `[gate] max_sessions`.
    pub bound: String,
    /// Sessions that hold the leases in question.
    pub holders: Vec<SessionId>,
    /// When a retry may succeed; `None` when it never will.
    pub retry_after: Option<Duration>,
}

impl Blocker {
    /// A blocker without holders.
    pub(super) fn new(
        reason: RefusalReason,
        detail: impl Into<String>,
        bound: &str,
        retry_after: impl Into<Option<Duration>>,
    ) -> Self {
        let (detail, bound, retry_after) = (detail.into(), bound.to_owned(), retry_after.into());
        Self { reason, detail, bound, holders: Vec::new(), retry_after }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct LaunchRefusal {
    pub process: ProcessId,
    pub uid: Uid,
    pub profile: String,
    pub blocker: Blocker,
}

/// Sent to a client when the position or the blocker of its launch changes.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuePosition {
    pub process: ProcessId,
    /// 1 for the next launch.
    pub position: u64,
    pub blocker: Blocker,
    /// Estimated wait, from recent grants.
    pub estimate: Option<Duration>,
}

/// A hook's report of a subagent inside the agent's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubagentHook {
    /// The hook: a descendant of the agent.
    pub caller: ProcessId,
    pub event: SubagentEvent,
    /// The id of the tool call, if the agent has one.
    pub call: Option<String>,
}

/// The answer to [`SubagentHook`].
#[derive(Clone, Debug, PartialEq)]
pub struct SubagentDecision {
    /// `None` when the subagent may start.
    pub blocker: Option<Blocker>,
    /// `None` when the caller is in no session.
    pub session: Option<SessionId>,
    /// Running subagents of this session.
    pub running: u64,
    pub max_subagents: Option<u32>,
}
