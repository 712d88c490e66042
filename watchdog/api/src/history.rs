//! `GET /v1/history` and `GET /v1/postmortem`: records that survive restarts of the daemon and the host.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[cfg(feature = "openapi")]
use super::Death;
use super::{Finding, Host, Receipt, ReclaimRun};

/// A record of the history: one line of the response to `GET /v1/history`. Only another version of the daemon writes other
/// types.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Record {
    /// RFC 3339.
    pub at: String,
    /// The daemon run that wrote it, identified by its start time.
    pub run: String,
    /// The user that it concerns; null if it concerns no single user, or the user is unknown.
    pub owner_uid: Option<u32>,
    /// Set if the record stands for several events.
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub repeats: Option<Repeats>,
    /// The event; for several events, one of them.
    #[serde(flatten)]
    pub what: Past,
}

/// Events that are equal, or too many, counted in one record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Repeats {
    /// The number of events, where the record stands for several. Its other members describe one of them;
    /// `memory.peak_bytes` is the highest of all.
    #[cfg_attr(feature = "openapi", schemars(range(min = 1)))]
    pub count: u64,
    /// Time of the first event, RFC 3339.
    pub first_at: String,
    /// Time of the last event, RFC 3339.
    pub last_at: String,
}

/// The event of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Past {
    /// A daemon run began.
    DaemonStarted {
        /// The daemon's version.
        version: String,
        /// The daemon's pid.
        pid: u32,
        /// /proc/sys/kernel/random/boot_id.
        boot_id: String,
    },
    /// A daemon run was stopped normally. A killed daemon leaves no such record.
    DaemonStopped,
    /// Memory and pressure, every 10 s.
    Host(HostRecord),
    /// An agent was recognised.
    SessionStarted(SessionStart),
    /// The last process of a session exited.
    SessionEnded(SessionSummary),
    /// A finding opened, changed or closed.
    Finding(FindingRecord),
    /// The OOM killer killed a process.
    Oom(OomRecord),
    /// An action on processes.
    Action(ActionRecord),
    /// Sessions were paged out.
    Reclaim(Box<ReclaimRun>),
    /// Why a process died.
    Death(#[cfg_attr(feature = "openapi", schemars(with = "Death"))] Map<String, Value>),
    /// A type of another version.
    #[serde(other)]
    #[cfg_attr(feature = "openapi", schemars(skip))]
    Unknown,
}

/// The members of a recorded death that a list shows. Members that the user must not see are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DeathNotice {
    /// Its session; null for a victim of the OOM killer outside all sessions.
    pub session: Option<u64>,
    /// Its pid.
    pub pid: u32,
    /// Its comm at the end.
    pub comm: String,
    /// The name of a [`Cause`](super::Cause), also of one of a newer version.
    pub cause: String,
    /// The cause, in one paragraph for people.
    pub summary: String,
}

impl DeathNotice {
    /// Reads the members of a [`Past::Death`].
    #[must_use]
    pub fn of(members: &Map<String, Value>) -> Self {
        Self::deserialize(members).unwrap_or_default()
    }
}

/// Memory of the host, with the largest sessions and processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct HostRecord {
    /// Memory and pressure of the host.
    #[serde(flatten)]
    pub memory: Host,
    /// The largest sessions, largest first.
    #[serde(default)]
    pub sessions: Vec<SessionMemory>,
    /// The largest processes of sessions, largest first.
    #[serde(default)]
    pub processes: Vec<ProcessMemory>,
}

/// Memory of a session at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct SessionMemory {
    /// Never reused.
    pub session: u64,
    /// Its profile.
    pub profile: String,
    /// Its agent's user.
    pub uid: u32,
    /// As in `GET /v1/tree`.
    pub memory_bytes: u64,
    /// Live processes.
    pub processes: u64,
}

/// Memory of a process at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ProcessMemory {
    /// The pid.
    pub pid: u32,
    /// Start time, field 22 of /proc/PID/stat.
    pub start_time: u64,
    /// Its session.
    pub session: u64,
    /// Its user.
    pub uid: u32,
    /// Its program in one word; never an argument.
    pub name: String,
    /// anon + shmem + swap, with its share of shared memory.
    pub memory_bytes: u64,
}

