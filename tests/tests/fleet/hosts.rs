//! The hosts of a test, and what is expected of them.

use std::time::Duration;

use watchdog_api::{Fleet, HostState, Queue, RefusalReason, StoreState};
use watchdog_tests::{Daemon, ProcessKey, RedisServer, Stage, limit, poll};

/// The shortest that the configuration allows, so that tests need not wait.
pub(crate) const TTL: Duration = Duration::from_secs(3);

pub(crate) fn config(store: &RedisServer, host: &str, more: &str) -> String {
    format!(
        "[gate]\nexpected_memory = \"8MiB\"\nreserve = \"64MiB\"\n[fleet]\nstore = \"{}\"\nhost = \"{host}\"\nttl = \"3s\"\n{more}\n",
        store.url()
    )
}

pub(crate) fn fleet(daemon: &Daemon) -> Fleet {
    serde_json::from_value(daemon.get("/v1/fleet")).unwrap()
}

/// Two hosts that see each other.
pub(crate) fn two_hosts(stage: &Stage, store: &RedisServer, more: &str) -> [Daemon; 2] {
    let daemons = ["a", "b"].map(|host| Daemon::configured(stage, &config(store, host, more)));
    for daemon in &daemons {
        await_fleet(daemon, "both hosts", |fleet| {
            fleet.store == StoreState::Up && fleet.hosts.iter().filter(|host| host.state == HostState::Up).count() == 2
        });
    }
    daemons
}

pub(crate) fn await_fleet(daemon: &Daemon, what: &str, seen: impl Fn(&Fleet) -> bool) -> Fleet {
    let found = poll(limit(Duration::from_secs(15)), || Some(fleet(daemon)).filter(&seen));
    found.unwrap_or_else(|| panic!("timeout: {what}\n{:#?}\n{}", fleet(daemon), daemon.log()))
}

pub(crate) fn await_queue(daemon: &Daemon, what: &str, seen: impl Fn(&Queue) -> bool) -> Queue {
    let found = poll(limit(Duration::from_secs(15)), || Some(daemon.queue()).filter(&seen));
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

/// The detail of the first that waits.
pub(crate) fn waits_for(daemon: &Daemon) -> String {
    let queue = await_queue(daemon, "a launch waits for the fleet", |queue| {
        queue.waiting.first().is_some_and(|waiter| waiter.reason == RefusalReason::Fleet)
    });
    queue.waiting[0].detail.clone()
}
