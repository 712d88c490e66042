//! `GET /v1/history` and `GET /v1/postmortem`: what outlives the daemon and the host.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Finding, Host, Receipt};

/// Something that was written down: one line of the answer to `GET /v1/history`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// When it happened, RFC 3339.
    pub at: String,
    /// The run of the daemon that saw it, named by the moment at which that began.
    pub run: String,
    /// The user whose it is; null when nobody in particular is concerned, or it is not known.
    pub owner_uid: Option<u32>,
    /// Set where the record stands for several events.
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub repeats: Option<Repeats>,
    /// What, with `type` as its name. Of several events, one of them.
    #[serde(flatten)]
    pub what: Past,
}

/// Events that are the same, or that were too many, counted in one record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeats {
    /// How many.
    pub count: u64,
    /// When the first of them happened, RFC 3339.
    pub first_at: String,
    /// When the last of them happened, RFC 3339.
    pub last_at: String,
}

/// What a record tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Past {
    /// A run of the daemon began.
    DaemonStarted {
        /// The daemon's version.
        version: String,
        /// The daemon's pid.
        pid: u32,
        /// Which boot of the host it was: /proc/sys/kernel/random/boot_id.
        boot_id: String,
    },
    /// A run of the daemon ended because it was told to. One that was killed leaves no such record.
    DaemonStopped,
    /// Memory and pressure, every ten seconds.
    Host(HostRecord),
    /// An agent was recognised.
    SessionStarted(SessionStart),
    /// The last process of a session is gone.
    SessionEnded(SessionSummary),
    /// A finding opened, changed or closed.
    Finding(FindingRecord),
    /// The OOM killer took a process.
    Oom(OomRecord),
    /// Something was done to processes.
    Action(ActionRecord),
    /// Why a process died.
    Death(Map<String, Value>),
    /// What only another version writes.
    #[serde(other)]
    Unknown,
}

/// Memory of the host, and who held the most of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostRecord {
    /// Memory and pressure of the host.
    #[serde(flatten)]
    pub memory: Host,
    /// The largest sessions, the largest first.
    #[serde(default)]
    pub sessions: Vec<SessionMemory>,
    /// The largest processes of sessions, the largest first.
    #[serde(default)]
    pub processes: Vec<ProcessMemory>,
}

/// What a session held at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionMemory {
    /// Its id, never used again.
    pub session: u64,
    /// Its profile.
    pub profile: String,
    /// Its agent's user.
    pub uid: u32,
    /// As in `GET /v1/tree`: what is charged to nobody does not count.
    pub memory_bytes: u64,
    /// Its living processes.
    pub processes: u64,
}

/// What a process held at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessMemory {
    /// Its pid.
    pub pid: u32,
    /// Its start, field 22 of /proc/PID/stat.
    pub start_time: u64,
    /// Its session.
    pub session: u64,
    /// Its user.
    pub uid: u32,
    /// What it runs, in a word; never an argument.
    pub name: String,
    /// anon + shmem + swap, its share of what it shares.
    pub memory_bytes: u64,
}

/// The beginning of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStart {
    /// Its id, never used again.
    pub session: u64,
    /// The profile that recognised the agent.
    pub profile: String,
    /// The agent's user, by name; the number where it has no name.
    pub user: String,
    /// When the agent was forked, RFC 3339.
    pub started_at: String,
    /// The agent.
    pub pid: u32,
    /// The agent's start, field 22 of /proc/PID/stat.
    pub start_time: u64,
}

/// A session that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSummary {
    /// How it began.
    #[serde(flatten)]
    pub start: SessionStart,
    /// When its last process exited, RFC 3339.
    pub ended_at: String,
    /// The most that all its processes held together, as looked at about once a second.
    pub peak_memory_bytes: u64,
    /// The highest resident set of any one of its processes, by the kernel's own mark.
    pub largest_process_peak_bytes: u64,
    /// Processes below the agent, those of a moment counted too.
    pub helpers: u64,
}

/// A finding, and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindingRecord {
    /// `opened`, `changed` or `closed`.
    pub change: String,
    /// The finding as it then was.
    #[serde(flatten)]
    pub finding: Finding,
}

/// A choice of the OOM killer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomRecord {
    /// The victim; null when the kernel did not tell, and no session has it.
    pub pid: Option<u32>,
    /// The victim's start, field 22 of /proc/PID/stat.
    pub start_time: Option<u64>,
    /// The victim's session, if it was in one.
    pub session: Option<u64>,
    /// The victim's name.
    pub comm: String,
}

/// Something that was done to processes, by policy or by a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActionRecord {
    /// What: `adopt` or `unadopt`; `terminate`, `throttle` or `freeze`, with a receipt; or `end_ungated` for an agent that was started past the gate.
    pub action: String,
    /// To whom.
    pub pids: Vec<u32>,
    /// The session that was named, if one was.
    pub session: Option<u64>,
    /// The user who asked for it; null when policy did.
    pub asked_by_uid: Option<u32>,
    /// The receipt, of what was done to processes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub receipt: Option<Box<Receipt>>,
}

/// `GET /v1/postmortem`: the last minutes of a run of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Postmortem {
    /// The run, named by the moment at which it began, RFC 3339.
    pub run: String,
    /// Which boot of the host it was; empty when the record of its start is gone.
    pub boot_id: String,
    /// The daemon's version.
    pub version: String,
    /// How it ended.
    pub end: End,
    /// When the minutes that are told of began, RFC 3339.
    pub from: String,
    /// The moment of the last record, RFC 3339.
    pub to: String,
    /// Memory of the host in these minutes; null when none was recorded.
    pub host: Option<HostTrend>,
    /// Sessions, those that grew the most first.
    pub sessions: Vec<Growth<SessionMemory>>,
    /// Processes, those that grew the most first.
    pub processes: Vec<Growth<ProcessMemory>>,
    /// Findings that were open at the end, or closed in these minutes.
    pub findings: Vec<Finding>,
    /// Deaths, choices of the OOM killer and actions of these minutes: each a [`Record`], as it was written.
    pub killed: Vec<Value>,
    /// Lines of the file that could not be read. What they told is missing here.
    pub damaged_lines: u64,
}

/// How a run of the daemon ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It was told to stop, by a person, an upgrade, or a host that was shut down in good order.
    Stopped,
    /// It was killed, or it failed; the host went on.
    DaemonDied,
    /// The host went down under it: crashed, hung until it was reset, or lost power.
    HostWentDown,
}

/// Memory of the host at both ends of some minutes, and its worst in between.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostTrend {
    /// At the beginning.
    pub first: Host,
    /// At the end.
    pub last: Host,
    /// The least MemAvailable.
    pub lowest_available_bytes: u64,
    /// The highest `some avg10` of memory pressure, per cent; null without PSI.
    pub highest_pressure_some_avg10: Option<f64>,
    /// The highest `full avg10` of memory pressure, per cent; null without PSI.
    pub highest_pressure_full_avg10: Option<f64>,
}

/// Who, with what it held at the end, and how much more that was than at the beginning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Growth<T> {
    /// As last seen.
    #[serde(flatten)]
    pub last: T,
    /// What it held when first seen among the largest in these minutes.
    pub first_memory_bytes: u64,
    /// The difference; negative when it shrank.
    pub growth_bytes: i64,
}
