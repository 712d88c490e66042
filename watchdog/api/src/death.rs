//! An exit and its cause, described as of its moment: where another process is involved, durations count back from the death.

use serde::{Deserialize, Serialize};

use super::{MemoryHolders, OomKill, ProcessKind, Sender};

/// An exit and its cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Death {
    /// Time of death, RFC 3339.
    pub died_at: String,
    /// Fork time, RFC 3339; null where the kernel reported only the pid.
    pub started_at: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub facts: DeathFacts,
}

/// A death without its times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "openapi", schemars(transform = super::optional("while_no_daemon_ran")))]
pub struct DeathFacts {
    /// Pid in the initial pid namespace.
    pub pid: u32,
    /// Field 22 of /proc/PID/stat; 0 where the kernel reported only the pid.
    pub start_time: u64,
    /// Its session; null for a victim of the OOM killer outside all sessions.
    pub session: Option<u64>,
    /// The profile of that session.
    pub profile: Option<String>,
    /// Its role for the agent.
    pub kind: Option<ProcessKind>,
    /// Its comm at the end.
    pub comm: String,
    /// The program or script, without arguments.
    pub name: String,
    /// Its user.
    pub uid: Option<u32>,
    /// The parent that forked it.
    pub parent_pid: Option<u32>,
    /// Its age.
    pub age_seconds: Option<f64>,
    /// Its exit code.
    pub exit_code: Option<u8>,
    /// The signal that killed it.
    pub signal: Option<u8>,
    /// It exited while no daemon ran: only the exit is on record.
    #[serde(default)]
    pub while_no_daemon_ran: bool,
    /// The cause, in one word.
    pub cause: Cause,
    /// The cause, in one paragraph for people.
    pub summary: String,
    /// The sender of the signal that killed it, or after which it exited.
    pub sender: Option<Sender>,
    /// The origin of that signal: the process that had signalled the sender.
    pub origin: Option<Sender>,
    /// The decision of the OOM killer.
    pub oom: Option<OomKill>,
    /// Where the memory was when a process killed this one and memory was short: a userspace OOM killer sent the signal,
    /// or the host had little left.
    #[serde(default)]
    pub memory_holders: Option<MemoryHolders>,
    /// The heap limit that it reached.
    pub heap: Option<HeapLimit>,
    /// Another limit of its own that it had nearly reached: beyond it, allocations fail.
    #[serde(default)]
    pub limit_near: Option<LimitNear>,
    /// Why the kernel killed it, where that was observed.
    #[serde(default)]
    pub kernel_reason: Option<KernelReason>,
    /// The hard limit of its CPU time (RLIMIT_CPU), as last read.
    #[serde(default)]
    pub cpu_limit_seconds: Option<u64>,
    /// Its cgroup, if that was read.
    #[serde(default)]
    pub cgroup: Option<String>,
    /// Other processes of its cgroup that the same sender killed at the same time.
    #[serde(default)]
    pub killed_together: u64,
    /// Memory pressure of its cgroup and of those above it when a process killed it, from the inside out.
    #[serde(default)]
    pub pressure: Vec<PressureThen>,
    /// What an agent left: processes that were running when this was written.
    #[serde(default)]
    pub left: Option<LeftRunning>,
    /// The child whose exit status it passes on, as shells do.
    pub passed_on_from: Option<Companion>,
    /// Memory of the process.
    pub memory: MemoryThen,
    /// Memory of the host, as last read before the exit.
    pub host: HostThen,
    /// Other deaths within a second: of its session, and abnormal ones elsewhere. Nearest first, ten at most.
    pub died_with: Vec<Companion>,
    /// The number of such deaths.
    pub died_with_count: u64,
    /// Earlier deaths of the same program under the same starter; null with fewer than three from this cause.
    #[serde(default)]
    pub series: Option<DeathSeries>,
}

/// Deaths of one role within a day or more: the same program and arguments (of an agent: the program), started by the same
/// process, or each by a launcher of that process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct DeathSeries {
    /// Deaths, this one included.
    pub deaths: u64,
    /// Those from the same cause.
    pub same_cause: u64,
    /// From the start of the first one to this death.
    pub span_seconds: f64,
    /// The median age of those from the same cause.
    pub median_age_seconds: Option<f64>,
    /// The process that started them.
    #[serde(default)]
    pub starter_pid: Option<u32>,
}

