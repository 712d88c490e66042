//! Places reserved for launches to come.

use std::time::Duration;

use watchdog_fleet::{FleetStore, Placement, PlacementAnswer};
use watchdog_tests::RedisServer;
use watchdog_types::{Bytes, FleetAnswer};

use crate::guest::{FleetGuest, name, pool, server};

const GIB: u64 = 1 << 30;

fn placement(host: &str, ticket: &str, lifetime: Duration) -> Placement {
    let pools = vec![(pool("all"), 1)];
    Placement { host: name(host), ticket: name(ticket), pools, memory: Bytes(GIB), lifetime }
}

/// A guest that requests slots, and a host with memory for three launches.
fn pair(server: &RedisServer) -> (FleetGuest, FleetGuest) {
    (FleetGuest::joined(server, "asking"), FleetGuest::joined(server, "target").has_memory(3 * GIB))
}

fn redeem(target: &mut FleetGuest, ticket: &str) -> FleetAnswer {
    let mut ask = target.request(Duration::ZERO, 0, &[("all", 1)]);
    ask.number.0 = 1 + target.row.settled.0;
    ask.ticket = Some(name(ticket));
    target.send(&ask)
}

#[test]
fn ticket_keeps_its_slot() {
    let Some(server) = server() else { return };
    let (mut asking, mut target) = pair(&server);
    let answer = asking.store.reserve(&placement("target", "t-1", Duration::from_secs(30)));
    assert_eq!(answer, Ok(PlacementAnswer::Reserved));
    assert!(!asking.gets(1), "the place is taken");
    assert!(matches!(redeem(&mut target, "another"), FleetAnswer::Refused { .. }));
    assert!(matches!(redeem(&mut target, "t-1"), FleetAnswer::Granted { .. }));
    assert_eq!(asking.total(), 1);
}

#[test]
fn ticket_expires() {
    let Some(server) = server() else { return };
    let (mut asking, mut target) = pair(&server);
    let short = placement("target", "t-1", Duration::from_millis(100));
    assert_eq!(asking.store.reserve(&short), Ok(PlacementAnswer::Reserved));
    std::thread::sleep(Duration::from_millis(200));
    target.restate();
    assert_eq!(asking.total(), 0);
    assert!(asking.gets(1));
    assert!(matches!(redeem(&mut target, "t-1"), FleetAnswer::Refused { .. }));
}

#[test]
fn ticket_belongs_to_its_host() {
    let Some(server) = server() else { return };
    let (mut asking, _target) = pair(&server);
    let lasting = placement("target", "t-1", Duration::from_secs(30));
    assert_eq!(asking.store.reserve(&lasting), Ok(PlacementAnswer::Reserved));
    assert!(matches!(redeem(&mut asking, "t-1"), FleetAnswer::Refused { .. }));
}

#[test]
fn reserved_memory_is_not_promised_twice() {
    let Some(server) = server() else { return };
    let (mut asking, _target) = pair(&server);
    let mut reserve = |ticket: &str, memory: u64| {
        let pools = vec![(pool("all"), 9)];
        let lifetime = Duration::from_secs(30);
        let wanted = Placement { memory: Bytes(memory), pools, ..placement("target", ticket, lifetime) };
        asking.store.reserve(&wanted).unwrap()
    };
    assert_eq!(reserve("t-1", 2 * GIB), PlacementAnswer::Reserved);
    assert_eq!(reserve("t-2", 2 * GIB), PlacementAnswer::NoMemory { available: Bytes(GIB) });
    assert_eq!(reserve("t-1", 2 * GIB), PlacementAnswer::Reserved, "repeated after a lost answer");
    assert_eq!(reserve("t-3", GIB), PlacementAnswer::Reserved);
}

#[test]
fn repeated_reservation_keeps_last_slot() {
    let Some(server) = server() else { return };
    let (mut asking, _target) = pair(&server);
    let mut reserve = |id: &str| asking.store.reserve(&placement("target", id, Duration::from_secs(30)));
    assert_eq!(reserve("t-1"), Ok(PlacementAnswer::Reserved));
    assert_eq!(reserve("t-1"), Ok(PlacementAnswer::Reserved), "repeated after a lost answer");
    assert_eq!(reserve("t-2"), Ok(PlacementAnswer::Full { pool: pool("all"), limit: 1, held: 1 }));
}

#[test]
fn full_fleet_reserves_nothing() {
    let Some(server) = server() else { return };
    let (mut asking, _target) = pair(&server);
    assert!(asking.gets(1));
    let answer = asking.store.reserve(&placement("target", "t-1", Duration::from_secs(30)));
    assert_eq!(answer, Ok(PlacementAnswer::Full { pool: pool("all"), limit: 1, held: 1 }));
    let answer = asking.store.reserve(&placement("elsewhere", "t-1", Duration::from_secs(30)));
    assert_eq!(answer, Ok(PlacementAnswer::HostUnreachable));
}
