//! A host of the fleet with one connection, as far as the store sees it.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use watchdog_fleet::{FleetStore, RedisStore, Restated, StoreOptions};
use watchdog_host::clock;
use watchdog_tests::RedisServer;
use watchdog_types::{
    AskNumber, BootTime, Bytes, FleetAnswer, FleetAsk, FleetName, HostIncarnation, HostRow, HostSummary, PoolName,
};

/// Each launch takes a place in two pools: of all sessions, and of its user.
pub(super) const USERS: usize = 20;

pub(super) struct SimulatedHost {
    pub(super) store: RedisStore,
    pub(super) row: HostRow,
    pools: BTreeMap<PoolName, u32>,
    last: u64,
    waits_since: Option<BootTime>,
}

impl SimulatedHost {
    /// A host whose row is stated, and whose store grants.
    pub(super) fn join(server: &RedisServer, number: usize, ttl: Duration, places: u32) -> Result<Self> {
        let name = |text: String| FleetName::new(text).context("a name");
        let options = StoreOptions { url: server.url(), secret: None, prefix: StoreOptions::PREFIX.parse()?, ttl };
        let incarnation = HostIncarnation {
            boot_id: name(format!("b1a6f0de-0000-4000-8000-{number:012}"))?,
            machine_id: name(format!("{number:032}"))?,
            generation: 1,
        };
        let store = RedisStore::new(&options, name(format!("host-{number}"))?, incarnation)?;
        let user = PoolName::User(name(format!("user-{}", number % USERS))?);
        let limits = BTreeMap::from([(PoolName::All, places)]);
        let pools = BTreeMap::from([(PoolName::All, places), (user, places)]);
        let summary = HostSummary {
            agents: 8,
            waiting: 2,
            memory_available: Bytes::from_mib(8 * 1024),
            memory_total: Bytes::from_mib(32 * 1024),
            version: env!("CARGO_PKG_VERSION").into(),
            ..HostSummary::default()
        };
        let (held, settled) = (BTreeMap::new(), AskNumber(0));
        let row = HostRow { held, limits, settled, user_limit: Some(places), waiting: 0, summary };
        let mut host = Self { store, row, pools, last: 0, waits_since: None };
        host.restate()?;
        Ok(host)
    }

    pub(super) fn restate(&mut self) -> Result<()> {
        let restated = self.store.restate(&self.row)?;
        ensure!(matches!(restated, Restated::Done { .. }), "{restated:?}");
        Ok(())
    }

    /// Asks once. `Err` has the time after which to ask again.
    pub(super) fn ask(&mut self) -> Result<Result<(), Duration>> {
        self.last += 1;
        let since = *self.waits_since.get_or_insert_with(clock::now);
        let pools = self.pools.clone();
        let ask = FleetAsk { number: AskNumber(self.last), pools, priority: 0, since, ticket: None };
        match self.store.ask(&ask) {
            FleetAnswer::Granted { .. } => {
                self.waits_since = None;
                Ok(Ok(()))
            }
            FleetAnswer::Refused { retry_after, .. } => Ok(Err(retry_after)),
            FleetAnswer::Paused { until } => Ok(Err(until.since(clock::now()))),
            FleetAnswer::Void => {
                // Its row expired while this thread did not run.
                self.restate()?;
                Ok(Err(Duration::ZERO))
            }
            other => bail!("{other:?}"),
        }
    }

    /// The launch of the last ask runs.
    pub(super) fn begin(&mut self) -> Result<()> {
        self.row.held = self.pools.keys().map(|pool| (pool.clone(), 1)).collect();
        self.settle()
    }

    /// Nothing runs.
    pub(super) fn end(&mut self) -> Result<()> {
        self.row.held.clear();
        self.settle()
    }

    fn settle(&mut self) -> Result<()> {
        self.row.settled = AskNumber(self.last);
        self.restate()
    }

    /// Waits until the pause is over that a new store begins with.
    pub(super) fn wait_for_grants(&mut self) -> Result<()> {
        while let Err(wait) = self.ask()? {
            thread::sleep(wait.min(Duration::from_millis(200)));
            self.restate()?;
        }
        self.end()
    }
}
