//! `GET /v1/explain`: why processes died, and why living ones were found.
//!
//! A death is told as it was at that moment. Where somebody else has a part in it, spans are counted back from the death.

use serde::{Deserialize, Serialize};

use super::{Finding, Process, ProcessKind, Receipt, SessionState};

/// What is known of one process or one session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// In one paragraph, for a person.
    pub summary: String,
    /// The process that was asked for, while it lives.
    pub process: Option<Process>,
    /// The session that was asked for, or that of the process, while it is remembered.
    pub session: Option<SessionBrief>,
    /// Deaths of the process that was asked for (several, when its pid was used again), or those of the session that are
    /// worth knowing. The latest first.
    pub deaths: Vec<Death>,
    /// Findings about it, the open ones first.
    pub findings: Vec<Finding>,
    /// What was done to it, or to somebody of the session, as far as that is remembered. The latest first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub receipts: Vec<Receipt>,
}

/// A session in a few words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionBrief {
    /// As in `tree`.
    pub id: u64,
    /// The profile that recognised the agent.
    pub profile: String,
    /// Whether the agent lives.
    pub state: SessionState,
    /// The agent's user, by number.
    pub uid: u32,
    /// When the agent was forked, RFC 3339.
    pub started_at: String,
    /// When the last process of it exited, RFC 3339; null while one lives.
    pub ended_at: Option<String>,
    /// Living processes.
    pub processes: u64,
    /// anon + shmem + swap of all its processes.
    pub memory_bytes: u64,
}

/// How and why a process died.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Death {
    /// When, RFC 3339.
    pub died_at: String,
    /// When it was forked, RFC 3339; null where the kernel told only its pid.
    pub started_at: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub facts: DeathFacts,
}

/// A death without its moments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeathFacts {
    /// Its number in the initial pid namespace.
    pub pid: u32,
    /// Field 22 of /proc/PID/stat; 0 where the kernel told only a pid.
    pub start_time: u64,
    /// The session that it belonged to; null for a victim of the OOM killer outside of all sessions.
    pub session: Option<u64>,
    /// That session's profile.
    pub profile: Option<String>,
    /// What it was to its agent.
    pub kind: Option<ProcessKind>,
    /// Its name at the end, as the kernel has it.
    pub comm: String,
    /// The program or script that it ran, without arguments.
    pub name: String,
    /// Its user.
    pub uid: Option<u32>,
    /// The process that forked it.
    pub parent_pid: Option<u32>,
    /// How long it lived.
    pub age_seconds: Option<f64>,
    /// The code that it exited with.
    pub exit_code: Option<u8>,
    /// The signal that ended it.
    pub signal: Option<u8>,
    /// It died while no daemon ran: only its exit is known.
    #[serde(default)]
    pub while_no_daemon_ran: bool,
    /// Why, in one word.
    pub cause: Cause,
    /// Why, in one paragraph for a person.
    pub summary: String,
    /// Who sent the signal that ended it, or after which it ended itself.
    pub sender: Option<Sender>,
    /// Where that signal came from in the first place: who had sent one to the sender.
    pub origin: Option<Sender>,
    /// The OOM killer's choice of it.
    pub oom: Option<OomKill>,
    /// The heap that it filled.
    pub heap: Option<HeapLimit>,
    /// The child whose end its exit code passes on, as shells do.
    pub passed_on_from: Option<Companion>,
    /// Its own memory.
    pub memory: MemoryThen,
    /// The host's memory, as last read before the death.
    pub host: HostThen,
    /// What else died within a second of it: members of its session, and whatever did not end well elsewhere. The
    /// nearest first, ten at most.
    pub died_with: Vec<Companion>,
    /// How many those were.
    pub died_with_count: u64,
}

/// Why a process died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It exited with 0.
    Finished,
    /// It exited with another code.
    Failed,
    /// It exited by itself after it was sent a signal that asks for that.
    AskedToEnd,
    /// A process ended it by a signal.
    Killed,
    /// The kernel ended it by a signal: its terminal went away, it used up a limit, its pid namespace ended.
    KernelSignal,
    /// It wrote into a pipe that nobody read.
    BrokenPipe,
    /// It touched memory that it does not have, or executed what is no instruction.
    Fault,
    /// It aborted itself.
    Aborted,
    /// It filled its V8 heap and aborted.
    HeapLimit,
    /// The kernel's OOM killer took it.
    Oom,
    /// Its exit code is the end of a child.
    PassedOn,
    /// Nobody saw how.
    Unknown,
}

/// Who sent a signal. Of the kernel's own signals: who ran when the kernel sent it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sender {
    /// Its pid.
    pub pid: u32,
    /// Its start, field 22 of /proc/PID/stat.
    pub start_time: u64,
    /// Its comm.
    pub comm: String,
    /// Its user.
    pub uid: u32,
    /// Who that is to the process.
    pub relation: Relation,
    /// The session that it belongs to, if one.
    pub session: Option<u64>,
    /// What it runs, when it belongs to a session.
    pub name: Option<String>,
    /// It was dead by then: its own death sent the signal, as its child had asked (`PR_SET_PDEATHSIG`).
    pub by_its_death: bool,
    /// The signal.
    pub signal: u8,
    /// `si_code` of sigaction(2): above 0 it is the kernel's.
    pub code: i32,
    /// Seconds from the signal to the death.
    pub before_seconds: f64,
    /// The action of agent-watchdog that it was part of, where it is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub action: Option<u64>,
}

