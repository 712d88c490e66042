//! `GET /v1/events`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ActionKind, Cause};

/// The last events, for `watchdogctl events --json` without `--follow`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Events {
    /// The oldest first.
    pub events: Vec<Event>,
}

/// One line of the stream of `GET /v1/events?follow=true`. A long text or list of arguments is cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Event {
    /// Increases by one with each event. After a gap the missing events were dropped from the journal.
    pub seq: u64,
    /// RFC 3339.
    pub at: String,
    /// Null if the event concerns no process.
    pub pid: Option<u32>,
    /// Field 22 of /proc/PID/stat.
    pub start_time: Option<u64>,
    /// The session of the process.
    pub session: Option<u64>,
    /// The type, and the members that depend on it.
    #[serde(flatten)]
    pub detail: EventDetail,
}

/// The type of an event, with its members.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventDetail {
    /// An agent was recognised.
    SessionStarted {
        /// The profile that matched it.
        profile: String,
    },
    /// The last process of a session exited.
    SessionEnded,
    /// A process was forked.
    Fork {
        /// The parent that forked it; null if unknown.
        parent_pid: Option<u32>,
        /// That parent's start, field 22 of /proc/PID/stat.
        parent_start_time: Option<u64>,
    },
    /// A process executed a program.
    Exec {
        /// comm after the exec.
        comm: String,
        /// The executed file.
        path: String,
        /// The arguments.
        argv: Vec<String>,
        /// Arguments are missing or cut.
        argv_truncated: bool,
    },
    /// A process exited. Both the code and the signal are null if that was not observed.
    Exit {
        /// Its exit code.
        exit_code: Option<u8>,
        /// The signal that killed it.
        signal: Option<u8>,
        /// The highest resident set; 0 if unknown.
        peak_bytes: u64,
    },
    /// A signal whose default action terminates was sent to the process.
    Signal {
        /// Its number.
        signal: u8,
        /// Pid of the sender.
        sender_pid: u32,
        /// The sender's start, field 22 of /proc/PID/stat.
        sender_start_time: u64,
        /// The sender's comm.
        sender_comm: String,
        /// The sender's user.
        sender_uid: u32,
        /// Neither ignored nor already pending.
        delivered: bool,
    },
    /// The OOM killer killed the process.
    Oom {
        /// The victim's comm.
        comm: String,
    },
    /// Why a process exited, about a second later.
    Death {
        /// The cause, in one word.
        cause: Cause,
        /// The cause, in one paragraph for people.
        summary: String,
    },
    /// A finding opened, changed or closed.
    Finding {
        /// Its id.
        finding: u64,
        /// Its kind.
        kind: String,
        /// `opened`, `changed` or `closed`.
        change: String,
        /// One sentence for people.
        summary: String,
    },
    /// An action on processes.
    Action {
        /// Its id.
        action: u64,
        /// What it does.
        kind: ActionKind,
        /// `begun` or `over`.
        change: String,
        /// The reason, or the result once there is one.
        summary: String,
    },
    /// Policy skips an action that is due.
    ActionsHeldBack {
        /// Why.
        detail: String,
    },
    /// The gate granted a launch.
    LaunchGranted {
        /// The profile of the agent.
        profile: String,
        /// How long the launch waited, in milliseconds.
        waited_ms: u64,
    },
    /// The breaker opened or closed.
    Breaker {
        /// It refuses all launches now.
        open: bool,
        /// Why.
        detail: String,
    },
    /// Idle sessions were paged out.
    PagedOut {
        /// The number of the run.
        run: u64,
        /// The result, in one sentence.
        summary: String,
    },
    /// The process table was reconciled with /proc after lost events.
    Reconciled {
        /// Records that the kernel dropped.
        lost: u64,
        /// Processes that were missing.
        added: u64,
        /// Processes that had exited.
        removed: u64,
    },
    /// The process waited while the kernel reclaimed memory for it.
    Reclaim {
        /// How long.
        stalled_seconds: f64,
    },
    /// The kernel programs denied the process something.
    Denied {
        /// Its comm.
        comm: String,
        /// What it attempted.
        #[serde(flatten)]
        attempt: DeniedAttempt,
    },
    /// The memory of the process has changed by a step, under close watch.
    MemoryStep {
        /// anon + shmem + swap.
        memory_bytes: u64,
    },
    /// This client reads too slowly, and events were skipped.
    Gap {
        /// How many.
        missed: u64,
    },
    /// Of another version. For reading only.
    #[serde(untagged)]
    #[cfg_attr(feature = "openapi", schemars(skip))]
    Other(OtherEvent),
}

/// What the kernel programs denied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(tag = "attempt", rename_all = "snake_case")]
pub enum DeniedAttempt {
    /// A fork beyond the process limit of its session.
    Fork {
        /// Pid of the session's agent.
        root_pid: u32,
        /// That agent's start, field 22 of /proc/PID/stat.
        root_start_time: u64,
        /// Processes of the session.
        live: u32,
        /// Their limit.
        bound: u32,
        /// Forks of the session that were denied so far.
        refused: u64,
    },
    /// The start of an agent that is denied outside the gate.
    Exec {
        /// Its parent.
        ppid: u32,
        /// The file.
        path: String,
        /// It was killed; false if the exec failed.
        killed: bool,
    },
}

/// An event of an unknown type, or with unknown members.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OtherEvent {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its other members.
    #[serde(flatten)]
    pub members: Map<String, Value>,
}

impl EventDetail {
    /// The type, as in JSON.
    #[must_use]
    pub fn kind(&self) -> &str {
        match self {
            Self::SessionStarted { .. } => "session_started",
            Self::SessionEnded => "session_ended",
            Self::Fork { .. } => "fork",
            Self::Exec { .. } => "exec",
            Self::Exit { .. } => "exit",
            Self::Signal { .. } => "signal",
            Self::Oom { .. } => "oom",
            Self::Death { .. } => "death",
            Self::Finding { .. } => "finding",
            Self::Action { .. } => "action",
            Self::ActionsHeldBack { .. } => "actions_held_back",
            Self::LaunchGranted { .. } => "launch_granted",
            Self::Breaker { .. } => "breaker",
            Self::PagedOut { .. } => "paged_out",
            Self::Reconciled { .. } => "reconciled",
            Self::Reclaim { .. } => "reclaim",
            Self::Denied { .. } => "denied",
            Self::MemoryStep { .. } => "memory_step",
            Self::Gap { .. } => "gap",
            Self::Other(other) => &other.kind,
        }
    }
}
