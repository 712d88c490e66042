//! The gate: what grants launches. A launch is granted when every quota, the rate, the depth, the breaker and the memory allow
//! it; else it waits in the queue, or is refused with the bound that is in its way.
//!
//! A place in the queue and a lease belong to a process, never to a connection: whoever comes back finds its place, and a
//! lease ends with the agent's exit.

mod admission;
mod backfill;
mod breaker;
mod confined;
mod desk;
mod learned;
mod lease;
mod line;
mod profiles;
mod restore;
mod share;
mod show;
mod subagents;
mod ungated;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::backfill::Heads;
use self::breaker::Breaker;
use self::confined::Confined;
use self::line::Line;
use self::subagents::Subagents;
use super::finding::StoredFinding;
use super::id::{BootTime, Bytes, FindingId, LastIds, Pid, ProcessId, SessionId, Uid};
use super::input::{CgroupLimit, Image, Lineage};
use super::process::Launcher;
use crate::api::{RefusalReason, SubagentEvent};

/// A request for a launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// The process that is to become the agent.
    pub process: ProcessId,
    /// Its parent.
    pub ppid: Pid,
    /// Its user.
    pub uid: Uid,
    /// comm now: the launcher's.
    pub comm: String,
    /// What it will execute.
    pub image: Image,
    /// The profile that was asked for; else the one that recognises the image.
    pub profile: Option<String>,
    /// Higher goes first.
    pub priority: i32,
    /// How long it is willing to wait; `None` for what the configuration says.
    pub timeout: Option<Duration>,
    /// It is willing to wait at all.
    pub waits: bool,
    /// What it is expected to take, where that was said.
    pub memory: Option<Bytes>,
    /// Those of its cgroup and the cgroups above it that have a limit.
    #[serde(default)]
    pub cgroups: Vec<CgroupLimit>,
}

/// Why a waiting launch is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Withdrawal {
    /// Its client has gone, or does not want it any more.
    Gone,
    /// Somebody took it out of the queue.
    Cancelled,
}

/// A granted launch, by the process that it was granted to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    /// The root of the session.
    pub process: ProcessId,
    /// The profile whose bounds hold.
    pub profile: String,
    /// Its user.
    pub uid: Uid,
    /// When it was granted.
    pub granted: BootTime,
    /// What it was expected to take.
    pub expected: Bytes,
    /// The cgroups under whose limits it was granted.
    #[serde(default)]
    pub cgroups: Vec<String>,
}

/// What is to be done about a grant, and said of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Granted {
    /// The lease.
    pub lease: Lease,
    /// Its session.
    pub session: SessionId,
    /// How long it waited.
    pub waited: Duration,
    /// Variables to be merged into its environment.
    pub environment: BTreeMap<String, String>,
    /// At least this much is to stand in its oom_score_adj.
    pub oom_score_adj: i32,
    /// What the session is held to.
    pub limits: Bounds,
}

/// What the kernel holds a session to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// What all its processes together may take.
    pub max_memory: Option<Bytes>,
    /// Helpers that may run at once, the agent not counted.
    pub max_helpers: Option<u32>,
    /// How deep agents may start agents.
    pub max_depth: Option<u32>,
    /// It is to get a cgroup of its own where it has a bound that a cgroup can hold.
    pub cgroup: bool,
}

/// Why a launch is not granted, or not yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Obstacle {
    /// In one word.
    pub reason: RefusalReason,
    /// In one sentence: the bound, its value, and what there is.
    pub detail: String,
    /// The bound, as the configuration names it.
    pub bound: String,
    /// The sessions that hold the places.
    pub holders: Vec<SessionId>,
    /// When it is worth another try; `None` when it never is.
    pub retry_after: Option<Duration>,
}

/// A launch that is refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refused {
    /// Who asked.
    pub process: ProcessId,
    /// Its user.
    pub uid: Uid,
    /// The profile whose bounds would have held.
    pub profile: String,
    /// Why.
    pub obstacle: Obstacle,
}

