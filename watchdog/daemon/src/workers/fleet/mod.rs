//! The fleet: the threads of its store, and its state for clients and metrics.
//!
//! [`FleetWorkers`] renew this host's row, send requests, and listen. `fleet-query` responds to clients. Without
//! `[fleet] store`, no thread exists.

mod fleet_facts;
mod fleet_host;
mod fleet_snapshot;
mod fleet_view;
mod placement;
mod query_thread;
mod store_capabilities;
mod store_events;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

pub(crate) use fleet_facts::FleetFacts;
use fleet_host::FleetHostId;
pub(crate) use fleet_snapshot::{FleetCounts, FleetScrape};
pub(crate) use placement::PlaceQuery;
pub(crate) use query_thread::FleetQuery;
use query_thread::QueryThread;
use store_events::StoreEvents;

use super::event_sender::EventSender;
use crate::set_aside::StateNotes;
use crate::worker::{self, BoundedSender, CommandReceiver, bounded_channel};
use watchdog_config::Config;
use watchdog_fleet::{FleetStore, FleetWorkers, RedisStore, StoreOptions};
use watchdog_types::{FleetAsk, FleetName, HostRow, HostSummary, PoolName};

/// Pending queries of clients.
const QUERIES: usize = 64;

/// The interface for clients' requests and the metrics.
#[derive(Clone, Debug)]
pub(crate) struct FleetClient {
    pub(crate) facts: Arc<FleetFacts>,
    pub(crate) queries: BoundedSender<FleetQuery>,
}

/// The initial state of the threads, with a connection that is not open yet.
pub(crate) struct FleetSetup {
    store: RedisStore,
    host: FleetHostId,
    ttl: Duration,
    facts: Arc<FleetFacts>,
    queries: CommandReceiver<FleetQuery>,
}

/// The event loop's end.
pub(crate) struct FleetThreads {
    workers: FleetWorkers,
    facts: Arc<FleetFacts>,
}

/// `None` without `[fleet] store`. Does not connect.
///
/// # Errors
///
/// When the password or the identity of this host cannot be read, or the address is invalid.
pub(crate) fn prepare(
    config: &Arc<Config>,
    state_dir: &Path,
    boot_id: &str,
    notes: &StateNotes,
) -> anyhow::Result<Option<(FleetClient, FleetSetup)>> {
    let Some(url) = config.fleet.store.clone() else { return Ok(None) };
    let ttl = config.fleet.ttl;
    let options = StoreOptions {
        url,
        secret: fleet_host::password(config.fleet.password_file.as_deref())?,
        prefix: FleetName::new(config.fleet.prefix.as_str()).context("[fleet] prefix")?,
        ttl,
    };
    let host = FleetHostId::read(&config.fleet, state_dir, boot_id, notes)?;
    let store = RedisStore::new(&options, host.name.clone(), host.incarnation.clone()).context("[fleet] store")?;
    let facts = Arc::new(FleetFacts::new(Arc::clone(config), store.address(), host.name.as_str(), host.shares.clone()));
    let (sender, queries) = bounded_channel(QUERIES);
    let client = FleetClient { facts: Arc::clone(&facts), queries: sender };
    Ok(Some((client, FleetSetup { store, host, ttl, facts, queries })))
}

/// Starts the threads. They end with the event loop, at the latest with the process.
pub(super) fn start(setup: FleetSetup, events: EventSender) -> io::Result<FleetThreads> {
    let FleetSetup { store, host, ttl, facts, queries } = setup;
    let query_thread = QueryThread::new(store.duplicate(), Arc::clone(&facts));
    let store_events = StoreEvents::new(host, Arc::clone(&facts), events);
    let workers = FleetWorkers::start(&store, ttl, move |event| store_events.report(event))?;
    worker::spawn("fleet-query", queries, move || query_thread)?;
    Ok(FleetThreads { workers, facts })
}

#[cfg(test)]
impl FleetClient {
    /// A client whose store is unreachable.
    pub(crate) fn for_test(config: &Arc<Config>, state_dir: &Path) -> Self {
        let (client, setup) = prepare(config, state_dir, "boot", &StateNotes::default()).unwrap().unwrap();
        let FleetSetup { store, facts, queries, .. } = setup;
        std::thread::spawn(move || worker::run(QueryThread::new(store, facts), &queries));
        client
    }
}

impl FleetThreads {
    /// Never waits.
    pub(crate) fn restate(&self, row: HostRow) {
        let summary = HostSummary { version: env!("CARGO_PKG_VERSION").to_owned(), ..row.summary };
        let row = HostRow { summary, ..row };
        let urgent = self.facts.row().is_none_or(|before| frees_slots(&before, &row));
        self.facts.stated(row.clone());
        if urgent { self.workers.restate(row) } else { self.workers.update(row) }
    }

    /// Never waits.
    pub(crate) fn ask(&self, ask: FleetAsk) {
        self.workers.ask(ask);
    }
}

/// Whether a slot was released or the last waiting launch has left the queue: other hosts may wait for it.
fn frees_slots(before: &HostRow, now: &HostRow) -> bool {
    let count = |row: &HostRow, pool| row.held.get(pool).copied().unwrap_or(0);
    let released = before.held.keys().any(|pool| count(before, pool) > count(now, pool));
    let settled = now.settled.0.saturating_sub(before.settled.0);
    let used = count(now, &PoolName::All).saturating_sub(count(before, &PoolName::All));
    released || settled > u64::from(used) || before.waiting > 0 && now.waiting == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use watchdog_types::AskNumber;

    fn row_of(held: u32, settled: u64, waiting: u32) -> HostRow {
        HostRow {
            held: [(PoolName::All, held)].into(),
            limits: [(PoolName::All, 4)].into(),
            settled: AskNumber(settled),
            user_limit: None,
            waiting,
            summary: HostSummary::default(),
        }
    }

    #[test]
    fn only_freed_slots_are_urgent() {
        let before = row_of(2, 2, 0);
        for (now, urgent) in [
            (row_of(2, 2, 0), false),
            (row_of(3, 3, 0), false),
            (row_of(2, 2, 1), false),
            (row_of(1, 2, 0), true),
            (row_of(2, 3, 0), true),
            (row_of(3, 4, 0), true),
        ] {
            assert_eq!(frees_slots(&before, &now), urgent, "{now:?}");
        }
        assert!(frees_slots(&row_of(2, 2, 1), &row_of(2, 2, 0)));
    }
}
