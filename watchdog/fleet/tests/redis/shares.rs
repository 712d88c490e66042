//! What each host may run while the store is lost.

use proptest::prelude::*;
use watchdog_fleet::Restated;
use watchdog_tests::RedisServer;
use watchdog_types::FleetShares;

use crate::guest::{FleetGuest, LONG, SHORT, end_pause, pool, server, soon_after, until};

/// All hosts have been there for a TTL.
fn end_first_ttl(server: &RedisServer) {
    let script = "\
        for _, host in ipairs(redis.call('HKEYS', KEYS[1])) do if host ~= '' then \
        local row = cjson.decode(redis.call('HGET', KEYS[1], host)) row.j = 0 \
        redis.call('HSET', KEYS[1], host, cjson.encode(row)) end end";
    server.command(&["EVAL", script, "1", "{agent-watchdog}:state"]);
}

fn stated_shares(guest: &mut FleetGuest) -> FleetShares {
    match guest.restate() {
        Restated::Done { shares, .. } => shares,
        other => panic!("{other:?}"),
    }
}

/// Hosts with these places in the pool of all, which the store has counted.
fn holding(server: &RedisServer, limit: u32, held: &[u32]) -> Vec<FleetGuest> {
    let mut guests: Vec<FleetGuest> = (0..held.len())
        .map(|number| {
            let mut guest = FleetGuest::of(&server.url(), &format!("host-{number}"), LONG);
            guest.row.limits.insert(pool("all"), limit);
            guest.row.held.insert(pool("all"), held[number]);
            guest.restate();
            guest
        })
        .collect();
    end_first_ttl(server);
    guests.iter_mut().for_each(|guest| drop(guest.restate()));
    guests
}

#[test]
fn share_is_what_others_leave() {
    for (limit, held, share) in [
        (100, &[60, 10][..], 40),
        (100, &[10, 10], 50),
        (100, &[60, 0, 0, 10], 13),
        (100, &[50, 50, 0], 0),
        (100, &[40, 30, 20], 30),
        (3, &[0, 3], 0),
        (4, &[2, 2], 2),
        (4, &[9, 0], 0),
        (1, &[0, 0], 0),
        (2, &[5], 0),
    ] {
        let Some(server) = server() else { return };
        let mut guests = holding(&server, limit, held);
        for guest in &mut guests {
            let shares = stated_shares(guest);
            assert_eq!((shares.of(&pool("all"), limit), shares.hosts as usize), (share, held.len()), "{held:?}");
        }
    }
}

#[test]
fn many_holders_are_read_in_pages() {
    let Some(server) = server() else { return };
    let held: Vec<u32> = (0..120).map(|number| if number < 110 { 10 } else { 0 }).collect();
    let mut guests = holding(&server, 1_150, &held);
    assert_eq!(stated_shares(&mut guests[119]).of(&pool("all"), 1_150), 5);
}

#[test]
fn users_share_what_others_leave() {
    let Some(server) = server() else { return };
    let mut guests = holding(&server, 100, &[0, 0]);
    guests[0].row.held.insert(pool("user:ana"), 7);
    guests[0].restate();
    guests[1].row.user_limit = Some(10);
    let shares = stated_shares(&mut guests[1]);
    assert_eq!((shares.of(&pool("user:ana"), 10), shares.of(&pool("user:bob"), 10)), (3, 5));
    assert_eq!(shares.of(&pool("label:gpu"), 10), 0, "not limited when the store was last seen");
}

#[test]
fn fresh_host_or_store_lacks_share() {
    let Some(server) = server() else { return };
    let mut old = holding(&server, 10, &[4]);
    let mut new = FleetGuest::of(&server.url(), "new", LONG);
    new.row.limits.insert(pool("all"), 10);
    assert_eq!(stated_shares(&mut new), FleetShares::default(), "another host may not count it yet");
    assert_eq!(stated_shares(&mut old[0]).of(&pool("all"), 10), 5);
    server.command(&["FLUSHALL"]);
    assert_eq!(stated_shares(&mut old[0]), FleetShares::default(), "rows may lack");
    end_pause(&server);
    assert_eq!(stated_shares(&mut old[0]), FleetShares::default());
}

#[test]
fn share_is_known_after_one_ttl() {
    let Some(server) = server() else { return };
    let mut guest = FleetGuest::of(&server.url(), "a", SHORT);
    guest.row.limits.insert(pool("all"), 10);
    let waited = until(soon_after(SHORT), || stated_shares(&mut guest).of(&pool("all"), 10) == 10);
    assert!(waited > SHORT / 2, "{waited:?}");
}

