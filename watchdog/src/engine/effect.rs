//! Everything that the engine ever asks for. The shell carries it out; the engine never waits for it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::act::{Action, Authority, Wave};
use super::deaths::Death;
use super::gate::{Bounds, GateRecord, Granted, Peaks, Refused, SubagentDecision, Waits};
use super::id::{ActionId, BootTime, FindingId, LastIds, Pid, ProcessId, SessionId};
use super::input::{Attempt, ExitStatus, Image, Lineage};
use crate::api::{ActionKind, Cause};

/// One thing that the engine asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// Put the process into the kernel's map, or change its entry.
    Track(ProcessId, Lineage),
    /// Take the process out of the kernel's map.
    Untrack(ProcessId),
    /// Look at the process in /proc and answer with [`Input::Inspected`](super::input::Input::Inspected).
    Inspect(ProcessId),
    /// Scan /proc and answer with [`Input::Scan`](super::input::Input::Scan).
    Rescan,
    /// Measure the process's proportional memory and answer with a sample.
    MeasureShared(ProcessId),
    /// Look for containers that began in this span, and answer with
    /// [`Input::Containers`](super::input::Input::Containers) for the client.
    FindContainers {
        /// The `docker run` (or podman, nerdctl) that asked for the container.
        client: ProcessId,
        /// No container of the client is older.
        from: BootTime,
        /// No container of the client is younger.
        to: BootTime,
    },
    /// Look for the ceilings of the process's memory, and answer with [`Input::Limits`](super::input::Input::Limits); not
    /// at all when it is gone.
    FindLimits(ProcessId),
    /// The OOM killer made its choice: look for what it leaves, at once, since cgroups go with their last process, and answer
    /// with [`Input::OomSeen`](super::input::Input::OomSeen).
    LookIntoOom {
        /// The choice's number.
        number: u64,
        /// The victim.
        victim: Pid,
        /// The tightest cgroup above it, as far as that is known.
        cgroup: Option<String>,
        /// Whose oom_score_adj is wanted besides.
        others: Vec<Pid>,
    },
    /// A process of a session died, or the OOM killer took another, in a way that is worth remembering.
    Died(Box<Death>),
    /// Look at what these processes have done so far, and answer with [`Input::Activity`](super::input::Input::Activity).
    LookAtActivity(Vec<ProcessId>),
    /// Look at the files on each tmpfs, and answer with [`Input::Tmpfs`](super::input::Input::Tmpfs).
    LookAtTmpfs,
    /// Attach (or detach) the memory programs.
    CloseWatch(bool),
    /// Write this down before anybody is answered.
    Remember(GateRecord),
    /// Keep that ids up to these may be given, so that no later run gives them again.
    ReserveIds(LastIds),
    /// Hold the session of this root to these bounds, in the kernel, and let it through the exec hook.
    Bound(ProcessId, Bounds),
    /// The session of this root is over: nothing is to be held any more.
    Unbound(ProcessId),
    /// Tell the client of its grant, when all that was asked for before is done; confine its session first.
    Granted(Box<Granted>),
    /// Tell the client that its launch is refused.
    Refused(Box<Refused>),
    /// Tell the client where it stands.
    Waits(Box<Waits>),
    /// Keep what sessions took, for the next run of the daemon.
    Learned(Peaks),
    /// The answer to [`Input::Subagent`](super::input::Input::Subagent).
    Subagent(SubagentDecision),
    /// Look at the limits of the process's cgroups, and answer with
    /// [`Input::Room`](super::input::Input::Room).
    FindRoom(ProcessId),
    /// Look at the host's memory now, and answer with [`Input::Host`](super::input::Input::Host).
    LookAtHost,
    /// Look who is in this cgroup of a session, and answer with
    /// [`Input::CgroupMembers`](super::input::Input::CgroupMembers).
    LookIntoCgroup(SessionId, String),
    /// Raise the process's oom_score_adj to this, unless it is higher.
    RaiseOomScore(ProcessId, i32),
    /// End a process that was started past the gate, which the configuration denies, with this power.
    EndUngated(ProcessId, Authority),
    /// An action is decided: write it down before anything is done.
    BeginAction(Box<Action>),
    /// Do this, and answer with [`Input::Struck`](super::input::Input::Struck).
    Strike(Box<Wave>),
    /// Tell how far an action is: it is over, or holds.
    Receipt(ActionId),
    /// Nothing more is done in this action.
    EndAction(ActionId),
    /// Answer whoever asked to act: these actions were begun, or let go.
    Asked(Vec<ActionId>),
    /// Write into the journal.
    Journal(JournalEntry),
    /// A finding opened this long after its cause.
    Latency(Duration),
}

