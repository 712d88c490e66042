//! A decision of the OOM killer, and the holders of memory at that time.

use serde::{Deserialize, Serialize};

/// A decision of the OOM killer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct OomKill {
    /// Where memory ran out.
    pub scope: OomScope,
    /// Its source: `reported` by the kernel's counters, or `inferred` from limits and the host's state.
    pub scope_is: Certainty,
    /// The cgroup that reached its limit.
    pub cgroup: Option<String>,
    /// The limit (memory.max).
    pub cgroup_max_bytes: Option<u64>,
    /// The process whose allocation failed, which need not be the cause.
    pub trigger_pid: u32,
    /// Its comm, if it belongs to a session.
    pub trigger_comm: Option<String>,
    /// The use of memory in that cgroup, or on the host.
    #[serde(flatten)]
    pub memory: MemoryHolders,
    /// The victim's oom_score_adj, if it could be read.
    pub oom_score_adj: Option<i32>,
}

/// Where memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OomScope {
    /// On the host.
    Global,
    /// In a cgroup.
    Cgroup,
    /// Unknown.
    Unknown,
}

/// How certain a fact is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// Reported by the kernel.
    #[serde(alias = "told")]
    Reported,
    /// Inferred.
    Inferred,
}

/// The sessions that held memory at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct MemoryHolders {
    /// The sessions with the most memory at that time, largest first, five at most.
    pub holders: Vec<Holder>,
    /// Memory of all sessions.
    pub sessions_bytes: u64,
    /// The part of it that orphans held.
    pub orphaned_bytes: u64,
    /// The number of orphans.
    pub orphans: u64,
    /// The largest processes of all sessions at that time, five at most.
    pub largest: Vec<Large>,
}

/// A session that held memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Holder {
    /// The session; null when it belongs to another user than the client's.
    pub session: Option<u64>,
    /// Its profile; null for sessions of other users.
    pub profile: Option<String>,
    /// Its user.
    pub uid: u32,
    /// Running processes.
    pub processes: u64,
    /// The orphans among them.
    pub orphans: u64,
    /// anon + shmem + swap, shared pages counted once; the peak for the victim itself.
    pub memory_bytes: u64,
}

/// A large process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Large {
    /// The pid.
    pub pid: u32,
    /// Start time, field 22 of /proc/PID/stat.
    pub start_time: u64,
    /// The program or script.
    pub name: String,
    /// Its user.
    pub uid: u32,
    /// Its session.
    pub session: u64,
    /// anon + shmem + swap.
    pub memory_bytes: u64,
    /// Its oom_score_adj (-1000 to 1000), if it could be read.
    pub oom_score_adj: Option<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certainty_of_old_history_is_read() {
        let read = |text: &str| serde_json::from_str::<Certainty>(text).unwrap();
        assert_eq!([read("\"told\""), read("\"reported\"")], [Certainty::Reported; 2]);
        assert_eq!(serde_json::to_string(&Certainty::Reported).unwrap(), "\"reported\"");
    }
}
