//! Failures of the store under two daemons: agents run on, and the limit holds at each moment.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use watchdog_api::StoreState;
use watchdog_tests::{Daemon, ProcessKey, RedisLink, RedisServer, Stage, is_alive};

use crate::hosts::{LONG, TTL, await_fleet, launch, lose, running, two_hosts, waits_for, waits_saying};

const LIMIT: usize = 3;

/// Two hosts, of which one holds all places, and the other wants them.
struct FullFleet {
    stage: Stage,
    hosts: [Daemon; 2],
    agents: Vec<ProcessKey>,
}

impl FullFleet {
    fn on(store: &RedisServer) -> Self {
        let mut stage = Stage::new();
        let hosts = two_hosts(&stage, store, TTL, &format!("max_sessions = {LIMIT}"));
        let agents = (0..LIMIT).map(|number| running(&mut stage, &hosts[0], &format!("agent{number}"))).collect();
        for _ in 0..LIMIT {
            launch(&mut stage, &hosts[1], &[], "report next hold");
        }
        waits_for(&hosts[1]);
        // Each host has renewed its row since the last grant, and has been there for one TTL.
        thread::sleep(TTL + TTL / 2);
        Self { stage, hosts, agents }
    }

    /// Looks all the time, for this long.
    fn holds_limit(&self, span: Duration) {
        let started = Instant::now();
        while started.elapsed() < span {
            let queues = [self.hosts[0].queue(), self.hosts[1].queue()];
            let running: usize = queues.iter().map(|queue| queue.leases.len()).sum();
            assert!(running <= LIMIT, "{running} of {LIMIT} after {:?}\n{queues:#?}", started.elapsed());
            assert!(self.agents.iter().all(|agent| is_alive(*agent)), "running agents are not touched");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// The store is unreachable for this long.
    fn loses_store(&self, span: Duration) {
        let started = Instant::now();
        self.holds_limit(TTL * 2);
        self.await_store(StoreState::Lost);
        self.holds_limit(span.saturating_sub(started.elapsed()).max(TTL));
    }

    fn await_store(&self, state: StoreState) {
        for host in &self.hosts {
            await_fleet(host, &format!("the store is {state:?}"), |fleet| fleet.store == state);
        }
    }

    /// The store grants again: one agent ends, and one of the other host begins.
    fn passes_one_place_on(mut self) {
        self.await_store(StoreState::Up);
        // The time of a pause and a renewal.
        self.holds_limit(TTL + TTL / 2);
        assert!(!self.stage.reports().contains_key("next"));
        let ended = self.agents.remove(0);
        self.stage.kill(ended);
        self.stage.reported("next");
        self.holds_limit(TTL);
        assert_eq!(self.stage.reports()["next"].len(), 1);
    }
}

fn stop_store(span: Duration) {
    let Some(store) = RedisServer::start(&["--maxmemory-policy", "noeviction"]) else { return };
    let fleet = FullFleet::on(&store);
    store.stop();
    fleet.loses_store(span);
    store.resume();
    fleet.passes_one_place_on();
}

#[test]
fn stopped_store_keeps_limit() {
    stop_store(TTL * 3);
}

#[test]
#[ignore = "takes a minute; see Release in CONTRIBUTING.md"]
fn store_stopped_for_30_seconds() {
    stop_store(Duration::from_secs(30));
}

#[test]
fn killed_store_keeps_limit() {
    let Some(mut store) = RedisServer::start(&["--maxmemory-policy", "noeviction"]) else { return };
    let fleet = FullFleet::on(&store);
    store.kill();
    fleet.await_store(StoreState::Lost);
    fleet.holds_limit(TTL * 2);
    store.restart();
    fleet.passes_one_place_on();
}

#[test]
fn unreadable_list_of_hosts_is_reported() {
    let Some(store) = RedisServer::start(&["--maxmemory-policy", "noeviction"]) else { return };
    let stage = Stage::new();
    let [host, _other] = two_hosts(&stage, &store, LONG, "");
    // Only the list is read with it.
    assert_eq!(store.command(&["ACL", "SETUSER", "default", "-zrevrange"]).trim(), "OK");
    // The pause of a new store is reported first.
    let fleet = await_fleet(&host, "why the list is old", |fleet| {
        fleet.problem.as_ref().is_some_and(|problem| problem.starts_with("the hosts are those of "))
    });
    let problem = fleet.problem.unwrap_or_default();
    assert_eq!((fleet.store, fleet.hosts.len()), (StoreState::Up, 2), "{problem}");
    assert!(problem.contains("zrevrange"), "{problem}");
}

#[test]
fn flushed_store_keeps_limit() {
    let Some(store) = RedisServer::start(&["--maxmemory-policy", "noeviction"]) else { return };
    let fleet = FullFleet::on(&store);
    store.command(&["FLUSHALL"]);
    fleet.holds_limit(TTL * 2);
    fleet.passes_one_place_on();
}

fn cut_link(number: u8, span: Duration) {
    let Some(link) = RedisLink::new(number) else { return };
    let Some(store) = link.server() else { return };
    let fleet = FullFleet::on(&store);
    link.cut(true);
    fleet.loses_store(span);
    link.cut(false);
    fleet.passes_one_place_on();
}

#[test]
fn cut_link_keeps_limit() {
    cut_link(10, TTL * 3);
}

#[test]
#[ignore = "takes a minute; see Release in CONTRIBUTING.md"]
fn link_cut_for_60_seconds() {
    cut_link(11, Duration::from_secs(60));
}

/// A daemon that is killed while the store is lost: the next one has the same share.
#[test]
fn restarted_daemon_knows_its_share() {
    let Some(mut store) = RedisServer::start(&["--maxmemory-policy", "noeviction"]) else { return };
    let mut stage = Stage::new();
    let [mut a, b] = two_hosts(&stage, &store, TTL, "max_sessions = 4");
    let agents = [running(&mut stage, &a, "a"), running(&mut stage, &b, "b")];
    lose(&mut store, &[&a, &b], 2);
    a.end(Signal::KILL);
    a.restart();
    running(&mut stage, &a, "second");
    launch(&mut stage, &a, &[], "report third hold");
    waits_saying(&a, |detail| detail.ends_with("2 held here, this host's share is 2 (4 for 2 hosts)"));
    assert!(agents.iter().all(|agent| is_alive(*agent)), "running agents are not touched");
    assert!(!stage.reports().contains_key("third"));
}
