//! The order of the queue.

use super::*;

const ALICE: Uid = Uid(2_000);
const BOB: Uid = Uid(3_000);

fn asks(world: &mut World, uid: Uid, priority: i32) -> ProcessId {
    let asked = launch(world);
    ask(world, Launch { uid, priority, ..asked })
}

/// A host with one slot, which is taken.
fn taken() -> (World, ProcessId) {
    let mut world = roomy(&config_with("max_sessions = 1"));
    let first = start(&mut world);
    (world, first)
}

/// Ends the running launches one after another, and returns the order in which the others are granted.
fn served(world: &mut World, first: ProcessId) -> Vec<ProcessId> {
    let mut running = first;
    loop {
        world.kill(running);
        match granted(world).last() {
            Some(next) if *next != running => running = *next,
            _ => return granted(world)[1..].to_vec(),
        }
    }
}

#[test]
fn first_come_first_served() {
    let (mut world, first) = taken();
    let crowd = crowd(&mut world, 5);
    assert_eq!(waiting(&world), pids(&crowd));
    assert_eq!(served(&mut world, first), crowd);
}

#[test]
fn higher_priority_is_granted_first() {
    let (mut world, first) = taken();
    let low = asks(&mut world, USER, -1);
    let usual = [asks(&mut world, USER, 0), asks(&mut world, USER, 0)];
    let high = asks(&mut world, USER, 5);
    let expected = [high, usual[0], usual[1], low];
    assert_eq!(waiting(&world), pids(&expected));
    assert_eq!(served(&mut world, first), expected);
}

#[test]
fn waiting_raises_priority() {
    let (mut world, mut running) = taken();
    let low = asks(&mut world, USER, 0);
    let mut served = 0;
    // A launch of priority 5 arrives before each slot becomes free.
    while !granted(&world).contains(&low) {
        asks(&mut world, USER, 5);
        world.pass(Duration::from_secs(30));
        world.kill(running);
        running = *granted(&world).last().unwrap();
        served += 1;
        assert!(served <= 12, "still waiting after {served} others");
    }
    assert!(served >= 9, "priority 5 is worth five minutes, and {served} half minutes were waited");
}

#[test]
fn flood_delays_others_one_turn() {
    let (mut world, first) = taken();
    let flood: Vec<ProcessId> = (0..50).map(|_| asks(&mut world, ALICE, 0)).collect();
    world.pass(Duration::from_secs(600));
    let single = asks(&mut world, BOB, 0);
    // The flood has waited for long, and has its turn; then the other has.
    assert_eq!(waiting(&world)[..3], pids(&[flood[0], single, flood[1]]));
    assert_eq!(served(&mut world, first)[..3], [flood[0], single, flood[1]]);
}

#[test]
fn user_with_fewer_sessions_first() {
    let mut world = roomy(&config_with("max_sessions = 3"));
    let running = [asks(&mut world, ALICE, 0), asks(&mut world, ALICE, 0), asks(&mut world, BOB, 0)];
    let more = [asks(&mut world, ALICE, 0), asks(&mut world, BOB, 0)];
    world.kill(running[0]);
    assert_eq!(granted(&world).last(), Some(&more[0]), "each runs one: the first to arrive");
    world.kill(running[1]);
    assert_eq!(granted(&world).last(), Some(&more[1]));
}

#[test]
fn large_launch_is_not_starved() {
    let mut world = host(&config_with("reserve = \"1MiB\"\nbreaker_open = \"100%\""), 16 * GIB, 2 * GIB);
    let asked = launch(&mut world);
    let large = ask(&mut world, Launch { memory: Some(Bytes::from_mib(8 * GIB)), ..asked });
    let small = start(&mut world);
    assert_eq!(granted(&world), []);
    memory(&mut world, 16 * GIB, 9 * GIB);
    assert_eq!(granted(&world), [large, small]);
}

#[test]
fn only_changed_positions_are_notified() {
    let (mut world, first) = taken();
    let crowd = crowd(&mut world, 3);
    world.effects.clear();
    world.pass(Duration::from_secs(10));
    assert!(
        !world.effects.iter().any(|effect| matches!(effect, Effect::Reply(ClientReply::Queued(_)))),
        "nothing has changed"
    );
    world.kill(first);
    let updates: Vec<(u32, u64)> = world
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Reply(ClientReply::Queued(waits)) => Some((waits.process.pid.0, waits.position)),
            _ => None,
        })
        .collect();
    assert_eq!(updates, [(crowd[1].pid.0, 1), (crowd[2].pid.0, 2)]);
}

#[test]
fn recent_grants_estimate_the_wait() {
    let (mut world, mut running) = taken();
    let crowd = crowd(&mut world, 5);
    assert_eq!(queue_position(&world, crowd[4]).unwrap().estimate, None);
    for _ in 0..3 {
        world.pass(Duration::from_secs(20));
        world.kill(running);
        running = *granted(&world).last().unwrap();
    }
    let position = queue_position(&world, crowd[4]).unwrap();
    assert_eq!(position.position, 2);
    let estimate = position.estimate.unwrap().as_secs_f64();
    assert!((28.0..=42.0).contains(&estimate), "{estimate} s for two slots, of which one is freed every 20 s");
}

#[test]
fn only_root_outranks_other_users() {
    let (mut world, first) = taken();
    let usual = asks(&mut world, ALICE, 0);
    let pushy = asks(&mut world, BOB, 100);
    let root = asks(&mut world, Uid::ROOT, 1);
    assert_eq!(served(&mut world, first), [root, usual, pushy]);
}

#[test]
fn one_user_cannot_fill_queue() {
    let mut world = roomy(&config_with("max_sessions = 1\nmax_queue = 20"));
    start(&mut world);
    let flood: Vec<ProcessId> = (0..30).map(|_| asks(&mut world, ALICE, 0)).collect();
    assert_eq!(refused(&world, flood[18]), Some(RefusalReason::QueueFull));
    let others: Vec<ProcessId> = (0..3).map(|_| asks(&mut world, BOB, 0)).collect();
    assert_eq!(waiting(&world).len(), 20);
    assert_eq!(others.iter().filter(|other| refused(&world, **other).is_none()).count(), 2);
}