/// A line of the journal: what `watchdogctl events` shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// When it happened.
    pub at: BootTime,
    /// Whom it concerns.
    pub process: Option<ProcessId>,
    /// Its session.
    pub session: Option<SessionId>,
    /// What.
    pub what: Happening,
}

/// What a journal entry tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Happening {
    /// An agent was recognised, and its session began.
    SessionStarted {
        /// The profile's name.
        profile: String,
    },
    /// The last process of a session is gone.
    SessionEnded,
    /// A fork.
    Fork {
        /// Who forked it.
        parent: Option<ProcessId>,
    },
    /// An exec.
    Exec {
        /// comm after it.
        comm: String,
        /// What was executed.
        image: Image,
    },
    /// An exit.
    Exit {
        /// How.
        status: Option<ExitStatus>,
        /// Highest resident set, in bytes.
        peak_bytes: u64,
    },
    /// A signal that ends processes.
    Signal {
        /// Its number.
        signal: u8,
        /// Who sent it.
        sender: ProcessId,
        /// The sender's comm.
        sender_comm: String,
        /// The sender's user.
        sender_uid: u32,
        /// It was neither ignored nor pending.
        delivered: bool,
    },
    /// The OOM killer took a process.
    Oom {
        /// Its comm.
        comm: String,
    },
    /// Why a process died, a second after its exit.
    Died {
        /// In one word.
        cause: Cause,
        /// In one sentence.
        summary: String,
    },
    /// A finding opened, changed, or closed.
    Finding {
        /// Which.
        finding: FindingId,
        /// `orphan`, `detached`, …
        kind: String,
        /// `opened`, `changed` or `closed`.
        change: String,
        /// In one sentence.
        summary: String,
    },
    /// An action began, or is over.
    Action {
        /// Which.
        action: ActionId,
        /// What is done.
        kind: ActionKind,
        /// `begun` or `over`.
        change: String,
        /// In one sentence: why, or what came of it.
        summary: String,
    },
    /// Policy would act, and does not.
    ActionsHeldBack {
        /// Why, in one sentence.
        detail: String,
    },
    /// A launch was granted.
    LaunchGranted {
        /// The profile whose bounds hold.
        profile: String,
        /// How long it waited, in milliseconds.
        waited_ms: u64,
    },
    /// The breaker opened or closed.
    Breaker {
        /// It is open now.
        open: bool,
        /// Why.
        detail: String,
    },
    /// Events were lost, and the table was brought back into line with /proc.
    Reconciled {
        /// Records that the kernel dropped.
        lost: u64,
        /// Processes that the table did not have.
        added: u64,
        /// Processes that were gone.
        removed: u64,
    },
    /// An allocation had to wait for reclaim.
    Reclaim {
        /// Microseconds.
        stalled_us: u64,
    },
    /// A fork beyond a session's bound, or an exec past the gate, was refused by the kernel programs.
    Denied {
        /// The comm of who wanted to.
        comm: String,
        /// What.
        what: Attempt,
    },
    /// A step of memory in close watch.
    MemoryStep {
        /// anon + shmem + swap, in bytes.
        memory_bytes: u64,
    },
}
