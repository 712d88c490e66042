//! A host of the fleet, and the places that its sessions hold.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use watchdog_fleet::{FleetStore, FleetStoreError, RedisStore, Restated, StoreOptions};
use watchdog_host::clock;
use watchdog_tests::RedisServer;
use watchdog_types::{
    AskNumber, Bytes, FleetAnswer, FleetAsk, FleetName, FleetView, HostIncarnation, HostRow, PoolName,
};

/// A TTL that no test reaches.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// A TTL that tests wait for.
pub(crate) const SHORT: Duration = Duration::from_millis(1500);

/// Time limit for a row with this TTL to expire, on a busy machine.
pub(crate) fn soon_after(ttl: Duration) -> Duration {
    ttl + Duration::from_secs(30)
}

/// A store that does not answer is asked again for this time, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn name(text: &str) -> FleetName {
    text.parse().unwrap()
}

pub(crate) fn pool(text: &str) -> PoolName {
    text.parse().unwrap()
}

pub(crate) fn options(url: &str, ttl: Duration) -> StoreOptions {
    StoreOptions { url: url.into(), secret: None, prefix: name(StoreOptions::PREFIX), ttl }
}

/// A server whose first pause is over.
pub(crate) fn server() -> Option<RedisServer> {
    let server = RedisServer::start(&[])?;
    end_pause(&server);
    Some(server)
}

/// Ends the pause of a store that has lost data. Only tests may know that no other host exists.
pub(crate) fn end_pause(server: &RedisServer) {
    FleetGuest::of(&server.url(), "first", LONG).restate();
    server.command(&["HSET", "{agent-watchdog}:meta", "pause", "0", "ttl", "0"]);
    // As if that host had never been.
    server.command(&["HDEL", "{agent-watchdog}:state", "first"]);
    server.command(&["HDEL", "{agent-watchdog}:machines", "machine-first"]);
    server.command(&["ZREM", "{agent-watchdog}:expiry", "first"]);
    server.command(&["ZREM", "{agent-watchdog}:seen", "first"]);
}

pub(crate) struct FleetGuest {
    host: String,
    pub(crate) store: RedisStore,
    pub(crate) row: HostRow,
    last: u64,
}

impl FleetGuest {
    pub(crate) fn of(url: &str, host: &str, ttl: Duration) -> Self {
        Self::on(url, host, ttl, &format!("machine-{host}"), "boot-1", 1)
    }

    pub(crate) fn on(url: &str, host: &str, ttl: Duration, machine: &str, boot: &str, generation: u64) -> Self {
        let incarnation = HostIncarnation { boot_id: name(boot), machine_id: name(machine), generation };
        let store = RedisStore::new(&options(url, ttl), name(host), incarnation).unwrap();
        let row = HostRow {
            held: BTreeMap::new(),
            limits: BTreeMap::new(),
            settled: AskNumber(0),
            user_limit: None,
            waiting: 0,
            summary: Default::default(),
        };
        Self { host: host.into(), store, row, last: 0 }
    }

    /// The same daemon, whose store has another address now.
    pub(crate) fn moved(self, server: &RedisServer, ttl: Duration) -> Self {
        let store = Self::of(&server.url(), &self.host, ttl).store;
        Self { store, ..self }
    }

    /// A guest that has stated itself.
    pub(crate) fn joined(server: &RedisServer, host: &str) -> Self {
        let mut guest = Self::of(&server.url(), host, LONG);
        guest.restate();
        guest
    }

    pub(crate) fn try_restate(&mut self) -> Result<Restated, FleetStoreError> {
        self.store.restate(&self.row)
    }

    /// As a daemon does, until the store answers: a busy machine can take longer than the timeout.
    pub(crate) fn restate(&mut self) -> Restated {
        answered(|| self.try_restate())
    }

    /// Waiting since `waited` ago.
    pub(crate) fn ask_after(&mut self, waited: Duration, priority: i32, pools: &[(&str, u32)]) -> FleetAnswer {
        self.last += 1;
        let ask = self.request(waited, priority, pools);
        self.send(&ask)
    }

    /// As [`restate`](Self::restate), until the store answers: it grants each number once.
    pub(crate) fn send(&mut self, ask: &FleetAsk) -> FleetAnswer {
        let started = Instant::now();
        loop {
            match self.store.ask(ask) {
                FleetAnswer::StoreLost { error }
                    if error.contains("is unreachable") && started.elapsed() < PATIENCE => {}
                answer => return answer,
            }
        }
    }

