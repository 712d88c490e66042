//! The values that clients, `doctor` and the metrics read about the store.

use std::collections::BTreeMap;

use watchdog_fleet::{FleetStoreError, HostCounts, StoreHealth};
use watchdog_types::{BootTime, HostRow};

/// The state of the store, as this host last saw it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FleetSnapshot {
    /// Since when it has not responded, and why. `None` before the first attempt.
    pub(crate) lost: Option<(BootTime, String)>,
    /// Why it grants nothing although it responds.
    pub(crate) problem: Option<String>,
    /// When it was last read.
    pub(crate) hosts: HostCounts,
    pub(crate) counts: FleetCounts,
    pub(crate) health: Option<Result<StoreHealth, FleetStoreError>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FleetScrape {
    pub(crate) snapshot: FleetSnapshot,
    pub(crate) row: Option<HostRow>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FleetCounts {
    pub(crate) renewals: u64,
    pub(crate) failed_renewals: u64,
    /// Requests by the name of their response.
    pub(crate) asks: BTreeMap<&'static str, u64>,
}

#[cfg(test)]
impl FleetScrape {
    /// A host with one of four slots.
    pub(crate) fn example() -> Self {
        use watchdog_types::{AskNumber, HostSummary, PoolName};
        let counts = FleetCounts { renewals: 1, ..FleetCounts::default() };
        let row = HostRow {
            held: [(PoolName::All, 1)].into(),
            limits: [(PoolName::All, 4)].into(),
            settled: AskNumber(1),
            user_limit: None,
            waiting: 0,
            summary: HostSummary::default(),
        };
        Self {
            snapshot: FleetSnapshot {
                lost: None,
                problem: None,
                hosts: HostCounts { up: 2, unreachable: 1 },
                counts,
                health: None,
            },
            row: Some(row),
        }
    }
}

impl FleetCounts {
    /// The names of responses.
    pub(crate) const ANSWERS: [&'static str; 6] =
        ["granted", "refused", "void", "store_lost", "paused", "duplicate_machine"];
}
