//! Requests of the engine to the daemon. The engine never waits for them.

use std::time::Duration;

use super::actions::{Action, Authority, Batch};
use super::exits::ExplainedDeath;
use super::gate::{GateRecord, LaunchGrant, LaunchRefusal, Peaks, QueuePosition, SubagentDecision};
use super::reclaim::LearnedYields;
use watchdog_api::{ActionKind, Cause};
use watchdog_types::{
    ActionId, Attempt, BootTime, Bounds, ExitStatus, FindingId, FleetAsk, HostRow, Image, Kill, LastIds, Lineage,
    PageOut, Pid, ProcessId, SessionId,
};

/// A request to one worker of the daemon, or to the daemon's own state.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    Bpf(BpfCommand),
    Scan(ScanRequest),
    Confine(ConfineCommand),
    Act(ActionCommand),
    Persist(PersistCommand),
    Reply(ClientReply),
    /// Page out processes of a session. Answered with [`Input::PagedOut`](crate::input::Input::PagedOut).
    PageOut(Box<PageOut>),
    /// End the page-out of this number early. Its answer follows.
    CancelPageOut(u64),
    /// Answered with [`Input::Inspected`](crate::input::Input::Inspected). The daemon inspects all processes of a step together.
    Inspect(ProcessId),
    /// Answered with [`Input::Limits`](crate::input::Input::Limits); unanswered when the process has exited. The daemon reads
    /// all processes of a step together.
    ReadProcessLimits(ProcessId),
    /// Answered with [`Input::Scan`](crate::input::Input::Scan). The daemon limits the rate.
    ScanProcesses,
    Journal(JournalEntry),
    /// Record an exit in the history: a process of a session, or any victim of the OOM killer.
    Died(Box<ExplainedDeath>),
    /// Publish the receipt of an action that finished, or that holds its targets.
    Receipt(ActionId),
    /// The time from a cause to its finding.
    Latency(Duration),
    /// Answered with [`Input::FleetAnswer`](crate::input::Input::FleetAnswer).
    AskFleet(Box<FleetAsk>),
    /// Restate this host's places to the fleet's store. Replaces earlier rows.
    RestateFleet(Box<HostRow>),
}

/// For the worker that owns the kernel programs.
#[derive(Clone, Debug, PartialEq)]
pub enum BpfCommand {
    /// Add the process to the kernel's map, or change its entry.
    Track(ProcessId, Lineage),
    Untrack(ProcessId),
    /// Attach or detach the memory programs.
    CloseWatch(bool),
    /// Enforce these limits in the kernel for the session of this root, and let the root pass the exec hook.
    ApplyLimits(ProcessId, Bounds),
    /// Stop enforcing limits for the session of this root.
    ClearLimits(ProcessId),
    /// Answered with [`Input::Host`](crate::input::Input::Host).
    ReadHost,
    /// Sample the memory of these processes, also where it is as last sampled. Answered with
    /// [`Input::Samples`](crate::input::Input::Samples).
    ReadMemory(Vec<ProcessId>),
}

/// For the worker that reads /proc and cgroups.
#[derive(Clone, Debug, PartialEq)]
pub enum ScanRequest {
    /// Read the proportional set sizes of processes that may share pages, together. Answered with
    /// [`Input::Shares`](crate::input::Input::Shares).
    SharedMemory(Vec<ProcessId>),
    /// Look at a killer outside every session, and at its target. Answered with
    /// [`Input::KillSeen`](crate::input::Input::KillSeen).
    Kill {
        kill: Kill,
        /// The last known cgroup of the target.
        cgroup: Option<String>,
    },
    /// Read CPU time, runs and I/O. Answered with [`Input::Activity`](crate::input::Input::Activity).
    Activity(Vec<ProcessId>),
    /// List the files on each tmpfs. Answered with [`Input::Tmpfs`](crate::input::Input::Tmpfs).
    Tmpfs,
    /// Limits on tasks. Answered with [`Input::Tasks`](crate::input::Input::Tasks).
    Tasks {
        /// Processes whose limits are read.
        agents: Vec<ProcessId>,
        /// Processes whose threads are counted while a limit is near.
        members: Vec<ProcessId>,
    },
    /// The processes that these agents depend on. Answered with [`Input::Surroundings`](crate::input::Input::Surroundings).
    Surroundings(Vec<ProcessId>),
    /// Answered with [`Input::CgroupLimits`](crate::input::Input::CgroupLimits).
    CgroupLimits(ProcessId),
    /// The limits on tasks of a waiting launch. Answered with [`Input::LaunchTasks`](crate::input::Input::LaunchTasks).
    LaunchTasks(ProcessId),
    /// Answered with [`Input::CgroupMembers`](crate::input::Input::CgroupMembers).
    CgroupMembers(SessionId, String),
    /// Find containers that started in this span. Answered with [`Input::Containers`](crate::input::Input::Containers).
    Containers {
        /// The `docker run` (or podman, nerdctl) that requested the container.
        client: ProcessId,
        from: BootTime,
        to: BootTime,
    },
    /// Read the cgroups of an OOM victim at once: a scope disappears with its last process. Answered with
    /// [`Input::OomSeen`](crate::input::Input::OomSeen).
    Oom {
        number: u64,
        victim: Pid,
        /// The tightest known cgroup above the victim.
        cgroup: Option<String>,
        /// Other processes whose oom_score_adj is read.
        others: Vec<Pid>,
    },
}

