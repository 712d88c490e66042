//! The store restarts, or loses some or all of its data: nothing is granted for one TTL.

use std::time::{Duration, Instant};

use watchdog_fleet::{FleetStore, RedisStore};
use watchdog_tests::RedisServer;
use watchdog_types::FleetAnswer;

use crate::guest::{
    FleetGuest, LONG, SHORT, end_pause, full, is_granted, is_lost, is_paused, server, soon_after, unpaused_answer,
    until,
};
use crate::proxy::Proxy;

const ALL: &[(&str, u32)] = &[("all", 2)];
/// The length of a pause. When two calls are further apart than two thirds of it, the pause begins again.
const TTL: Duration = Duration::from_secs(3);

/// One host restates itself at once, the other late, but within a TTL: no place too many is granted in between.
fn pauses_until_both_restated(a: &mut FleetGuest, b: &mut FleetGuest) {
    let started = Instant::now();
    a.restate();
    while started.elapsed() < TTL / 3 {
        let answer = a.ask(ALL);
        assert!(is_paused(&answer), "{answer:?}");
        std::thread::sleep(TTL / 10);
        a.restate();
    }
    b.restate();
    until(soon_after(TTL), || {
        a.restate();
        b.restate();
        let answer = a.ask(ALL);
        assert!(!matches!(answer, FleetAnswer::Granted { .. }), "both places are held");
        matches!(answer, FleetAnswer::Refused { .. })
    });
    b.releases(&["all"]);
    assert!(is_granted(&unpaused_answer(&mut [a, b], ALL)));
}

#[test]
fn new_store_pauses_one_ttl() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let mut a = FleetGuest::of(&server.url(), "a", SHORT);
    let started = Instant::now();
    a.restate();
    assert!(is_paused(&a.ask(ALL)));
    until(soon_after(SHORT), || {
        a.settle();
        a.gets(2)
    });
    assert!(started.elapsed() > SHORT / 2, "{:?}", started.elapsed());
}

#[test]
fn killed_store_keeps_rows() {
    let Some(mut server) = server() else { return };
    let (mut a, mut b) = full(&server, TTL);
    server.kill();
    assert!(is_lost(&a.ask_once(ALL)));
    assert!(a.try_restate().is_err());
    server.restart();
    let held = server.command(&["HGET", "{agent-watchdog}:totals", "all"]);
    assert_eq!(held.trim(), "2", "from the append-only file");
    pauses_until_both_restated(&mut a, &mut b);
}

#[test]
fn stopped_store_loses_no_slot() {
    let Some(server) = server() else { return };
    let (mut a, mut b) = full(&server, TTL);
    server.stop();
    let started = Instant::now();
    assert!(is_lost(&a.ask_once(ALL)));
    assert!(a.try_restate().is_err(), "on a new connection, which the kernel accepts");
    let waited = started.elapsed();
    assert!(waited < RedisStore::TIMEOUT * 2 + Duration::from_secs(20), "{waited:?}");
    server.resume();
    // Longer than a TTL stood still, and still the row of the other host counts.
    a.settle();
    assert_eq!(a.total(), 2);
    let mut answer = a.ask(ALL);
    assert!(is_paused(&answer), "{answer:?}");
    // In a slower round another pause could have begun.
    until(soon_after(TTL), || {
        let round = Instant::now();
        a.restate();
        b.restate();
        answer = a.ask(ALL);
        round.elapsed() < TTL / 2
    });
    assert!(matches!(answer, FleetAnswer::Refused { .. }), "the pause ends with the last host: {answer:?}");
}

#[test]
fn abandoned_request_holds_no_slot() {
    let Some(server) = server() else { return };
    let mut a = FleetGuest::joined(&server, "a");
    server.stop();
    assert!(is_lost(&a.ask_once(ALL)));
    server.resume();
    // The store may answer it now, to a closed connection.
    until(Duration::from_secs(10), || a.total() <= 1);
    a.settle();
    assert_eq!(a.total(), 0);
}

#[test]
fn flushed_store_pauses() {
    let Some(server) = server() else { return };
    let (mut a, mut b) = full(&server, TTL);
    server.command(&["FLUSHALL"]);
    pauses_until_both_restated(&mut a, &mut b);
}

#[test]
fn evicted_key_pauses() {
    for key in ["meta", "state", "totals", "expiry"] {
        let Some(server) = server() else { return };
        let (mut a, mut b) = full(&server, LONG);
        server.command(&["DEL", &format!("{{agent-watchdog}}:{key}")]);
        a.restate();
        assert!(is_paused(&a.ask(ALL)), "{key}");
        b.restate();
        end_pause(&server);
        assert_eq!(a.total(), 2, "{key}");
        assert!(matches!(a.ask(ALL), FleetAnswer::Refused { .. }), "{key}");
    }
}

