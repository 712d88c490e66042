//! `GET /v1/status`.

use serde::{Deserialize, Serialize};

use super::{StoreState, UserAgents};
use watchdog_types::HostMemory;

/// State of the daemon and its host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// The daemon's own pid.
    pub pid: u32,
    /// When the daemon started, RFC 3339.
    pub started_at: String,
    /// The daemon's pid namespace, `pid:[INODE]`, outside which it sees no process; null for the initial one, which has all.
    #[serde(default)]
    pub pid_namespace: Option<String>,
    /// A capability that the daemon needs is missing, so it works with reduced precision.
    pub degraded: bool,
    /// How processes are tracked.
    pub tracking: Tracking,
    /// Capabilities of the host.
    pub capabilities: Vec<Capability>,
    /// Totals of sessions, processes and findings.
    pub counts: Counts,
    /// Memory of the host.
    pub host: Host,
    /// All launches are refused because memory is short. Always false without a gate.
    pub breaker_open: bool,
    /// Events that the kernel dropped since the daemon started.
    pub lost_events: u64,
    /// Times that the table was reconciled with /proc.
    pub reconciles: u64,
    /// Null if the daemon keeps no history.
    #[serde(default)]
    pub history: Option<HistoryState>,
    /// Files that were quarantined since the daemon started.
    #[serde(default)]
    pub set_aside: Vec<SetAside>,
    /// Null from a daemon without page-out.
    #[serde(default)]
    pub reclaim: Option<ReclaimStatus>,
    /// Each user's agents together.
    #[serde(default)]
    pub users: Vec<UserAgents>,
    /// Null from a daemon that does not report it.
    #[serde(default)]
    pub config: Option<ConfigStatus>,
    /// Null on a host that belongs to no fleet.
    #[serde(default)]
    pub fleet: Option<FleetStatus>,
}

/// This host in its fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct FleetStatus {
    /// The name of this host.
    pub host: String,
    /// Whether the store answers.
    pub store: StoreState,
    /// Address of the store.
    pub address: String,
    /// Why it is lost, or why it grants nothing; null otherwise.
    pub problem: Option<String>,
    /// Hosts that were up when the store was last read.
    pub hosts: u64,
}

/// What page-out of idle sessions can give.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ReclaimStatus {
    /// `[reclaim] mode`: `off`, `pressure` or `proactive`.
    pub mode: String,
    /// Idle sessions that may be paged out now.
    pub idle_sessions: u64,
    /// Their resident memory.
    pub idle_resident_bytes: u64,
    /// Free swap above the reserve.
    pub swap_room_bytes: u64,
    /// Why nothing can be paged out; null if it can.
    pub problem: Option<String>,
}

/// The configuration in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ConfigStatus {
    /// Path of the file, which may not exist.
    pub file: String,
    /// `[actions] enforce`.
    pub enforce: bool,
    /// Reloads since the daemon started, including rejected ones.
    pub reloads: u64,
    /// Why the last reload was rejected; null if it was not.
    pub problem: Option<String>,
}

/// A file of the daemon that was damaged or not trusted, and renamed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct SetAside {
    /// The path before.
    pub path: String,
    /// The reason.
    pub because: String,
    /// The path now; null if renaming failed.
    pub kept_as: Option<String>,
}

/// How processes are tracked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Tracking {
    /// By kernel events; otherwise by polling /proc.
    pub kernel_events: bool,
    /// The memory tracepoints are attached.
    pub close_watch: bool,
    /// Processes that are tracked by polling /proc only, because the kernel's map, or their user's share of it, is full.
    /// `degraded` is true while there are any.
    #[serde(default)]
    pub untracked: u64,
    /// Upper bound of the events for which the kernel skipped the programs. Part of `lost_events`.
    #[serde(default)]
    pub missed_runs: u64,
}

/// A feature of the host that the daemon uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Capability {
    /// A short name: `btf`, `ring_buffer`, `lsm`, `cgroup_v2`, `psi`, …
    pub name: String,
    /// It is available.
    pub on: bool,
    /// How it was detected, or why it is missing.
    pub why: String,
    /// Overhead if available, consequence if missing.
    pub cost: String,
    /// How to make it available; null if there is no way or no need.
    pub remedy: Option<String>,
}

/// Totals of what the requesting user can see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Counts {
    /// Sessions with a live agent.
    pub sessions_running: u64,
    /// Sessions with live helpers of a dead agent.
    pub sessions_orphaned: u64,
    /// Live processes of all sessions.
    pub processes: u64,
    /// Zombies of all sessions.
    pub zombies: u64,
    /// Open findings.
    pub findings_open: u64,
    /// anon + shmem + swap of all sessions; memory shared within a tree counts once. The sum of `GET /v1/tree`.
    pub memory_bytes: u64,
}

/// State of the history file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct HistoryState {
    /// Path of the file.
    pub path: String,
    /// Size of the file.
    pub bytes: u64,
    /// Records that could not be written since the daemon started.
    pub lost_records: u64,
    /// Why nothing is written now; null if writing works.
    pub problem: Option<String>,
}

/// Memory of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Host {
    /// MemTotal.
    pub memory_total_bytes: u64,
    /// MemAvailable.
    pub memory_available_bytes: u64,
    /// SwapTotal.
    pub swap_total_bytes: u64,
    /// SwapFree.
    pub swap_free_bytes: u64,
    /// Shmem: shared memory and tmpfs.
    pub shmem_bytes: u64,
    /// `some avg10` of /proc/pressure/memory, per cent; null without PSI.
    pub pressure_some_avg10: Option<f64>,
    /// `full avg10` of /proc/pressure/memory, per cent; null without PSI.
    pub pressure_full_avg10: Option<f64>,
}

impl From<&HostMemory> for Host {
    fn from(host: &HostMemory) -> Self {
        Self {
            memory_total_bytes: host.total.0,
            memory_available_bytes: host.available.0,
            swap_total_bytes: host.swap_total.0,
            swap_free_bytes: host.swap_free.0,
            shmem_bytes: host.shmem.0,
            pressure_some_avg10: host.pressure_some_avg10,
            pressure_full_avg10: host.pressure_full_avg10,
        }
    }
}
