//! Everything that the engine learns. A recorded sequence of inputs replays a host.
//!
//! Recordings are read by later versions. A new field needs `#[serde(default)]`, a renamed one its old name; any other change
//! needs another `VERSION` of recordings.

use watchdog_types::{
    Absence, Activity, CgroupLimit, Container, HostMemory, Inspection, KernelEvent, Kill, KillSeen, Limits, OomSeen,
    PagedOut, Sample, Scan, SharesSeen, Surroundings, TaskLimit, TaskReading, Tmpfs,
};

use serde::{Deserialize, Serialize};

use crate::actions::{ActionLogRecord, ActionRequest, BatchResult, Permissions};
use crate::gate::{AnsweredAsk, Cancellation, Launch, RestoredGate, SubagentHook};
use crate::reclaim::ReclaimDemand;
use watchdog_types::{Bytes, Confinement, Pid, ProcessId, SessionId, UserIds};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Input {
    Kernel(KernelEvent),
    /// Records that the kernel dropped since the last report. The table may be wrong until the next scan.
    Lost(u64),
    Scan(Scan),
    /// Memory of tracked processes.
    Samples(Vec<Sample>),
    /// All tracked zombies. Sent when the list changes.
    Zombies(Vec<ProcessId>),
    /// Running containers that a container client may have started. Answers
    /// [`ScanRequest::Containers`](crate::effect::ScanRequest::Containers).
    Containers(ProcessId, Vec<Container>),
    /// `None` when the process has exited. Answers [`Effect::Inspect`](crate::effect::Effect::Inspect).
    Inspected(ProcessId, Option<Inspection>),
    /// Memory limits of one process. Answers [`Effect::ReadProcessLimits`](crate::effect::Effect::ReadProcessLimits).
    Limits(ProcessId, Limits),
    /// Answers [`ScanRequest::SharedMemory`](crate::effect::ScanRequest::SharedMemory).
    Shares(SharesSeen),
    /// Answers [`ScanRequest::Kill`](crate::effect::ScanRequest::Kill).
    KillSeen(Kill, KillSeen),
    /// Answers [`ScanRequest::Oom`](crate::effect::ScanRequest::Oom).
    OomSeen(OomSeen),
    /// The daemon itself, so that its own signals are attributed to it. Sent once, at the start.
    #[serde(rename = "Watchdog")]
    OwnProcess(ProcessId),
    Host(HostMemory),
    /// Answers [`ScanRequest::Activity`](crate::effect::ScanRequest::Activity), without processes that have exited.
    Activity(Vec<Activity>),
    /// Answers [`ScanRequest::Tmpfs`](crate::effect::ScanRequest::Tmpfs).
    Tmpfs(Tmpfs),
    /// Answers [`ScanRequest::Surroundings`](crate::effect::ScanRequest::Surroundings).
    Surroundings(Vec<Surroundings>),
    /// Answers [`ScanRequest::Tasks`](crate::effect::ScanRequest::Tasks).
    Tasks(TaskReading),
    /// A user marks a process as kept.
    Adopt(ProcessId),
    /// A client requests a launch, or reconnects to one that is queued or granted.
    Launch(Box<Launch>),
    /// Answers [`ScanRequest::LaunchTasks`](crate::effect::ScanRequest::LaunchTasks).
    LaunchTasks(ProcessId, Vec<TaskLimit>),
    /// Limits of a queued launch's cgroups. Answers [`ScanRequest::CgroupLimits`](crate::effect::ScanRequest::CgroupLimits).
    #[serde(rename = "Room")]
    CgroupLimits(ProcessId, Vec<CgroupLimit>),
    #[serde(rename = "Withdraw")]
    CancelLaunch(ProcessId, Cancellation),
    /// The persisted state of the gate. Sent once, before the first scan.
    Restore(Box<RestoredGate>),
    /// Events while no daemon ran. Sent once, before the first scan.
    Absence(Box<Absence>),
    /// An agent's hook reports a subagent.
    Subagent(SubagentHook),
    /// The cgroup of a granted session.
    Confined(SessionId, Confinement),
    /// Processes in the cgroup of a session, or below it. Answers
    /// [`ScanRequest::CgroupMembers`](crate::effect::ScanRequest::CgroupMembers).
    CgroupMembers(SessionId, Vec<Pid>),
    /// Sent once, at the start.
    #[serde(rename = "Rights")]
    Permissions(Permissions),
    /// Unfinished actions of an earlier run. Sent once, before the first scan.
    #[serde(rename = "Resume")]
    ResumeActions(Vec<ActionLogRecord>),
    /// Answered with [`ClientReply::ActionsStarted`](crate::effect::ClientReply::ActionsStarted).
    #[serde(rename = "Ask")]
    RequestAction(ActionRequest),
    /// Current user ids of the targets of a request.
    UserIds(Vec<(ProcessId, UserIds)>),
    /// Answers [`ActionCommand::Execute`](crate::effect::ActionCommand::Execute).
    #[serde(rename = "Struck")]
    BatchResult(BatchResult),
    /// A user withdraws [`Adopt`](Self::Adopt).
    Unadopt(ProcessId),
    /// Answers [`Effect::PageOut`](crate::effect::Effect::PageOut).
    PagedOut {
        answer: PagedOut,
        /// By how much the memory of compressed swap grew meanwhile; `None` without it.
        #[serde(default)]
        compressed: Option<Bytes>,
    },
    /// A user wants sessions to be paged out.
    RequestReclaim(ReclaimDemand),
    /// Answers [`Effect::AskFleet`](crate::effect::Effect::AskFleet).
    FleetAnswer(Box<AnsweredAsk>),
    /// The fleet's store reports free places, or that it is back.
    FleetWake,
    Tick,
}
