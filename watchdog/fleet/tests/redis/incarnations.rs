use watchdog_fleet::{HostCounts, Restated};
use watchdog_tests::RedisServer;
use watchdog_types::FleetAnswer;

use crate::guest::{FleetGuest, LONG, name, server};

fn with_place(server: &RedisServer, machine: &str, boot: &str, generation: u64) -> FleetGuest {
    let mut guest = FleetGuest::on(&server.url(), "a", LONG, machine, boot, generation);
    guest.restate();
    assert!(guest.gets(1));
    guest.counts(&["all"]);
    guest
}

#[test]
fn earlier_daemon_changes_nothing() {
    let Some(server) = server() else { return };
    let mut old = with_place(&server, "m", "boot-1", 1);
    let mut new = FleetGuest::on(&server.url(), "a", LONG, "m", "boot-1", 2);
    new.row.held = old.row.held.clone();
    new.restate();
    old.row.held.clear();
    assert_eq!(old.restate(), Restated::Superseded);
    assert_eq!(old.ask(&[("all", 9)]), FleetAnswer::Void);
    assert_eq!(new.total(), 1);
}

#[test]
fn restarted_daemon_drops_unused_grants() {
    let Some(server) = server() else { return };
    let mut old = FleetGuest::on(&server.url(), "a", LONG, "m", "boot-1", 1);
    old.restate();
    assert!(old.gets(1));
    let mut new = FleetGuest::on(&server.url(), "a", LONG, "m", "boot-1", 2);
    new.restate();
    assert_eq!(new.total(), 0, "the launch never began");
    assert!(new.gets(1));
}

#[test]
fn reboot_frees_slots_at_once() {
    let Some(server) = server() else { return };
    let _old = with_place(&server, "m", "boot-1", 5);
    // The state directory was lost: the generation begins again.
    let mut new = FleetGuest::on(&server.url(), "a", LONG, "m", "boot-2", 1);
    assert!(matches!(new.restate(), Restated::Done { hosts: HostCounts { up: 1, .. }, paused: None, .. }));
    assert_eq!(new.total(), 0);
    assert!(new.gets(1));
}

#[test]
fn cloned_host_is_refused() {
    let Some(server) = server() else { return };
    let mut original = with_place(&server, "m", "boot-1", 1);
    let mut clone = FleetGuest::on(&server.url(), "a", LONG, "m", "boot-2", 1);
    clone.restate();
    // A machine that rebooted cannot speak with its old boot id.
    let Restated::DuplicateMachine { .. } = original.restate() else { panic!("two machines") };
    assert!(matches!(clone.restate(), Restated::DuplicateMachine { .. }));
    for guest in [&mut original, &mut clone] {
        let answer = guest.ask(&[("all", 9)]);
        assert!(matches!(answer, FleetAnswer::DuplicateMachine { .. }), "{answer:?}");
    }
    assert_eq!(clone.total(), 1, "the sessions of both count");
    assert!(clone.view().hosts.iter().all(|host| host.duplicate));
}

#[test]
fn cloned_machine_id_is_refused() {
    let Some(server) = server() else { return };
    let mut a = FleetGuest::on(&server.url(), "a", LONG, "m", "boot-1", 1);
    let mut b = FleetGuest::on(&server.url(), "b", LONG, "m", "boot-2", 1);
    a.restate();
    assert_eq!(b.restate(), Restated::DuplicateMachine { host: name("a") });
    assert_eq!(a.restate(), Restated::DuplicateMachine { host: name("b") });
    assert_eq!(a.ask(&[("all", 9)]), FleetAnswer::DuplicateMachine { host: name("b") });
    assert_eq!(b.ask(&[("all", 9)]), FleetAnswer::DuplicateMachine { host: name("a") });
}

#[test]
fn host_name_used_twice_is_refused() {
    let Some(server) = server() else { return };
    let mut a = FleetGuest::on(&server.url(), "a", LONG, "m-1", "boot-1", 1);
    let mut other = FleetGuest::on(&server.url(), "a", LONG, "m-2", "boot-2", 1);
    a.restate();
    assert!(matches!(other.restate(), Restated::DuplicateMachine { .. }));
    assert!(matches!(a.ask(&[("all", 9)]), FleetAnswer::DuplicateMachine { .. }));
    assert!(matches!(other.ask(&[("all", 9)]), FleetAnswer::DuplicateMachine { .. }));
}

#[test]
fn daemons_of_one_machine_coexist() {
    let Some(server) = server() else { return };
    for host in ["a", "b"] {
        let mut guest = FleetGuest::on(&server.url(), host, LONG, "m", "boot-1", 1);
        guest.restate();
        assert!(guest.gets(2));
    }
}