/// For the worker that confines sessions.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfineCommand {
    /// Raise the process's oom_score_adj to this value; never lower it.
    RaiseOomScore(ProcessId, i32),
    /// Kill an agent that bypassed the gate while `ungated = "deny"`.
    KillUngated(ProcessId, Authority),
}

/// For the worker that signals processes.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionCommand {
    /// Log an action before its first signal.
    Begin(Box<Action>),
    /// Answered with [`Input::BatchResult`](crate::input::Input::BatchResult).
    Execute(Box<Batch>),
    Finish(ActionId),
}

/// For the files that outlive the daemon.
#[derive(Clone, Debug, PartialEq)]
pub enum PersistCommand {
    /// Written before any later effect answers a client.
    Gate(GateRecord),
    /// Ids up to these may be in use: no later run reuses them.
    Ids(LastIds),
    /// Peak memory of past sessions.
    Peaks(Peaks),
    /// What sessions released when they were paged out.
    Yields(LearnedYields),
}

/// For a waiting client.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientReply {
    /// Confine the session, then answer, after all earlier effects.
    Granted(Box<LaunchGrant>),
    Refused(Box<LaunchRefusal>),
    Queued(Box<QueuePosition>),
    /// Answers [`Input::Subagent`](crate::input::Input::Subagent).
    Subagent(SubagentDecision),
    /// Answers [`Input::RequestAction`](crate::input::Input::RequestAction): the actions that it started or released.
    ActionsStarted(Vec<ActionId>),
}

/// An entry of the journal, which `watchdogctl events` shows.
#[derive(Clone, Debug, PartialEq)]
pub struct JournalEntry {
    pub at: BootTime,
    pub process: Option<ProcessId>,
    pub session: Option<SessionId>,
    pub what: JournalEvent,
}

#[derive(Clone, Debug, PartialEq)]
pub enum JournalEvent {
    SessionStarted {
        profile: String,
    },
    /// The last process of the session exited.
    SessionEnded,
    Fork {
        parent: Option<ProcessId>,
    },
    Exec {
        /// comm after the exec.
        comm: String,
        image: Image,
    },
    Exit {
        status: Option<ExitStatus>,
        /// Highest resident set.
        peak_bytes: u64,
    },
    /// A signal whose default action terminates.
    Signal {
        signal: u8,
        sender: ProcessId,
        sender_comm: String,
        sender_uid: u32,
        /// Neither ignored nor already pending.
        delivered: bool,
    },
    Oom {
        /// comm of the victim.
        comm: String,
    },
    /// The explanation of an exit, about a second after it.
    Died {
        cause: Cause,
        summary: String,
    },
    Finding {
        finding: FindingId,
        kind: String,
        /// `opened`, `changed` or `closed`.
        change: String,
        summary: String,
    },
    Action {
        action: ActionId,
        kind: ActionKind,
        /// `begun` or `over`.
        change: String,
        /// The reason, or the result once there is one.
        summary: String,
    },
    /// Policy skips an action that is due.
    ActionsHeldBack {
        detail: String,
    },
    /// Idle sessions were paged out.
    PagedOut {
        run: u64,
        summary: String,
    },
    LaunchGranted {
        profile: String,
        waited_ms: u64,
    },
    Breaker {
        open: bool,
        detail: String,
    },
    /// The table was reconciled with /proc after lost events.
    Reconciled {
        /// Records that the kernel dropped.
        lost: u64,
        added: u64,
        removed: u64,
    },
    /// An allocation waited for reclaim.
    Reclaim {
        stalled_us: u64,
    },
    /// The kernel programs refused a fork or an exec.
    Denied {
        comm: String,
        what: Attempt,
    },
    MemoryStep {
        /// anon + shmem + swap.
        memory_bytes: u64,
    },
}