/// A host after the loss of the store, with the shares that it saw last.
struct LonelyHost {
    shares: FleetShares,
    running: u32,
}

#[derive(Clone, Debug)]
enum LonelyMove {
    Start,
    End,
}

fn lonely_moves() -> impl Strategy<Value = Vec<(usize, LonelyMove)>> {
    let one = prop_oneof![3 => Just(LonelyMove::Start), 1 => Just(LonelyMove::End)];
    prop::collection::vec((0..6_usize, one), 1..200)
}

fn all_running(hosts: &[LonelyHost]) -> u32 {
    hosts.iter().map(|host| host.running).sum()
}

/// Plays, and returns the most that ever ran at once.
fn play_alone(hosts: &mut [LonelyHost], limit: u32, moves: Vec<(usize, LonelyMove)>) -> u32 {
    let mut most = all_running(hosts);
    for (at, one) in moves {
        let count = hosts.len();
        let host = &mut hosts[at % count];
        match one {
            LonelyMove::Start if host.running < host.shares.of(&pool("all"), limit) => host.running += 1,
            LonelyMove::Start => {}
            LonelyMove::End => host.running = host.running.saturating_sub(1),
        }
        most = most.max(all_running(hosts));
    }
    // As many as they can.
    for host in &mut *hosts {
        host.running = host.running.max(host.shares.of(&pool("all"), limit));
    }
    most.max(all_running(hosts))
}

#[test]
fn lost_store_never_exceeds_limit() {
    let Some(server) = RedisServer::start(&["--appendonly", "no"]) else { return };
    let config = ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() };
    let fleets = (1..40_u32, prop::collection::vec(0..20_u32, 1..6), lonely_moves());
    proptest!(config, |((limit, wanted, moves) in fleets)| {
        server.command(&["FLUSHALL"]);
        end_pause(&server);
        // Places that the store granted: never more than the limit.
        let mut left = limit;
        let held: Vec<u32> = wanted.iter().map(|wanted| { let held = *wanted.min(&left); left -= held; held }).collect();
        let mut guests = holding(&server, limit, &held);
        let mut hosts: Vec<LonelyHost> = guests
            .iter_mut()
            .zip(&held)
            .map(|(guest, running)| LonelyHost { shares: stated_shares(guest), running: *running })
            .collect();
        let most = play_alone(&mut hosts, limit, moves);
        prop_assert!(most <= limit, "{most} of {limit}, from {held:?}");
    });
}

/// Each host saw its share at another time: the excess is at most the number of places granted since the oldest view.
#[test]
fn old_views_exceed_by_later_grants() {
    let Some(server) = RedisServer::start(&["--appendonly", "no"]) else { return };
    let config = ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() };
    let steps = prop::collection::vec((0..4_usize, prop_oneof![3 => Just(true), 2 => Just(false)]), 1..40);
    let fleets = (2..20_u32, prop::collection::vec(0..8_u32, 4), steps, lonely_moves());
    proptest!(config, |((limit, wanted, steps, moves) in fleets)| {
        server.command(&["FLUSHALL"]);
        end_pause(&server);
        let mut left = limit;
        let held: Vec<u32> = wanted.iter().map(|wanted| { let held = *wanted.min(&left); left -= held; held }).collect();
        let mut guests = holding(&server, limit, &held);
        let mut shares: Vec<FleetShares> = guests.iter_mut().map(stated_shares).collect();
        let mut granted = 0;
        for (at, starts) in steps {
            let guest = &mut guests[at];
            if starts && guest.gets(limit) {
                granted += 1;
                // Its row is renewed later.
                *guest.row.held.entry(pool("all")).or_default() += 1;
                guest.row.settled = watchdog_types::AskNumber(guest.row.settled.0 + 1);
            } else if starts {
                guest.row.settled = watchdog_types::AskNumber(guest.row.settled.0 + 1);
            } else if guest.row.held.get(&pool("all")).is_some_and(|held| *held > 0) {
                guest.releases(&["all"]);
                shares[at] = stated_shares(guest);
            }
        }
        let running = |guest: &FleetGuest| guest.row.held.get(&pool("all")).copied().unwrap_or(0);
        let mut hosts: Vec<LonelyHost> = guests
            .iter()
            .zip(shares)
            .map(|(guest, shares)| LonelyHost { shares, running: running(guest) })
            .collect();
        let most = play_alone(&mut hosts, limit, moves);
        prop_assert!(most <= limit + granted, "{most} of {limit}, {granted} granted since, from {held:?}");
    });
}