/// A launch that waits: told when its place or its reason changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// Who waits.
    pub process: ProcessId,
    /// 1 for the one that goes next.
    pub position: u64,
    /// What it waits for.
    pub obstacle: Obstacle,
    /// How long it will take, judged by the last grants.
    pub estimate: Option<Duration>,
}

/// What the gate, and whoever acts, has to know after the daemon was gone: written, in this order, before anybody is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateRecord {
    /// A launch began to wait.
    Queued {
        /// Since when.
        at: BootTime,
        /// It.
        launch: Box<Launch>,
    },
    /// It waits no longer.
    Left(ProcessId),
    /// It is the first that waits for memory, and holds others back from time to time.
    HeldBack {
        /// It.
        head: ProcessId,
        /// When it last began to.
        since: BootTime,
        /// Launches that have passed it.
        passed: u32,
        /// How often others were held back before; an older version did not count that.
        #[serde(default)]
        round: u32,
        /// Launches that have passed a head since it last began to.
        #[serde(default)]
        passed_in_round: u32,
        /// The cgroup whose memory it waits for; `None` for the host's.
        cgroup: Option<String>,
    },
    /// A launch was granted; it waits no longer.
    Granted(Lease),
    /// The command of a lease matches another profile than the one that was named, and that one limits it too.
    Matched {
        /// The root of the lease.
        root: ProcessId,
        /// The other profile.
        profile: String,
    },
    /// Its agent is gone.
    Ended(ProcessId),
    /// A session began: its members may outlive its agent.
    SessionBegan {
        /// Its root.
        root: ProcessId,
        /// Its profile.
        profile: String,
        /// Its user.
        uid: Uid,
        /// Its id; `None` in what an older version wrote.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<SessionId>,
        /// The root of the launch that it belongs to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        granted: Option<ProcessId>,
    },
    /// Nobody of the session of this root is left.
    SessionOver(ProcessId),
    /// The parent of this process is dead, and this is where it belongs.
    Parted(ProcessId, Lineage),
    /// A person said that it is meant to stay,
    Adopted(ProcessId),
    /// and took that back.
    Unadopted(ProcessId),
    /// It was started through this, or what forked it was and is dead.
    Launched(ProcessId, Launcher),
    /// Ids up to these were given.
    Ids(LastIds),
    /// A finding opened.
    FindingOpened(StoredFinding),
    /// A finding closed.
    FindingClosed(FindingId),
}

impl GateRecord {
    /// The ids that it shows were given.
    #[must_use]
    pub fn ids(&self) -> LastIds {
        match self {
            Self::Ids(ids) => *ids,
            Self::SessionBegan { id: Some(session), .. } => LastIds { session: *session, ..LastIds::default() },
            Self::FindingOpened(stored) => LastIds { finding: stored.id(), ..LastIds::default() },
            Self::FindingClosed(finding) => LastIds { finding: *finding, ..LastIds::default() },
            _ => LastIds::default(),
        }
    }
}

/// The highest memory of past sessions, by profile; the youngest last.
pub type Peaks = BTreeMap<String, Vec<Bytes>>;

/// What an earlier run of the daemon knew.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Restored {
    /// In the order in which they were written.
    pub records: Vec<GateRecord>,
    /// What past sessions took.
    pub peaks: Peaks,
    /// No id up to these may be given again.
    pub ids: LastIds,
}

/// An agent's hook tells of a subagent inside the agent's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subagent {
    /// The process that tells: one below the agent.
    pub caller: ProcessId,
    /// What.
    pub event: SubagentEvent,
    /// The call's own number, where the agent gives one.
    pub call: Option<String>,
}

/// The answer to [`Subagent`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubagentDecision {
    /// Why it may not start; `None` when it may.
    pub obstacle: Option<Obstacle>,
    /// The session, where the caller is in one.
    pub session: Option<SessionId>,
    /// Subagents of this session that run now.
    pub running: u64,
    /// As many may.
    pub max_subagents: Option<u32>,
}