/// Who the sender of a signal is to its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// The process itself.
    Itself,
    /// The process that forked it.
    Parent,
    /// Another process of the same agent's tree, sessions inside sessions included.
    SameTree,
    /// A process of another agent's tree.
    OtherTree,
    /// agent-watchdog.
    Watchdog,
    /// A process of no session.
    Stranger,
    /// The kernel.
    Kernel,
}

/// A choice of the OOM killer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OomKill {
    /// Where memory ran out.
    pub scope: OomScope,
    /// How sure that is: `told` by the kernel's counters, or `inferred` from what is known of limits and of the host.
    pub scope_is: Certainty,
    /// The cgroup whose limit was reached.
    pub cgroup: Option<String>,
    /// That limit (memory.max).
    pub cgroup_max_bytes: Option<u64>,
    /// The process whose allocation failed: not the cause, only the last straw.
    pub trigger_pid: u32,
    /// Its comm, where it belongs to a session.
    pub trigger_comm: Option<String>,
    /// The sessions that held the most memory then (in that cgroup, if it was one), the largest first, five at most.
    pub holders: Vec<Holder>,
    /// Memory of all sessions together (in that cgroup, if it was one).
    pub sessions_bytes: u64,
    /// Of that, what orphans held.
    pub orphaned_bytes: u64,
    /// How many orphans.
    pub orphans: u64,
    /// The largest processes of all sessions then (in that cgroup), five at most.
    pub largest: Vec<Large>,
    /// oom_score_adj of the victim, where it could still be read.
    pub oom_score_adj: Option<i32>,
}

/// Where memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OomScope {
    /// On the host.
    Global,
    /// In a cgroup.
    Cgroup,
    /// It could not be told.
    Unknown,
}

/// How something is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// By the kernel.
    Told,
    /// By what fits.
    Inferred,
}

/// A session that held memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// Which; null when it is another user's than the asker's.
    pub session: Option<u64>,
    /// Its profile; null likewise.
    pub profile: Option<String>,
    /// Its user.
    pub uid: u32,
    /// Its living processes.
    pub processes: u64,
    /// Those of them that are orphans.
    pub orphans: u64,
    /// anon + shmem + swap, shared pages counted once; of the victim's session with the victim's own peak.
    pub memory_bytes: u64,
}

/// A large process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Large {
    /// Its pid.
    pub pid: u32,
    /// Its start.
    pub start_time: u64,
    /// What it runs.
    pub name: String,
    /// Its user.
    pub uid: u32,
    /// Its session.
    pub session: u64,
    /// anon + shmem + swap.
    pub memory_bytes: u64,
    /// How willing the kernel is to take it (-1000 to 1000), where it could be read.
    pub oom_score_adj: Option<i32>,
}

/// The limit of a V8 heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapLimit {
    /// `--max-old-space-size`, or V8's own default on a host of this size.
    pub limit_bytes: u64,
    /// argv or NODE_OPTIONS state it.
    pub stated: bool,
}

/// Another process that died.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Companion {
    /// Its pid.
    pub pid: u32,
    /// Its start.
    pub start_time: u64,
    /// What it ran.
    pub name: String,
    /// Its user.
    pub uid: Option<u32>,
    /// Its session.
    pub session: Option<u64>,
    /// The code that it exited with.
    pub exit_code: Option<u8>,
    /// The signal that ended it.
    pub signal: Option<u8>,
    /// Why it died, in one word.
    pub cause: Cause,
    /// Seconds between its death and the one that is explained.
    pub apart_seconds: f64,
    /// It died after that one.
    pub later: bool,
}

/// The memory of a process that died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryThen {
    /// anon + shmem + swap, as last sampled.
    pub last_bytes: u64,
    /// The highest resident set of the program that it ran last.
    pub peak_bytes: u64,
    /// How much it had grown since it was first sampled; null when it did not live long enough.
    pub growth_bytes: Option<i64>,
    /// In this time.
    pub growth_window_seconds: Option<f64>,
    /// How long before its end it held half of what it held at last; null when it never did.
    pub doubled_in_seconds: Option<f64>,
    /// The tightest memory.max above it.
    pub cgroup_max_bytes: Option<u64>,
}

/// The memory of the host at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostThen {
    /// MemTotal.
    pub total_bytes: u64,
    /// MemAvailable.
    pub available_bytes: u64,
    /// SwapTotal.
    pub swap_total_bytes: u64,
    /// SwapFree.
    pub swap_free_bytes: u64,
    /// `some avg10` of memory pressure, per cent; null without PSI.
    pub pressure_some_avg10: Option<f64>,
    /// `full avg10` of memory pressure, per cent; null without PSI.
    pub pressure_full_avg10: Option<f64>,
}

impl Cause {
    /// Every cause, as the metrics list them.
    pub const ALL: [Self; 12] = [
        Self::Finished,
        Self::Failed,
        Self::AskedToEnd,
        Self::Killed,
        Self::KernelSignal,
        Self::BrokenPipe,
        Self::Fault,
        Self::Aborted,
        Self::HeapLimit,
        Self::Oom,
        Self::PassedOn,
        Self::Unknown,
    ];

    /// The name in JSON, metrics and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::AskedToEnd => "asked_to_end",
            Self::Killed => "killed",
            Self::KernelSignal => "kernel_signal",
            Self::BrokenPipe => "broken_pipe",
            Self::Fault => "fault",
            Self::Aborted => "aborted",
            Self::HeapLimit => "heap_limit",
            Self::Oom => "oom",
            Self::PassedOn => "passed_on",
            Self::Unknown => "unknown",
        }
    }
}
