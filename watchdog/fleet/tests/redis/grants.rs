use std::time::{Duration, Instant};

use watchdog_fleet::{HostCounts, Restated};
use watchdog_types::{AskNumber, FleetAnswer, FleetName};

use crate::guest::{FleetGuest, LONG, SHORT, is_granted, name, pool, server, soon_after, unpaused_answer, until};

#[test]
fn limit_holds_across_hosts() {
    let Some(server) = server() else { return };
    let (mut a, mut b) = (FleetGuest::joined(&server, "a"), FleetGuest::joined(&server, "b"));
    assert!(a.gets(2));
    assert!(b.gets(2));
    let FleetAnswer::Refused { pool: full, limit, held, by_host, retry_after, .. } = a.ask(&[("all", 2)]) else {
        panic!("refused");
    };
    assert_eq!((full, limit, held), (pool("all"), 2, 2));
    let mut by_host: Vec<(FleetName, u32)> = by_host;
    by_host.sort();
    assert_eq!(by_host, [(name("a"), 1), (name("b"), 1)]);
    assert!(retry_after > Duration::ZERO && retry_after < LONG);
}

#[test]
fn each_pool_has_its_limit() {
    let Some(server) = server() else { return };
    let mut a = FleetGuest::joined(&server, "a");
    let pools = [("all", 9), ("user:ana", 1), ("profile:claude-code", 9), ("label:gpu", 9)];
    assert!(matches!(a.ask(&pools), FleetAnswer::Granted { .. }));
    let FleetAnswer::Refused { pool: full, .. } = a.ask(&pools) else { panic!("refused") };
    assert_eq!(full, pool("user:ana"));
    assert!(matches!(a.ask(&[("all", 9), ("user:bob", 1)]), FleetAnswer::Granted { .. }));
}

#[test]
fn repeated_ask_is_granted_once() {
    let Some(server) = server() else { return };
    let mut a = FleetGuest::joined(&server, "a");
    let FleetAnswer::Granted { fence: first, .. } = a.ask(&[("all", 9)]) else { panic!("granted") };
    let again = a.request(Duration::ZERO, 0, &[("all", 9)]);
    let FleetAnswer::Granted { fence, .. } = a.send(&again) else { panic!("granted") };
    assert_eq!((fence, a.total()), (first, 1));
}

#[test]
fn restating_counts_each_grant_once() {
    let Some(server) = server() else { return };
    let mut a = FleetGuest::joined(&server, "a");
    assert!(a.gets(9));
    a.restate();
    assert_eq!(a.total(), 1, "a row from before the grant does not drop it");
    a.counts(&["all"]);
    assert_eq!(a.total(), 1);
    a.releases(&["all"]);
    assert_eq!(a.total(), 0);
}

#[test]
fn old_row_frees_nothing() {
    let Some(server) = server() else { return };
    let (mut a, mut b) = (FleetGuest::joined(&server, "a"), FleetGuest::joined(&server, "b"));
    let old = a.row.clone();
    assert!(a.gets(1));
    a.counts(&["all"]);
    a.row = old;
    assert!(matches!(a.restate(), Restated::Done { .. }));
    assert_eq!(a.total(), 1);
    assert!(!b.gets(1));
}

#[test]
fn settled_ask_is_void() {
    let Some(server) = server() else { return };
    let mut a = FleetGuest::joined(&server, "a");
    a.row.settled = AskNumber(7);
    a.restate();
    assert_eq!(a.ask(&[("all", 9)]), FleetAnswer::Void, "an answer to ask 1 was given up");
    assert_eq!(a.total(), 0);
}

#[test]
fn host_without_row_gets_nothing() {
    let Some(server) = server() else { return };
    let mut stranger = FleetGuest::of(&server.url(), "stranger", LONG);
    assert_eq!(stranger.ask(&[("all", 9)]), FleetAnswer::Void);
}

#[test]
fn dead_host_frees_its_slots() {
    let Some(server) = server() else { return };
    let mut dead = FleetGuest::of(&server.url(), "dead", SHORT);
    assert!(is_granted(&unpaused_answer(&mut [&mut dead], &[("all", 1)])));
    let renewed = Instant::now();
    dead.counts(&["all"]);
    let mut b = FleetGuest::of(&server.url(), "b", SHORT);
    until(soon_after(SHORT), || {
        b.settle();
        b.gets(1)
    });
    assert!(renewed.elapsed() > SHORT / 2, "freed after {:?}", renewed.elapsed());
    let view = b.view();
    let dead = view.hosts.iter().find(|host| host.host == name("dead")).unwrap();
    assert!(!dead.up && dead.last_seen >= SHORT && dead.held.is_empty(), "{dead:?}");
    assert!(matches!(b.restate(), Restated::Done { hosts: HostCounts { up: 1, unreachable: 1 }, .. }));
}

#[test]
fn late_answer_is_void() {
    let Some(server) = server() else { return };
    // The store takes longer than the TTL of this host.
    let mut a = FleetGuest::of(&server.url(), "a", Duration::from_millis(200));
    a.restate();
    server.stop();
    let answer = std::thread::scope(|scope| {
        let asking = scope.spawn(|| a.ask_once(&[("all", 9)]));
        std::thread::sleep(Duration::from_millis(500));
        server.resume();
        asking.join().unwrap()
    });
    // The gap pauses, or the row has expired, or the grant is too late.
    assert!(!matches!(answer, FleetAnswer::Granted { .. }), "{answer:?}");
}

#[test]
fn lower_limit_revokes_nothing() {
    let Some(server) = server() else { return };
    let mut a = FleetGuest::joined(&server, "a");
    for _ in 0..3 {
        assert!(a.gets(3));
        a.counts(&["all"]);
    }
    assert!(!a.gets(1));
    assert_eq!(a.total(), 3);
    assert!(matches!(a.restate(), Restated::Done { hosts: HostCounts { up: 1, unreachable: 0 }, paused: None, .. }));
}

#[test]
fn view_shows_summaries_and_limits() {
    let Some(server) = server() else { return };
    let mut a = FleetGuest::joined(&server, "a");
    a.row.summary.agents = 4;
    a.row.summary.memory_pressure = 1.5;
    a.row.summary.version = "1.2.3\u{1b}[2J with a very long tail that is cut off".into();
    a.row.limits.insert(pool("all"), 7);
    a.row.limits.insert(pool("user:ana"), 2);
    a.row.held.insert(pool("all"), 2);
    a.restate();
    let mut b = FleetGuest::joined(&server, "b");
    b.row.limits.insert(pool("all"), 5);
    b.restate();
    let view = b.view();
    let names: Vec<&str> = view.hosts.iter().map(|host| host.host.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let shown = &view.hosts[0].summary;
    assert_eq!((shown.agents, shown.memory_pressure), (4, 1.5));
    assert!(shown.version.starts_with("1.2.3") && !shown.version.contains('\u{1b}'), "{:?}", shown.version);
    let pools: Vec<_> = view.pools.iter().map(|one| (one.name.to_string(), one.limit, one.held)).collect();
    assert_eq!(pools, [("all".to_owned(), Some(5), 2), ("user:ana".to_owned(), Some(2), 0)]);
}

#[test]
fn view_lists_hosts_in_pages() {
    let Some(server) = server() else { return };
    for number in 0..230 {
        FleetGuest::joined(&server, &format!("host-{number:03}"));
    }
    let view = FleetGuest::joined(&server, "host-000").view();
    assert_eq!(view.hosts.len(), 230);
}
