//! The network between a host and the store fails.

use std::time::{Duration, Instant};

use watchdog_fleet::{FleetStore, RedisStore};
use watchdog_tests::RedisLink;
use watchdog_types::FleetAnswer;

use crate::guest::{
    FleetGuest, LONG, SHORT, end_pause, is_granted, is_lost, server, soon_after, unpaused_answer, until,
};
use crate::proxy::Proxy;

#[test]
fn cut_link_is_noticed_and_healed() {
    let Some(link) = RedisLink::new(1) else { return };
    let Some(server) = link.server() else { return };
    end_pause(&server);
    let mut cut = FleetGuest::of(&server.url(), "cut", SHORT);
    assert!(is_granted(&unpaused_answer(&mut [&mut cut], &[("all", 1)])));
    cut.counts(&["all"]);
    link.cut(true);
    let started = Instant::now();
    assert!(is_lost(&cut.ask_once(&[("all", 1)])));
    assert!(cut.try_restate().is_err());
    assert!(started.elapsed() < RedisStore::TIMEOUT * 2 + Duration::from_secs(20));
    link.cut(false);
    until(Duration::from_secs(15), || cut.try_restate().is_ok());
    cut.settle();
    assert_eq!(cut.total(), 1, "its session went on, and counts again");
}

#[test]
fn lost_responses_release_slots_soon() {
    let Some(link) = RedisLink::new(2) else { return };
    let Some(server) = link.server() else { return };
    end_pause(&server);
    let mut deaf = FleetGuest::of(&server.url(), "deaf", LONG);
    deaf.restate();
    link.lose_answers(true);
    let answer = deaf.ask_once(&[("all", 1)]);
    assert!(is_lost(&answer), "{answer:?}");
    link.lose_answers(false);
    // The store granted it. The host knows only that it may have.
    until(Duration::from_secs(20), || server.command(&["HGET", "{agent-watchdog}:totals", "all"]).trim() == "1");
    until(Duration::from_secs(15), || deaf.try_restate().is_ok());
    assert_eq!(deaf.total(), 1);
    deaf.settle();
    assert_eq!(deaf.total(), 0);
}

#[test]
fn slow_link_still_grants() {
    let Some(server) = server() else { return };
    let proxy = Proxy::to(&server, Duration::from_millis(250));
    let mut far = FleetGuest::of(&proxy.url(), "far", LONG);
    far.restate();
    let started = Instant::now();
    assert!(far.gets(1));
    assert!(started.elapsed() >= Duration::from_millis(500), "{:?}", started.elapsed());
    far.counts(&["all"]);
    assert_eq!(far.total(), 1);
}

/// A host that was suspended longer than the TTL: its grants are another's, and it finds out before it uses them.
#[test]
fn suspended_host_restates_itself() {
    let Some(server) = server() else { return };
    let (mut suspended, mut other) =
        (FleetGuest::of(&server.url(), "suspended", SHORT), FleetGuest::of(&server.url(), "other", SHORT));
    let answer = unpaused_answer(&mut [&mut suspended, &mut other], &[("all", 1)]);
    let FleetAnswer::Granted { deadline, .. } = answer else { panic!("granted, not {answer:?}") };
    let waited = until(soon_after(SHORT), || {
        other.settle();
        other.gets(1)
    });
    assert!(watchdog_host::clock::now() > deadline, "after {waited:?} the grant is void");
    other.counts(&["all"]);
    // It ran one session all the time.
    suspended.row.held.insert("all".parse().unwrap(), 1);
    suspended.settle();
    assert_eq!(other.total(), 2, "both run; nothing is ended");
    let answer = unpaused_answer(&mut [&mut other, &mut suspended], &[("all", 2)]);
    assert!(matches!(answer, FleetAnswer::Refused { .. }), "{answer:?}");
}