/// The cause of an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Exited with 0.
    Finished,
    /// Exited with another code.
    Failed,
    /// Exited by itself after a signal that requests it.
    AskedToEnd,
    /// Killed by a signal of a process.
    Killed,
    /// Killed by a signal of the kernel: its terminal was closed, it exceeded a limit, or its pid namespace ended.
    KernelSignal,
    /// Wrote to a pipe without a reader.
    BrokenPipe,
    /// Invalid memory access, arithmetic error, or illegal instruction.
    Fault,
    /// Aborted itself.
    Aborted,
    /// Reached the limit of its V8 heap, and aborted.
    HeapLimit,
    /// Killed by the OOM killer.
    Oom,
    /// Exited with the status of a child.
    PassedOn,
    /// The cause was not observed.
    Unknown,
}

impl Cause {
    /// All causes.
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

/// Why the kernel killed a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum KernelReason {
    /// It reached its limit of CPU time.
    CpuLimit,
    /// The first process of its pid namespace exited.
    NamespaceEnd,
    /// Strict seccomp: it made a system call that is not allowed there.
    Seccomp,
}

/// A limit of a process's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct LimitNear {
    /// What it is, as text.
    pub name: String,
    /// The limit.
    pub max_bytes: u64,
    /// What was left below it.
    pub left_bytes: u64,
}

/// The memory pressure of a cgroup, in per cent over ten seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct PressureThen {
    /// The cgroup.
    pub cgroup: String,
    /// Some task waited for memory.
    pub some_avg10: f64,
    /// All tasks did.
    pub full_avg10: f64,
}

/// Processes that run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct LeftRunning {
    /// How many.
    pub processes: u64,
    /// anon + shmem + swap of all of them.
    pub memory_bytes: u64,
}

/// A V8 heap limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct HeapLimit {
    /// `--max-old-space-size`, or V8's default for this version and the memory that there is.
    pub limit_bytes: u64,
    /// Stated in argv or NODE_OPTIONS.
    pub stated: bool,
}

/// Another exit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Companion {
    /// The pid.
    pub pid: u32,
    /// Start time, field 22 of /proc/PID/stat.
    pub start_time: u64,
    /// The program or script.
    pub name: String,
    /// Its user.
    pub uid: Option<u32>,
    /// Its session.
    pub session: Option<u64>,
    /// Its exit code.
    pub exit_code: Option<u8>,
    /// The signal that killed it.
    pub signal: Option<u8>,
    /// The cause, in one word.
    pub cause: Cause,
    /// The sender of the signal that killed it, or after which it exited.
    #[serde(default)]
    pub sender: Option<Sender>,
    /// Its memory cgroup with the tightest limit, if that was read.
    #[serde(default)]
    pub cgroup: Option<String>,
    /// Seconds between the two deaths.
    pub apart_seconds: f64,
    /// It died after the explained one.
    pub later: bool,
    /// Either depended on the other, both were part of one command, or they shared a limited cgroup.
    #[serde(default)]
    pub related: bool,
}

/// Memory of an exited process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct MemoryThen {
    /// anon + shmem + swap at the last sample.
    pub last_bytes: u64,
    /// The highest resident set of the program that it executed last.
    pub peak_bytes: u64,
    /// Growth since its first sample; null when it did not live long enough.
    pub growth_bytes: Option<i64>,
    /// The period of that growth.
    pub growth_window_seconds: Option<f64>,
    /// Time before its death at which it had half of its last memory; null when it never did.
    pub doubled_in_seconds: Option<f64>,
    /// The lowest memory.max above it.
    pub cgroup_max_bytes: Option<u64>,
}

/// Memory of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct HostThen {
    /// MemTotal.
    pub total_bytes: u64,
    /// MemAvailable.
    pub available_bytes: u64,
    /// SwapTotal.
    pub swap_total_bytes: u64,
    /// SwapFree.
    pub swap_free_bytes: u64,
    /// `some avg10` of memory pressure in per cent; null without PSI.
    pub pressure_some_avg10: Option<f64>,
    /// `full avg10` of memory pressure in per cent; null without PSI.
    pub pressure_full_avg10: Option<f64>,
}
