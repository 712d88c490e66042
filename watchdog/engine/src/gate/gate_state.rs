//! The gate's state.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::backfill::Heads;
use super::breaker::BreakerState;
use super::cgroup_membership::CgroupMembership;
use super::fleet_state::FleetGate;
use super::gate_record::Peaks;
use super::launch::{HOST_RESERVE, LaunchLease, LaunchRefusal};
use super::queue::{LaunchQueue, QueuedLaunch};
use super::recent::RecentGrant;
use super::subagents::SubagentTracker;
use watchdog_api::RefusalReason;
use watchdog_types::{BootTime, Bytes, ProcessId, SessionId};

#[derive(Debug, Default)]
pub(crate) struct GateState {
    pub(super) queue: LaunchQueue,
    /// Launches that wait for memory and block others from time to time.
    pub(super) heads: Heads,
    pub(super) leases: BTreeMap<ProcessId, ActiveLease>,
    /// Launches that the fleet is asked about. They are in the queue, too.
    pub(super) reserved: BTreeMap<ProcessId, ActiveLease>,
    pub(super) fleet: FleetGate,
    /// Memory of all sessions when the host's memory was last read.
    pub(super) session_memory: Bytes,
    /// A launch was granted since the host booted, also by an earlier daemon.
    pub(super) granted_once: bool,
    /// Oldest first. Rate limits count these.
    pub(super) recent: VecDeque<RecentGrant>,
    /// Grant times of launches that had to wait. Wait estimates use these.
    pub(super) served: VecDeque<BootTime>,
    /// Oldest first.
    pub(super) refused: VecDeque<(BootTime, LaunchRefusal)>,
    pub(super) breaker: BreakerState,
    pub(super) peaks: Peaks,
    pub(super) subagents: SubagentTracker,
    pub(super) cgroup_membership: CgroupMembership,
    /// When the queue of an earlier run was restored.
    pub(super) restored: Option<BootTime>,
    /// Scans since the start, up to two.
    pub(super) scans: u8,
    /// The last decision found a blocker that applies to every launch.
    pub(super) all_blocked: bool,
    /// The cgroup whose limits were read last.
    pub(super) last_refreshed: Option<String>,
}

/// A lease whose agent is running.
#[derive(Debug)]
pub(super) struct ActiveLease {
    pub(super) lease: LaunchLease,
    pub(super) matched: Vec<String>,
    /// `None` until the table has the process.
    pub(super) session: Option<SessionId>,
    /// Highest memory of its session at any read of the host's memory.
    pub(super) shown: Bytes,
}

impl ActiveLease {
    /// Expected memory that the session does not use yet. It stays committed for `hold` after the grant.
    pub(super) fn promised(&self, now: BootTime, hold: Duration) -> Bytes {
        if now.since(self.lease.granted) >= hold {
            return Bytes(0);
        }
        Bytes(self.lease.expected.0.saturating_sub(self.shown.0))
    }
}

impl GateState {
    pub(crate) fn new(fleet: FleetGate) -> Self {
        Self { fleet, ..Self::default() }
    }

    /// Leases, and reservations of launches that the fleet is asked about.
    pub(super) fn commitments(&self) -> impl Iterator<Item = &ActiveLease> {
        self.leases.values().chain(self.reserved.values())
    }

    pub(crate) fn cgroup_of(&self, session: SessionId) -> Option<String> {
        self.cgroup_membership.path(session)
    }

    /// A launch waits because the host is short of memory.
    pub(crate) fn waits_for_host_memory(&self) -> bool {
        let waits = |waiter: &QueuedLaunch| match &waiter.blocker {
            Some(blocker) => match blocker.reason {
                RefusalReason::Breaker => true,
                RefusalReason::Memory => blocker.bound == HOST_RESERVE,
                _ => false,
            },
            None => false,
        };
        self.queue.iter().any(|(_, waiter)| waits(waiter))
    }

    pub(crate) fn lease(&self, process: ProcessId) -> Option<&LaunchLease> {
        self.leases.get(&process).map(|active| &active.lease)
    }

    /// When the only subagent that ran at this time finished; a helper started then belonged to it.
    pub(crate) fn finished_subagent(&self, session: SessionId, started: BootTime) -> Option<BootTime> {
        self.subagents.finished(session, started)
    }

    /// Time until the next timeout of a launch, end of a block, or repeated ask.
    pub(crate) fn due(&self, now: BootTime, head_blocks_for: Duration) -> Option<Duration> {
        let timeouts = self.queue.iter().map(|(_, waiter)| waiter.deadline.since(now));
        let heads = self.heads.values().filter_map(|known| known.blocks(now, head_blocks_for));
        let fleet = self.fleet.due().map(|due| due.since(now));
        timeouts.chain(heads).chain(fleet).min()
    }
}