/// What became of a session's cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Confinement {
    /// Its path below the root of the hierarchy.
    pub cgroup: Option<String>,
    /// Why there is none.
    pub problem: Option<String>,
}

/// The profile of a launch that no profile recognises.
pub const UNPROFILED: &str = "other";

/// Grants that the estimate of a wait is made of.
const ESTIMATE_BY: usize = 8;
/// When it is worth another try where nothing tells.
const SOME_TIME: Duration = Duration::from_secs(30);
/// The host's memory moves within this time.
const MEMORY_MOVES: Duration = Duration::from_secs(15);
/// Positions up to this are told at once when they change, the others with the next tick.
const TOLD_AT_ONCE: u64 = 16;

/// The gate's state.
#[derive(Debug, Default)]
pub(super) struct Gate {
    line: Line,
    /// The launches that hold others back from time to time.
    heads: Heads,
    leases: BTreeMap<ProcessId, Held>,
    /// What all sessions held when the host's memory was last read.
    held: Bytes,
    /// Grants of late, the oldest first: rates are made of them.
    recent: VecDeque<Recent>,
    /// When those were granted that had to wait: the next may take as long.
    served: VecDeque<BootTime>,
    /// Refusals of late, the oldest first.
    refused: VecDeque<(BootTime, Refused)>,
    breaker: Breaker,
    peaks: Peaks,
    subagents: Subagents,
    confined: Confined,
    /// When the places of those who waited for an earlier run of the daemon were taken up.
    restored: Option<BootTime>,
    /// Scans since the start, as far as they matter.
    scans: u8,
    /// As of the last decision nobody may pass.
    shut: bool,
    /// The cgroup whose room was looked at last.
    looked: Option<String>,
}

/// A grant that rates count.
#[derive(Clone, Debug)]
struct Recent {
    lease: Lease,
    matched: Vec<String>,
}

/// A lease, and what has become of what it promised.
#[derive(Debug)]
struct Held {
    lease: Lease,
    matched: Vec<String>,
    /// `None` until the table has the process.
    session: Option<SessionId>,
    /// The most that its session held when the host's memory was last read.
    shown: Bytes,
}

impl Held {
    /// What was set aside for it and has not shown yet.
    fn promised(&self, now: BootTime, hold: Duration) -> Bytes {
        if now.since(self.lease.granted) >= hold {
            return Bytes(0);
        }
        Bytes(self.lease.expected.0.saturating_sub(self.shown.0))
    }
}

impl Gate {
    /// The cgroup that holds a session, if it has one of its own.
    pub(super) fn cgroup_of(&self, session: SessionId) -> Option<String> {
        self.confined.path(session)
    }

    /// The lease whose root this is.
    pub(super) fn lease(&self, process: ProcessId) -> Option<&Lease> {
        self.leases.get(&process).map(|held| &held.lease)
    }

    /// When the subagent ended to which a helper belongs that was started at this moment, as far as hooks tell.
    pub(super) fn finished_subagent(&self, session: SessionId, started: BootTime) -> Option<BootTime> {
        self.subagents.finished(session, started)
    }

    /// How long until something here is due: the end of a launch's timeout, or of the time for which one holds others back.
    pub(super) fn due(&self, now: BootTime, head_blocks_for: Duration) -> Option<Duration> {
        let timeouts = self.line.iter().map(|(_, waiter)| waiter.deadline.since(now));
        let heads = self.heads.values().filter_map(|known| known.blocks(now, head_blocks_for));
        timeouts.chain(heads).min()
    }
}

/// Appends to what is remembered of late, the oldest of which makes room.
fn push_bounded<T>(last: &mut VecDeque<T>, one: T, most: usize) {
    last.push_back(one);
    if last.len() > most {
        last.pop_front();
    }
}