    /// One request, to a store that is lost.
    pub(crate) fn ask_once(&mut self, pools: &[(&str, u32)]) -> FleetAnswer {
        self.last += 1;
        let ask = self.request(Duration::ZERO, 0, pools);
        self.store.ask(&ask)
    }

    pub(crate) fn request(&self, waited: Duration, priority: i32, pools: &[(&str, u32)]) -> FleetAsk {
        let pools = pools.iter().map(|(name, limit)| (pool(name), *limit)).collect();
        let since = clock::now().minus(waited);
        FleetAsk { number: AskNumber(self.last), pools, priority, since, ticket: None }
    }

    pub(crate) fn ask(&mut self, pools: &[(&str, u32)]) -> FleetAnswer {
        self.ask_after(Duration::ZERO, 0, pools)
    }

    /// Asks for a place among `limit` of all sessions.
    pub(crate) fn gets(&mut self, limit: u32) -> bool {
        is_granted(&self.ask(&[("all", limit)]))
    }

    /// The launch of the last ask runs, and is stated.
    pub(crate) fn counts(&mut self, pools: &[&str]) {
        for name in pools {
            *self.row.held.entry(pool(name)).or_default() += 1;
        }
        self.settle();
    }

    pub(crate) fn settle(&mut self) {
        self.row.settled = AskNumber(self.last);
        self.restate();
    }

    /// A session ended.
    pub(crate) fn releases(&mut self, pools: &[&str]) {
        for name in pools {
            *self.row.held.get_mut(&pool(name)).unwrap() -= 1;
        }
        self.restate();
    }

    pub(crate) fn has_memory(mut self, bytes: u64) -> Self {
        self.row.summary.memory_available = Bytes(bytes);
        self.restate();
        self
    }

    pub(crate) fn view(&mut self) -> FleetView {
        answered(|| self.store.view())
    }

    /// All places held.
    pub(crate) fn total(&mut self) -> u32 {
        self.view().pools.iter().find(|one| one.name == PoolName::All).map_or(0, |one| one.held)
    }
}

fn answered<T>(mut request: impl FnMut() -> Result<T, FleetStoreError>) -> T {
    let started = Instant::now();
    loop {
        match request() {
            Err(FleetStoreError::Unreachable { .. }) if started.elapsed() < PATIENCE => {}
            result => return result.unwrap(),
        }
    }
}

/// Waits for it, and returns how long that took.
pub(crate) fn until(at_most: Duration, mut condition: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < at_most, "not within {at_most:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    started.elapsed()
}

/// The first guest's answer after all pauses; all renew their rows. A stall of the machine for 2/3 of the TTL begins a pause.
pub(crate) fn unpaused_answer(guests: &mut [&mut FleetGuest], pools: &[(&str, u32)]) -> FleetAnswer {
    let mut answer = FleetAnswer::Void;
    until(soon_after(SHORT), || {
        // Settled, because a grant that arrives late is void.
        guests.iter_mut().for_each(|guest| guest.settle());
        answer = guests[0].ask(pools);
        !is_paused(&answer) && answer != FleetAnswer::Void
    });
    answer
}

/// Two hosts with a place each, of two.
pub(crate) fn full(server: &RedisServer, ttl: Duration) -> (FleetGuest, FleetGuest) {
    let [mut a, mut b] = ["a", "b"].map(|host| FleetGuest::of(&server.url(), host, ttl));
    assert!(is_granted(&unpaused_answer(&mut [&mut a, &mut b], &[("all", 2)])));
    a.counts(&["all"]);
    assert!(is_granted(&unpaused_answer(&mut [&mut b, &mut a], &[("all", 2)])));
    b.counts(&["all"]);
    (a, b)
}

pub(crate) fn is_granted(answer: &FleetAnswer) -> bool {
    matches!(answer, FleetAnswer::Granted { .. })
}

pub(crate) fn is_paused(answer: &FleetAnswer) -> bool {
    matches!(answer, FleetAnswer::Paused { .. })
}

pub(crate) fn is_lost(answer: &FleetAnswer) -> bool {
    matches!(answer, FleetAnswer::StoreLost { .. })
}
