//! Tasks near a limit.

use std::fmt;

use serde::{Deserialize, Serialize};

use watchdog_types::units::count;
use watchdog_types::{Pid, Uid};

/// A limit on tasks (processes and threads, zombies included) that is nearly reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TasksEvidence {
    /// Sessions that hold tasks there, most tasks first.
    pub holders: Vec<TaskHolder>,
    /// The cgroup with pids.max; `None` for other limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_cgroup: Option<String>,
    /// The user with RLIMIT_NPROC; `None` for other limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_uid: Option<Uid>,
    pub tasks: u64,
    pub tasks_limit: u64,
    /// Processes that do not wait for their children, most zombies first.
    pub unreaped_by: Vec<UnreapedChildren>,
}

/// A session with tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskHolder {
    pub processes: u64,
    pub profile: String,
    pub session: u64,
    /// Threads of its processes, and its zombies.
    pub tasks: u64,
    pub zombies: u64,
}

/// A process with zombies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UnreapedChildren {
    pub name: String,
    pub pid: Pid,
    pub zombies: u64,
}

impl TasksEvidence {
    pub(super) fn facts(&self) -> Vec<String> {
        let holders = self.holders.iter().map(|holder| {
            let TaskHolder { processes, profile, session, tasks, zombies } = holder;
            let processes = count(*processes, "process", "processes");
            let zombies = count(*zombies, "zombie", "zombies");
            format!("session {session} ({profile}) holds {tasks} in {processes} and {zombies}")
        });
        let unreaped = self.unreaped_by.iter().map(|parent| {
            let zombies = count(parent.zombies, "zombie", "zombies");
            format!("{} (pid {}) does not wait for its children: {zombies}", parent.name, parent.pid)
        });
        holders.chain(unreaped).collect()
    }
}

impl fmt::Display for TasksEvidence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = match (&self.limit_cgroup, self.limit_uid) {
            (Some(cgroup), _) => format!("cgroup {cgroup} (pids.max)"),
            (None, Some(uid)) => format!("uid {} (RLIMIT_NPROC)", uid.0),
            (None, None) => "the host (threads-max)".to_owned(),
        };
        write!(out, "{} of {} tasks of {of} are in use; at the limit, forks fail", self.tasks, self.tasks_limit)
    }
}
