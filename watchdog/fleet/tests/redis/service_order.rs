//! Which host is served first.

use std::time::{Duration, Instant};

use watchdog_tests::RedisServer;
use watchdog_types::FleetAnswer;

use crate::guest::{FleetGuest, is_granted as granted, pool, server};

const MINUTE: Duration = Duration::from_secs(60);
const ONE: &[(&str, u32)] = &[("all", 1)];

fn ahead(answer: &FleetAnswer) -> u32 {
    match answer {
        FleetAnswer::Refused { ahead, .. } => *ahead,
        other => panic!("refused, not {other:?}"),
    }
}

fn joined<const N: usize>(server: &RedisServer, hosts: [&str; N]) -> [FleetGuest; N] {
    hosts.map(|host| FleetGuest::joined(server, host))
}

/// Plays a scenario, which returns whether its asks were granted, and the time since a slot was freed. A called host
/// loses its turn after two seconds, so a slower scenario is repeated on a new server.
fn in_turn<const N: usize>(wanted: [bool; N], scenario: impl Fn(&RedisServer) -> ([bool; N], Duration)) {
    for _ in 0..20 {
        let Some(server) = server() else { return };
        let (granted, took) = scenario(&server);
        if took < Duration::from_millis(1500) {
            assert_eq!(granted, wanted);
            return;
        }
    }
    panic!("this machine is too slow");
}

#[test]
fn longest_waiting_host_is_first() {
    in_turn([false, true], |server| {
        let [mut holder, mut late, mut early] = joined(server, ["holder", "late", "early"]);
        assert!(holder.gets(1));
        holder.counts(&["all"]);
        assert_eq!(ahead(&late.ask_after(MINUTE, 0, ONE)), 0);
        assert_eq!(ahead(&early.ask_after(MINUTE * 2, 0, ONE)), 0);
        assert_eq!(ahead(&late.ask_after(MINUTE, 0, ONE)), 1);
        let freed = Instant::now();
        holder.releases(&["all"]);
        let late = granted(&late.ask_after(MINUTE, 0, ONE));
        ([late, granted(&early.ask_after(MINUTE * 2, 0, ONE))], freed.elapsed())
    });
}

#[test]
fn priority_is_worth_a_minute() {
    in_turn([false, true], |server| {
        let [mut holder, mut old, mut urgent] = joined(server, ["holder", "old", "urgent"]);
        assert!(holder.gets(1));
        holder.counts(&["all"]);
        old.ask_after(MINUTE * 3, 0, ONE);
        assert_eq!(ahead(&urgent.ask_after(Duration::ZERO, 2, ONE)), 1, "two minutes against three");
        assert_eq!(ahead(&urgent.ask_after(Duration::ZERO, 4, ONE)), 0);
        let freed = Instant::now();
        holder.releases(&["all"]);
        let old = granted(&old.ask_after(MINUTE * 3, 0, ONE));
        ([old, granted(&urgent.ask_after(Duration::ZERO, 4, ONE))], freed.elapsed())
    });
}

#[test]
fn newcomer_does_not_pass_the_waiting() {
    in_turn([false, true], |server| {
        let [mut holder, mut waiting, mut newcomer] = joined(server, ["holder", "waiting", "new"]);
        assert!(holder.gets(1));
        holder.counts(&["all"]);
        waiting.ask_after(MINUTE, 0, ONE);
        let freed = Instant::now();
        holder.releases(&["all"]);
        let newcomer = granted(&newcomer.ask(ONE));
        ([newcomer, granted(&waiting.ask_after(MINUTE, 0, ONE))], freed.elapsed())
    });
}

#[test]
fn full_user_does_not_block_others() {
    let Some(server) = server() else { return };
    let [mut a, mut b] = ["a", "b"].map(|host| FleetGuest::joined(&server, host));
    let ana: &[(&str, u32)] = &[("all", 9), ("user:ana", 1)];
    assert!(granted(&a.ask(ana)));
    let FleetAnswer::Refused { pool: full, .. } = a.ask_after(MINUTE, 0, ana) else { panic!("refused") };
    assert_eq!(full, pool("user:ana"));
    assert!(granted(&b.ask(&[("all", 9), ("user:bob", 1)])));
    assert!(granted(&a.ask(&[("all", 9), ("user:cem", 1)])), "on the same host neither");
}

