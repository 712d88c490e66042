//! The hosts of a test, and what is expected of them.

use std::time::Duration;

use watchdog_api::{Fleet, HostState, Queue, RefusalReason, StoreState};
use watchdog_tests::{Daemon, ProcessKey, RedisServer, Stage, limit, poll};

/// A TTL that tests wait for. If a busy machine stops a daemon for longer, the store frees its slots.
pub(crate) const TTL: Duration = Duration::from_secs(6);
/// A TTL that no test waits for.
pub(crate) const LONG: Duration = Duration::from_secs(15);
/// Longer than a pause and a renewal.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn config(store: &RedisServer, ttl: Duration, host: &str, more: &str) -> String {
    format!(
        "[gate]\nexpected_memory = \"8MiB\"\nreserve = \"64MiB\"\n\
         [fleet]\nstore = \"{}\"\nhost = \"{host}\"\nttl = \"{}s\"\n{more}\n",
        store.url(),
        ttl.as_secs()
    )
}

pub(crate) fn fleet(daemon: &Daemon) -> Fleet {
    serde_json::from_value(daemon.get("/v1/fleet")).unwrap()
}

/// Two hosts that see each other, after the first pause of their store.
pub(crate) fn two_hosts(stage: &Stage, store: &RedisServer, ttl: Duration, more: &str) -> [Daemon; 2] {
    let daemons = ["a", "b"].map(|host| Daemon::configured(stage, &config(store, ttl, host, more)));
    for daemon in &daemons {
        await_fleet(daemon, "both hosts", |fleet| {
            fleet.store == StoreState::Up && fleet.hosts.iter().filter(|host| host.state == HostState::Up).count() == 2
        });
    }
    store.command(&["HSET", "{agent-watchdog}:meta", "pause", "0"]);
    daemons
}

/// Kills the store of these hosts when they know their shares of a fleet of this size. They do not in a pause, which
/// begins when the machine stalls for 2/3 of the TTL.
pub(crate) fn lose(store: &mut RedisServer, daemons: &[&Daemon], size: usize) {
    let size = format!("\"hosts\":{size},");
    let knows = |daemon: &&Daemon| {
        std::fs::read_to_string(daemon.state_dir().join("fleet")).is_ok_and(|shares| shares.contains(&size))
    };
    for _ in 0..5 {
        // The time of a pause and a renewal.
        std::thread::sleep(TTL * 2);
        store.kill();
        for daemon in daemons {
            await_fleet(daemon, "the store is lost", |fleet| fleet.store == StoreState::Lost);
        }
        // They write it after they show that the store is lost.
        if poll(limit(Duration::from_secs(5)), || daemons.iter().all(knows).then_some(())).is_some() {
            return;
        }
        store.restart();
    }
    panic!("the hosts do not know their shares");
}

pub(crate) fn await_fleet(daemon: &Daemon, what: &str, seen: impl Fn(&Fleet) -> bool) -> Fleet {
    let found = poll(limit(PATIENCE), || Some(fleet(daemon)).filter(&seen));
    found.unwrap_or_else(|| panic!("timeout: {what}\n{:#?}\n{}", fleet(daemon), daemon.log()))
}

fn await_queue(daemon: &Daemon, what: &str, seen: impl Fn(&Queue) -> bool) -> Queue {
    let found = poll(limit(PATIENCE), || Some(daemon.queue()).filter(&seen));
    found.unwrap_or_else(|| panic!("timeout: {what}\n{:#?}\n{}", daemon.queue(), daemon.log()))
}

pub(crate) fn launch(stage: &mut Stage, daemon: &Daemon, options: &[&str], script: &str) -> ProcessKey {
    stage.execute(daemon.launch(stage, options, script))
}

/// An agent that has its place, and reports under this name.
pub(crate) fn running(stage: &mut Stage, daemon: &Daemon, name: &str) -> ProcessKey {
    launch(stage, daemon, &[], &format!("report {name} hold"));
    stage.reported(name)
}

pub(crate) fn held(daemon: &Daemon, pool: &str) -> u64 {
    fleet(daemon).pools.iter().find(|one| one.name == pool).map_or(0, |pool| pool.held)
}

/// The first launch waits for the fleet.
pub(crate) fn waits_for(daemon: &Daemon) {
    waits_saying(daemon, |_| true);
}

/// The first launch waits for the fleet with such a detail. While the store pauses or responds late, it shows another detail
/// first.
pub(crate) fn waits_saying(daemon: &Daemon, detail: impl Fn(&str) -> bool) {
    await_queue(daemon, "a launch waits for the fleet", |queue| {
        let first = queue.waiting.first();
        first.is_some_and(|waiter| waiter.reason == RefusalReason::Fleet && detail(&waiter.detail))
    });
}
