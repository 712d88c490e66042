//! `GET /v1/status`: how the daemon and its host are.

use serde::{Deserialize, Serialize};

/// How the daemon and its host are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// The daemon's own pid.
    pub pid: u32,
    /// When the daemon started, RFC 3339.
    pub started_at: String,
    /// Something that the daemon relies on is missing, and it does with less.
    pub degraded: bool,
    /// How processes are followed.
    pub tracking: Tracking,
    /// What this host gives.
    pub capabilities: Vec<Capability>,
    /// How much there is of everything.
    pub counts: Counts,
    /// Memory of the host.
    pub host: Host,
    /// Launches are refused while the host is short of memory. Always false without a gate.
    pub breaker_open: bool,
    /// Records that the kernel had to drop, since the daemon started.
    pub lost_events: u64,
    /// Times that the table was brought back into line with /proc.
    pub reconciles: u64,
    /// How the history is written; null where a daemon keeps none.
    #[serde(default)]
    pub history: Option<HistoryState>,
    /// Files of the daemon that were damaged or could not be trusted, since the daemon started.
    #[serde(default)]
    pub set_aside: Vec<SetAside>,
}

/// A file of the daemon that was damaged or could not be trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAside {
    /// Where it was.
    pub path: String,
    /// What was wrong with it.
    pub because: String,
    /// Its name now; null where it could not be renamed.
    pub kept_as: Option<String>,
}

/// How processes are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tracking {
    /// By kernel events; otherwise by looking at /proc.
    pub kernel_events: bool,
    /// The memory programs are attached.
    pub close_watch: bool,
    /// Processes of sessions that could not be tracked, since the kernel's map, or their user's share of it, is full. They are
    /// followed by looking at /proc, and `degraded` is true as long as there are any.
    #[serde(default)]
    pub untracked: u64,
    /// Events for which the kernel skipped all its programs, at most, since the daemon started. They are part of `lost_events`.
    #[serde(default)]
    pub missed_runs: u64,
}

/// One thing that a host may or may not give.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// A short name: `btf`, `ring_buffer`, `lsm`, `cgroup_v2`, `psi`, …
    pub name: String,
    /// It is there.
    pub on: bool,
    /// How that is known, or why it is off.
    pub why: String,
    /// What it costs, or what its absence costs.
    pub cost: String,
    /// What to do about it; null when nothing is to be done.
    pub remedy: Option<String>,
}

/// How much there is of everything that the asking user may see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Sessions whose agent lives.
    pub sessions_running: u64,
    /// Sessions whose agent is dead while helpers live.
    pub sessions_orphaned: u64,
    /// Living processes of all sessions.
    pub processes: u64,
    /// Zombies of all sessions.
    pub zombies: u64,
    /// Open findings.
    pub findings_open: u64,
    /// anon + shmem + swap of all sessions, with what a tree shares counted once: the sum of what `GET /v1/tree` shows.
    pub memory_bytes: u64,
}

/// How the history is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryState {
    /// The file.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Records that could not be written, since the daemon started.
    pub lost_records: u64,
    /// Why nothing is written at present; null when all is well.
    pub problem: Option<String>,
}

/// Memory of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
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
