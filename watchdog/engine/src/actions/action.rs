//! Actions: what they are made of, and how they are logged.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::authority::Authority;
use watchdog_api::evidence::ActionEvidence;
use watchdog_api::{ActionKind, FindingKind, ProcessKind};
use watchdog_types::{ActionId, BootTime, Bytes, FindingId, ProcessId, SessionId, Uid};

/// A decided action. It is logged before its first signal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Action {
    pub id: ActionId,
    pub kind: ActionKind,
    #[serde(rename = "by")]
    pub initiator: Initiator,
    #[serde(rename = "grounds")]
    pub justification: Justification,
    /// Send SIGKILL first: there is no time for SIGTERM.
    pub urgent: bool,
    pub finding: Option<(FindingId, FindingKind)>,
    pub session: Option<SessionId>,
    /// The user who, beside root, may see the receipt.
    pub owner: Uid,
    /// The session's user, whose permissions policy has; `None` for an unknown session.
    #[serde(default)]
    pub user: Option<Uid>,
    pub reason: String,
    pub evidence: ActionEvidence,
    /// In the order in which they are signalled.
    pub targets: Vec<TargetSnapshot>,
    /// The session's cgroup. It is killed or frozen as a whole only if it holds exactly the targets.
    pub cgroup: Option<String>,
    pub began: BootTime,
    /// MemAvailable at the start.
    pub available: Bytes,
}

impl Action {
    pub(super) fn authority(&self) -> Authority {
        match self.initiator {
            Initiator::User(uid) => Authority::User(uid),
            Initiator::Policy | Initiator::Emergency => Authority::Session(self.user.unwrap_or(self.owner)),
        }
    }

    pub(super) fn first_operation(&self) -> Operation {
        match self.kind {
            ActionKind::Terminate if self.urgent => Operation::Kill,
            ActionKind::Terminate => Operation::Term,
            ActionKind::Freeze => Operation::Freeze,
            ActionKind::Throttle => Operation::Throttle,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Initiator {
    #[serde(rename = "Person")]
    User(Uid),
    /// The configuration, for a finding.
    Policy,
    /// The configuration, because memory is nearly exhausted.
    Emergency,
}

/// A target as it was when the action was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetSnapshot {
    pub process: ProcessId,
    /// The process that forked it.
    pub parent: Option<ProcessId>,
    pub kind: ProcessKind,
    /// The program or script, without arguments.
    pub name: String,
    pub uid: Uid,
    pub memory: Bytes,
}

/// Why a process may be a target. The exemptions depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Justification {
    /// Its nearest agent is dead.
    #[serde(rename = "LeftBehind")]
    Orphaned,
    /// A helper of a living agent, because of a finding or an emergency.
    Helper,
    /// A user ends the session.
    WholeSession(SessionId),
    /// A user ends a process or a session, kept processes included.
    #[serde(rename = "Kept")]
    IncludingKept(SessionId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Operation {
    /// SIGTERM.
    Term,
    /// SIGKILL, then process_mrelease(2), which frees the memory at once.
    Kill,
    /// SIGSTOP, or the cgroup's freezer.
    Freeze,
    /// SIGCONT, or the cgroup's freezer.
    Thaw,
    /// Lower the cgroup's memory.high to its current usage.
    Throttle,
    /// Restore the cgroup's memory.high.
    #[serde(rename = "Loosen")]
    Unthrottle,
}

/// One operation on several processes, in this order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    pub action: ActionId,
    #[serde(rename = "blow")]
    pub operation: Operation,
    pub targets: Vec<ProcessId>,
    /// Releasing uses root's authority, even if the processes changed their user.
    pub authority: Authority,
    /// [`Operation::Throttle`] and [`Operation::Unthrottle`] always use the cgroup; others only if it holds exactly the
    /// targets.
    pub cgroup: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchResult {
    pub action: ActionId,
    #[serde(rename = "blow")]
    pub operation: Operation,
    pub at: BootTime,
    #[serde(rename = "answers")]
    pub outcomes: Vec<(ProcessId, OperationOutcome)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationOutcome {
    Sent,
    /// Applied to the whole cgroup at once.
    SentToCgroup,
    /// The process was dead, or its pid was reused; no signal was sent.
    #[serde(rename = "Gone")]
    AlreadyExited,
    /// The kernel refused it, with this error.
    Refused(String),
    /// The action's authority does not cover the process; no signal was sent.
    NotPermitted(String),
}

/// A record of the write-ahead log, from which a restarted daemon resumes its actions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ActionLogRecord {
    /// Ids up to this one are used.
    Count(ActionId),
    /// Written before anything is sent.
    Begun(Box<Action>),
    /// Written before each operation.
    #[serde(rename = "Striking")]
    Sending {
        action: ActionId,
        #[serde(rename = "blow")]
        operation: Operation,
        process: ProcessId,
        at: BootTime,
    },
    #[serde(rename = "Struck")]
    Sent {
        action: ActionId,
        #[serde(rename = "blow")]
        operation: Operation,
        process: ProcessId,
        #[serde(rename = "answer")]
        outcome: OperationOutcome,
    },
    #[serde(rename = "Over")]
    Finished(ActionId),
}

impl ActionLogRecord {
    /// The action, or for [`Count`](Self::Count) the last used id.
    #[must_use]
    pub fn action(&self) -> ActionId {
        match self {
            Self::Count(action) | Self::Finished(action) => *action,
            Self::Begun(action) => action.id,
            Self::Sending { action, .. } | Self::Sent { action, .. } => *action,
        }
    }
}

/// The operations that the daemon may execute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permissions {
    /// Why the daemon cannot signal processes of other users; `None` when it can.
    pub missing: Option<String>,
    /// The daemon and its ancestors, which are never targets.
    #[serde(rename = "guarded")]
    pub protected: BTreeSet<ProcessId>,
}