/// Start of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct SessionStart {
    /// Never reused.
    pub session: u64,
    /// The profile that matched the agent.
    pub profile: String,
    /// Name of the agent's user, or the uid if it has none.
    pub user: String,
    /// When the agent was forked, RFC 3339.
    pub started_at: String,
    /// Pid of the agent.
    pub pid: u32,
    /// The agent's start, field 22 of /proc/PID/stat.
    pub start_time: u64,
}

/// An ended session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct SessionSummary {
    /// Its start.
    #[serde(flatten)]
    pub start: SessionStart,
    /// When its last process exited, RFC 3339.
    pub ended_at: String,
    /// Peak memory of all processes together, sampled about once a second.
    pub peak_memory_bytes: u64,
    /// Highest resident set size of a single process, from the kernel's high-water mark.
    pub largest_process_peak_bytes: u64,
    /// Processes below the agent, including short-lived ones.
    pub helpers: u64,
}

/// A change of a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct FindingRecord {
    /// `opened`, `changed` or `closed`.
    pub change: String,
    /// The finding after the change.
    #[serde(flatten)]
    pub finding: Finding,
}

/// A kill by the OOM killer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct OomRecord {
    /// The victim; null if the kernel did not report it and no session contains it.
    pub pid: Option<u32>,
    /// The victim's start, field 22 of /proc/PID/stat.
    pub start_time: Option<u64>,
    /// The victim's session, if it was in one.
    pub session: Option<u64>,
    /// The victim's name.
    pub comm: String,
}

/// An action on processes, by policy or by a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ActionRecord {
    /// `adopt` or `unadopt`; `terminate`, `throttle` or `freeze`, with a receipt; or `end_ungated` for an agent that was not
    /// started through the gate.
    pub action: String,
    /// The target processes.
    pub pids: Vec<u32>,
    /// The session of the request, if it named one.
    pub session: Option<u64>,
    /// The requesting user; null for a policy.
    pub asked_by_uid: Option<u32>,
    /// The receipt of `terminate`, `throttle` and `freeze`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub receipt: Option<Box<Receipt>>,
}

/// `GET /v1/postmortem`: the last minutes of a daemon run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Postmortem {
    /// Start time of the run, RFC 3339.
    pub run: String,
    /// Boot id of the host; empty if the record of the start has expired.
    pub boot_id: String,
    /// The daemon's version.
    pub version: String,
    /// How it ended.
    pub end: End,
    /// Start of the covered period, RFC 3339.
    pub from: String,
    /// Time of the last record, RFC 3339.
    pub to: String,
    /// Memory of the host in this period; null if none was recorded.
    pub host: Option<HostTrend>,
    /// Sessions, largest growth first.
    pub sessions: Vec<Growth<SessionMemory>>,
    /// Processes, largest growth first.
    pub processes: Vec<Growth<ProcessMemory>>,
    /// Findings that were open at the end, or closed in this period.
    pub findings: Vec<Finding>,
    /// Deaths, OOM kills and actions of this period, each a [`Record`] as it was written.
    #[cfg_attr(feature = "openapi", schemars(with = "Vec<Record>"))]
    pub killed: Vec<Value>,
    /// Unreadable lines of the file, which are missing here.
    pub damaged_lines: u64,
}

/// How a daemon run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Stopped normally, for example by a user, an upgrade or a shutdown.
    Stopped,
    /// Killed or crashed; the host kept running.
    DaemonDied,
    /// The host crashed, was reset or lost power.
    HostWentDown,
}

/// Memory of the host at the start and end of a period, and the extremes in between.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct HostTrend {
    /// At the start.
    pub first: Host,
    /// At the end.
    pub last: Host,
    /// Minimum of MemAvailable.
    pub lowest_available_bytes: u64,
    /// The highest `some avg10` of memory pressure, per cent; null without PSI.
    pub highest_pressure_some_avg10: Option<f64>,
    /// The highest `full avg10` of memory pressure, per cent; null without PSI.
    pub highest_pressure_full_avg10: Option<f64>,
}

/// Memory of a session or process at the end of a period, and its growth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "openapi", schemars(rename = "{T}Growth"))]
pub struct Growth<T> {
    /// The last sample.
    #[serde(flatten)]
    pub last: T,
    /// Memory when it was first among the largest in this period.
    pub first_memory_bytes: u64,
    /// The difference; negative if it shrank.
    pub growth_bytes: i64,
}
