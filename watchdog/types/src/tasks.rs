//! Limits on tasks: processes and threads, zombies included.

use serde::{Deserialize, Serialize};

use super::id::{ProcessId, Uid};

/// A limit on tasks, and how much of it is in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskLimit {
    /// What it is a limit of.
    pub of: TaskLimitScope,
    /// Tasks there are.
    pub used: u64,
    /// Tasks there can be.
    pub max: u64,
    /// Those of the processes in question for which it holds.
    pub agents: Vec<ProcessId>,
}

/// What limits tasks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TaskLimitScope {
    /// pids.max of this cgroup, of version 1 or 2.
    Cgroup(String),
    /// RLIMIT_NPROC, which counts all tasks of a user.
    User(Uid),
    /// kernel.threads-max or kernel.pid_max.
    Host,
}

/// The limits on tasks of some processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskReading {
    /// In any order.
    pub limits: Vec<TaskLimit>,
    /// Threads of processes; empty while no limit is near.
    pub threads: Vec<(ProcessId, u64)>,
}

impl TaskLimit {
    /// From this share on, in per cent, a limit is near.
    pub const NEAR_PERCENT: u64 = 80;

    /// The share in use, in per cent.
    #[must_use]
    pub fn percent(&self) -> u64 {
        self.used.saturating_mul(100).checked_div(self.max).unwrap_or(100)
    }

    /// Forks will soon fail.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.percent() >= Self::NEAR_PERCENT
    }
}
