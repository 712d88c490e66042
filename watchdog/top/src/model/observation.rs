//! What is read at one time.

use jiff::Timestamp;
use watchdog_api::{Counts, Finding, Fleet, Host, Queue, Status, StoreState, Tree};

/// All that one screen shows, but for what is computed from earlier observations.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Observation {
    pub(crate) at: Timestamp,
    pub(crate) host: Host,
    pub(crate) counts: Counts,
    /// A session whose processes were not requested has none here.
    pub(crate) tree: Tree,
    /// Open findings.
    pub(crate) findings: Vec<Finding>,
    /// `None` if the source does not know it, as the history.
    pub(crate) gate: Option<GateSummary>,
    /// The daemon is degraded or loses events.
    pub(crate) trouble: Option<String>,
    /// The host belongs to a fleet.
    pub(crate) in_fleet: bool,
    /// `None` if it was not requested.
    pub(crate) fleet: Option<Result<Box<Fleet>, String>>,
}

/// The gate in four numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GateSummary {
    pub(crate) launched: usize,
    pub(crate) waiting: usize,
    pub(crate) free_bytes: u64,
    /// Why the breaker is open.
    pub(crate) breaker: Option<String>,
}

impl From<&Queue> for GateSummary {
    fn from(queue: &Queue) -> Self {
        Self {
            launched: queue.leases.len(),
            waiting: queue.waiting.len(),
            free_bytes: queue.room.free_bytes,
            breaker: queue.breaker.open.then(|| queue.breaker.detail.clone()),
        }
    }
}

/// Why the daemon's answers may be imprecise.
pub(crate) fn trouble(status: &Status) -> Option<String> {
    if !status.tracking.kernel_events {
        Some("degraded: polling /proc".to_owned())
    } else if status.degraded {
        Some("degraded: see `watchdogctl doctor`".to_owned())
    } else if status.fleet.as_ref().is_some_and(|fleet| fleet.store == StoreState::Lost) {
        Some("store of the fleet lost".to_owned())
    } else {
        (status.lost_events > 0).then(|| format!("{} events lost", status.lost_events))
    }
}
