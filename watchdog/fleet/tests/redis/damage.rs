//! Another program, or a hostile host, writes into the keys of the fleet.

use std::time::Duration;

use rstest::rstest;
use watchdog_fleet::Restated;
use watchdog_tests::RedisServer;
use watchdog_types::FleetAnswer;

use crate::guest::{FleetGuest, LONG, is_granted, is_paused, server, unpaused_answer, until};

/// Shares are stated after this time.
const TTL: Duration = Duration::from_secs(3);

fn tampered(server: &RedisServer, [command, key, field, value]: [&str; 4]) {
    server.command(&[command, &format!("{{agent-watchdog}}:{key}"), field, value]);
}

fn pair(server: &RedisServer, ttl: Duration) -> [FleetGuest; 2] {
    ["a", "b"].map(|host| {
        let mut guest = FleetGuest::of(&server.url(), host, ttl);
        guest.restate();
        guest
    })
}

/// No call fails, and the slots in use are counted again.
#[rstest]
#[case::row(["HSET", "state", "a", "nonsense"])]
#[case::row_of_other_shape(["HSET", "state", "a", "{\"m\":5}"])]
#[case::row_with_other_types(["HSET", "state", "b", "[[], null]"])]
#[case::row_of_stranger(["HSET", "state", "evil", "nonsense"])]
#[case::expired_stranger(["ZADD", "expiry", "1", "evil"])]
#[case::total(["HSET", "totals", "all", "many"])]
#[case::negative_total(["HSET", "totals", "all", "-7"])]
#[case::fraction_of_total(["HSET", "totals", "all", "0.5"])]
#[case::fence(["HSET", "meta", "fence", "9223372036854775807"])]
#[case::fence_of_letters(["HSET", "meta", "fence", "x"])]
#[case::clock(["HSET", "meta", "clock", "x"])]
#[case::ttl(["HSET", "meta", "ttl", "x"])]
#[case::layout(["HSET", "meta", "layout", "x"])]
#[case::limit(["HSET", "limits", "all", "x"])]
#[case::notification(["HSET", "called", "b\nall", "x"])]
fn damaged_data_is_counted_again(#[case] command: [&str; 4]) {
    let Some(server) = server() else { return };
    let [mut a, mut b] = pair(&server, LONG);
    for guest in [&mut a, &mut b] {
        assert!(guest.gets(2));
        guest.counts(&["all"]);
    }
    assert!(!b.gets(2));
    tampered(&server, command);
    // The call that finds the damage forgets all rows. A damaged row of a stranger is found when it expires.
    tampered(&server, ["ZADD", "expiry", "1", "evil"]);
    for answer in [a.ask(&[("all", 2)]), b.ask(&[("all", 2)])] {
        let refused = is_paused(&answer) || matches!(answer, FleetAnswer::Void | FleetAnswer::Refused { .. });
        assert!(refused, "{answer:?}");
    }
    a.settle();
    b.settle();
    tampered(&server, ["HSET", "meta", "pause", "0"]);
    assert!(!a.gets(2) && !b.gets(2), "both slots are in use");
    let longest_waiting = a.ask_after(LONG, 0, &[("all", 3)]);
    assert!(matches!(longest_waiting, FleetAnswer::Granted { .. }), "{longest_waiting:?}");
    assert!(!b.gets(3));
    assert_eq!(a.view().hosts.len(), 2);
    assert_eq!(server.command(&["HEXISTS", "{agent-watchdog}:state", "evil"]).trim(), "0");
}

#[test]
fn endless_pause_ends() {
    let Some(server) = server() else { return };
    let [mut a, _b] = pair(&server, TTL);
    tampered(&server, ["HSET", "meta", "strict", "1"]);
    tampered(&server, ["HSET", "meta", "pause", "1e300"]);
    assert!(is_paused(&a.ask(&[("all", 1)])));
    until(LONG, || {
        a.restate();
        a.gets(1)
    });
}

#[rstest]
#[case::name(["ZADD", "seen", "1", "evil\u{1b}[2J host"])]
#[case::long_name(["ZADD", "seen", "99999999999999", &"x".repeat(100_000)])]
#[case::state(["HSET", "rows", "a", "\u{1b}[2Jnonsense"])]
#[case::long_state(["HSET", "rows", "a", &"x".repeat(100_000)])]
#[case::pool(["HSET", "totals", "user:not a name", "99"])]
#[case::holder(["ZADD", "held:all", "9", "evil\u{1b}[2J host"])]
#[case::waiting(["ZADD", "waiting", "-inf", "evil"])]
#[case::machine(["HSET", "machines", "machine-a", "\u{1b}[2J"])]
fn nonsense_hides_no_host(#[case] command: [&str; 4]) {
    let Some(server) = server() else { return };
    let [mut a, mut b] = pair(&server, TTL);
    a.row.user_limit = Some(9);
    assert!(is_granted(&unpaused_answer(&mut [&mut a, &mut b], &[("all", 1)])));
    a.counts(&["all"]);
    tampered(&server, command);
    until(LONG, || {
        let restated = [&mut a, &mut b].map(FleetGuest::restate);
        restated.iter().all(|one| matches!(one, Restated::Done { shares, .. } if shares.hosts == 2))
    });
    if command[1] == "rows" {
        // It stays until the host restates itself.
        tampered(&server, command);
    }
    let view = b.view();
    let names: Vec<&str> = view.hosts.iter().map(|host| host.host.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let answer = unpaused_answer(&mut [&mut b, &mut a], &[("all", 1)]);
    let FleetAnswer::Refused { by_host, held, .. } = answer else { panic!("the limit is reached: {answer:?}") };
    let holders: Vec<(&str, u32)> = by_host.iter().map(|(host, places)| (host.as_str(), *places)).collect();
    assert_eq!((holders, held), (vec![("a", 1)], 1));
}
