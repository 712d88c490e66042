//! The state of the store as this host knows it: shared by the fleet's threads, clients' requests and the metrics.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::fleet_snapshot::{FleetCounts, FleetScrape, FleetSnapshot};
use super::store_capabilities;
use watchdog_api::{Capability, FleetStatus, StoreState};
use watchdog_config::Config;
use watchdog_fleet::{FleetStoreError, HostCounts, StoreHealth};
use watchdog_host::clock;
use watchdog_types::{BootTime, FleetAnswer, FleetShares, FleetView, HostRow};

#[derive(Debug)]
pub(crate) struct FleetFacts {
    /// Without a password.
    pub(super) address: String,
    pub(super) host: String,
    state: Mutex<StoreFacts>,
}

#[derive(Debug)]
struct StoreFacts {
    config: Arc<Config>,
    snapshot: FleetSnapshot,
    view: Option<(BootTime, FleetView)>,
    shares: FleetShares,
    row: Option<HostRow>,
}

impl FleetFacts {
    pub(super) fn new(config: Arc<Config>, address: &str, host: &str, shares: FleetShares) -> Self {
        let snapshot = FleetSnapshot {
            lost: None,
            problem: None,
            hosts: HostCounts { up: shares.hosts.max(1), unreachable: 0 },
            counts: FleetCounts::default(),
            health: None,
        };
        Self {
            address: address.to_owned(),
            host: host.to_owned(),
            state: Mutex::new(StoreFacts { config, snapshot, view: None, shares, row: None }),
        }
    }

    pub(crate) fn reconfigure(&self, config: Arc<Config>) {
        self.state().config = config;
    }

    pub(super) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.state().config)
    }

    /// The store accepted a restatement. Returns how long it had been lost.
    pub(super) fn renewed(&self, hosts: HostCounts, shares: FleetShares, problem: Option<String>) -> Option<Duration> {
        let mut state = self.state();
        state.shares = shares;
        state.snapshot.counts.renewals += 1;
        let hosts = HostCounts { up: hosts.up.max(1), ..hosts };
        (state.snapshot.hosts, state.snapshot.problem) = (hosts, problem);
        state.snapshot.lost.take().map(|(since, _)| clock::now().since(since))
    }

    pub(super) fn renewal_failed(&self) {
        self.state().snapshot.counts.failed_renewals += 1;
    }

    /// Returns whether it was up until now.
    pub(super) fn lost(&self, why: String) -> bool {
        let mut state = self.state();
        let is_new = state.snapshot.lost.is_none();
        let since = state.snapshot.lost.as_ref().map_or_else(clock::now, |(since, _)| *since);
        state.snapshot.lost = Some((since, why));
        is_new
    }

    pub(super) fn stated(&self, row: HostRow) {
        self.state().row = Some(row);
    }

    /// The last row of the engine.
    pub(super) fn row(&self) -> Option<HostRow> {
        self.state().row.clone()
    }

    pub(super) fn is_lost(&self) -> bool {
        self.state().snapshot.lost.is_some()
    }

    pub(super) fn hosts(&self) -> HostCounts {
        self.state().snapshot.hosts
    }

    /// As the store last stated them.
    pub(super) fn shares(&self) -> FleetShares {
        self.state().shares.clone()
    }

    pub(super) fn answered(&self, answer: &FleetAnswer) {
        let name = match answer {
            FleetAnswer::Granted { .. } => "granted",
            FleetAnswer::Refused { .. } => "refused",
            FleetAnswer::Void => "void",
            FleetAnswer::StoreLost { .. } => "store_lost",
            FleetAnswer::Paused { .. } => "paused",
            FleetAnswer::DuplicateMachine { .. } => "duplicate_machine",
        };
        *self.state().snapshot.counts.asks.entry(name).or_default() += 1;
    }

    pub(super) fn viewed(&self, view: FleetView) {
        self.state().view = Some((clock::now(), view));
    }

    /// The last view, and when it was read.
    pub(super) fn view(&self) -> Option<(BootTime, FleetView)> {
        self.state().view.clone()
    }

    pub(super) fn examined(&self, health: Result<StoreHealth, FleetStoreError>) {
        self.state().snapshot.health = Some(health);
    }

    pub(super) fn snapshot(&self) -> FleetSnapshot {
        self.state().snapshot.clone()
    }

    pub(crate) fn scrape(&self) -> FleetScrape {
        let state = self.state();
        FleetScrape { snapshot: state.snapshot.clone(), row: state.row.clone() }
    }

    pub(crate) fn status(&self) -> FleetStatus {
        let FleetSnapshot { lost, problem, hosts, .. } = self.snapshot();
        FleetStatus {
            host: self.host.clone(),
            store: if lost.is_some() { StoreState::Lost } else { StoreState::Up },
            address: self.address.clone(),
            problem: lost.map(|(_, why)| why).or(problem),
            hosts: hosts.up.into(),
        }
    }

    /// The rows of `doctor`.
    pub(crate) fn capabilities(&self) -> Vec<Capability> {
        store_capabilities::of(&self.address, &self.snapshot())
    }

    fn state(&self) -> MutexGuard<'_, StoreFacts> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
