//! The state of the gate that survives restarts of the daemon.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::launch::{Launch, LaunchLease};
use crate::finding::StoredFinding;
use crate::process::Launcher;
use crate::reclaim::LearnedYields;
use watchdog_types::{BootTime, Bytes, FindingId, LastIds, Lineage, ProcessId, SessionId, Uid};

/// A record of the gate's log. It is written before the client is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateRecord {
    Queued {
        at: BootTime,
        launch: Box<Launch>,
    },
    /// A launch left the queue without a grant.
    Left(ProcessId),
    /// The head of the launches that wait for memory. See [`super::backfill`].
    #[serde(rename = "held_back")]
    Head {
        head: ProcessId,
        /// When the current block began.
        since: BootTime,
        /// Launches that passed this head.
        passed: u32,
        /// Earlier blocks.
        #[serde(default)]
        round: u32,
        /// Launches that passed any head in this round.
        #[serde(default)]
        passed_in_round: u32,
        /// The cgroup whose memory is short; `None` for the host.
        cgroup: Option<String>,
    },
    Granted(LaunchLease),
    /// The command of a lease matches a further profile, whose limits apply too.
    Matched {
        root: ProcessId,
        profile: String,
    },
    Ended(ProcessId),
    SessionBegan {
        root: ProcessId,
        profile: String,
        uid: Uid,
        /// Absent in files of older versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<SessionId>,
        /// The root of the lease that covers the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        granted: Option<ProcessId>,
    },
    /// The last process of the session of this root exited.
    SessionOver(ProcessId),
    /// The lineage of a process whose parent is dead.
    Parted(ProcessId, Lineage),
    Adopted(ProcessId),
    Unadopted(ProcessId),
    /// The process, or a dead ancestor, was started through this launcher.
    Launched(ProcessId, Launcher),
    /// A launch was granted since the host booted. Implied by [`Granted`](Self::Granted).
    GrantedOnce,
    /// Ids up to these are used.
    Ids(LastIds),
    FindingOpened(StoredFinding),
    FindingClosed(FindingId),
}

impl GateRecord {
    /// The ids that this record proves to be used.
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

/// Peak memory of past sessions by profile, oldest first.
pub type Peaks = BTreeMap<String, Vec<Bytes>>;

/// The state that an earlier run persisted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RestoredGate {
    /// In the order in which they were written.
    pub records: Vec<GateRecord>,
    pub peaks: Peaks,
    pub yields: LearnedYields,
    /// Ids up to these are used.
    pub ids: LastIds,
}