#[test]
fn absent_host_loses_its_turn() {
    in_turn([false, true], |server| {
        let [mut holder, mut absent, mut next] = joined(server, ["holder", "absent", "next"]);
        assert!(holder.gets(1));
        holder.counts(&["all"]);
        absent.ask_after(MINUTE, 0, ONE);
        let freed = Instant::now();
        holder.releases(&["all"]);
        let (at_once, took) = (granted(&next.ask(ONE)), freed.elapsed());
        std::thread::sleep(Duration::from_millis(2200));
        ([at_once, granted(&next.ask(ONE))], took)
    });
}

#[test]
fn host_without_waiters_leaves_the_order() {
    let Some(server) = server() else { return };
    let [mut holder, mut gone, mut next] = ["holder", "gone", "next"].map(|host| FleetGuest::joined(&server, host));
    assert!(holder.gets(1));
    holder.counts(&["all"]);
    gone.ask_after(MINUTE, 0, ONE);
    gone.row.waiting = 0;
    gone.settle();
    holder.releases(&["all"]);
    assert!(granted(&next.ask(ONE)));
}

#[test]
fn late_row_keeps_the_turn() {
    in_turn([false, true], |server| {
        let [mut holder, mut waiting, mut next] = joined(server, ["holder", "waiting", "next"]);
        assert!(holder.gets(1));
        holder.counts(&["all"]);
        waiting.ask_after(MINUTE, 0, ONE);
        // A row without waiting launches, from before that ask.
        waiting.restate();
        let freed = Instant::now();
        holder.releases(&["all"]);
        let next = granted(&next.ask(ONE));
        ([next, granted(&waiting.ask_after(MINUTE, 0, ONE))], freed.elapsed())
    });
}

/// A hundred hosts with ten waiting launches each share a hundred places, while sessions end and others begin.
#[test]
fn hundred_hosts_share_fairly() {
    const HOSTS: usize = 100;
    const PLACES: u32 = 100;
    let Some(server) = server() else { return };
    let mut guests: Vec<FleetGuest> =
        (0..HOSTS).map(|number| FleetGuest::joined(&server, &format!("h{number}"))).collect();
    let started = Instant::now();
    let mut granted_to = vec![0_u32; HOSTS];
    let mut running: Vec<usize> = Vec::new();
    // All launches wait since the start. A host whose launch begins asks for the next one at once.
    let mut asks = |number: usize, guests: &mut [FleetGuest], running: &mut Vec<usize>| {
        let guest = &mut guests[number];
        while granted_to[number] < 10 && granted(&guest.ask_after(started.elapsed(), 0, &[("all", PLACES)])) {
            guest.row.waiting = 10;
            guest.counts(&["all"]);
            granted_to[number] += 1;
            running.push(number);
            assert!(running.len() <= PLACES as usize);
        }
        granted_to[number]
    };
    // The first hosts come first, and take all: no other host waits yet.
    for number in 0..HOSTS {
        asks(number, &mut guests, &mut running);
    }
    assert_eq!(running.len(), PLACES as usize);
    fastrand::seed(7);
    for _ in 0..30 {
        fastrand::shuffle(&mut running);
        for number in running.drain(..20) {
            guests[number].releases(&["all"]);
        }
        // Some ask at each chance, before those that the store called.
        for greedy in 90..HOSTS {
            asks(greedy, &mut guests, &mut running);
        }
        // An ask may call further hosts.
        for _ in 0..10 {
            let called = server.command(&["HKEYS", "{agent-watchdog}:called"]);
            for number in called.lines().filter_map(|line| line.strip_prefix('h')?.parse().ok()) {
                asks(number, &mut guests, &mut running);
            }
            if running.len() == PLACES as usize {
                break;
            }
        }
        assert_eq!(running.len(), PLACES as usize, "no place stays free while hosts wait");
    }
    let grants: Vec<f64> = (0..HOSTS).map(|number| asks(number, &mut guests, &mut running).into()).collect();
    let (sum, squares): (f64, f64) = (grants.iter().sum(), grants.iter().map(|n| n * n).sum());
    let jain = sum * sum / (HOSTS as f64 * squares);
    eprintln!("Jain's index of {sum} grants: {jain:.3}");
    assert!(jain >= 0.95, "{jain}: {grants:?}");
}