#[test]
fn eviction_under_pressure_is_survived() {
    let Some(server) = RedisServer::start(&["--maxmemory", "3mb", "--maxmemory-policy", "allkeys-random"]) else {
        return;
    };
    let mut a = FleetGuest::of(&server.url(), "a", LONG);
    a.restate();
    assert_eq!(a.store.health().unwrap().eviction_policy, "allkeys-random");
    for number in 0..40 {
        server.command(&["SET", &format!("other-{number}"), &"x".repeat(100_000)]);
        a.restate();
        let answer = a.ask(&[("all", 0)]);
        assert!(matches!(answer, FleetAnswer::Paused { .. } | FleetAnswer::Refused { .. }), "{answer:?}");
    }
    let stats = server.command(&["INFO", "stats"]);
    assert!(!stats.contains("evicted_keys:0\r"), "{stats}");
}

#[test]
fn full_memory_is_named() {
    let Some(server) = server() else { return };
    let mut a = FleetGuest::joined(&server, "a");
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let FleetAnswer::StoreLost { error } = a.ask(ALL) else { panic!("no writes") };
    assert!(error.contains("takes no writes"), "{error}");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(a.gets(2), "nothing was half done");
    assert_eq!(a.total(), 1);
}

#[test]
fn flushed_script_is_loaded_again() {
    let Some(server) = server() else { return };
    let mut a = FleetGuest::joined(&server, "a");
    server.command(&["SCRIPT", "FLUSH"]);
    assert!(a.gets(2));
}

#[test]
fn promoted_stale_replica_pauses() {
    let Some(source) = server() else { return };
    let Some(replica) = RedisServer::start(&["--replicaof", "127.0.0.1", &source.port().to_string()]) else { return };
    until(Duration::from_secs(20), || replica.command(&["INFO", "replication"]).contains("master_link_status:up"));
    let (mut a, _b) = full(&source, SHORT);
    // It stops following; then one more place is taken, that it never hears of.
    until(Duration::from_secs(20), || replica.command(&["HGET", "{agent-watchdog}:totals", "all"]).trim() == "2");
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    let mut c = FleetGuest::of(&source.url(), "c", SHORT);
    assert!(is_granted(&unpaused_answer(&mut [&mut c, &mut a], &[("all", 3)])));
    c.counts(&["all"]);
    drop(source);
    // The others come to the replica, the new host as the last.
    let mut a = a.moved(&replica, SHORT);
    let mut c = c.moved(&replica, SHORT);
    a.restate();
    let answer = a.ask(&[("all", 3)]);
    assert!(is_paused(&answer), "{answer:?}");
    c.restate();
    assert_eq!(c.row.held.len(), 1);
    let answer = unpaused_answer(&mut [&mut a, &mut c], ALL);
    assert!(matches!(answer, FleetAnswer::Refused { .. }), "{answer:?}");
    assert_eq!(a.total(), 2, "the host that did not come is gone");
}

/// An address that fails over to a replica, and back to the old server, which has the same run id and older data.
#[test]
fn returned_server_with_old_data_pauses() {
    let Some(old) = server() else { return };
    let Some(replica) = RedisServer::start(&["--replicaof", "127.0.0.1", &old.port().to_string()]) else { return };
    let proxy = Proxy::to(&old, Duration::ZERO);
    let [mut a, mut b] = ["a", "b"].map(|host| FleetGuest::of(&proxy.url(), host, LONG));
    a.restate();
    b.restate();
    assert!(a.gets(2));
    a.counts(&["all"]);
    until(Duration::from_secs(20), || replica.command(&["HGET", "{agent-watchdog}:totals", "all"]).trim() == "1");
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    proxy.switch(&old, &replica);
    assert!(is_paused(&a.ask(ALL)), "another run id");
    end_pause(&replica);
    a.restate();
    assert!(a.gets(2));
    a.counts(&["all"]);
    b.restate();
    proxy.switch(&replica, &old);
    // The old server knows of one place only. This host knows that it was put back.
    let answer = b.ask(ALL);
    assert!(is_paused(&answer), "{answer:?}");
}

#[test]
fn replica_is_not_writable() {
    let Some(source) = server() else { return };
    let Some(replica) = RedisServer::start(&["--replicaof", "127.0.0.1", &source.port().to_string()]) else { return };
    let mut a = FleetGuest::of(&replica.url(), "a", LONG);
    let error = a.try_restate().unwrap_err().to_string();
    assert!(error.contains("takes no writes"), "{error}");
    assert!(a.store.health().unwrap().replica);
}
