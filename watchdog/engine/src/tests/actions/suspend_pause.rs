//! The clock of the engine advances while the host is suspended.

use super::*;

/// The host is suspended, and wakes up.
fn sleeps(world: &mut World) {
    world.now = world.now.plus(60 * MINUTE);
    world.feed(Input::Tick);
}

#[test]
fn suspend_extends_kill_timeout() {
    let (mut world, chain) = reaped();
    world.wait(SECOND);
    sleeps(&mut world);
    world.wait(8 * SECOND);
    assert!(!all_dead(&world, &chain[..1]), "{:#?}", receipts(&world));
    world.wait(2 * SECOND);
    assert!(all_dead(&world, &chain));
}

#[test]
fn resume_pauses_policy() {
    let mut world = acting(|_| {});
    let chain = left_behind(&mut world);
    sleeps(&mut world);
    world.wait(25 * SECOND);
    assert!(world.operations.is_empty());
    let said = held_back(&world);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("system was suspended or stalled for 3600s"), "{said:?}");
    world.wait(10 * SECOND);
    assert!(all_dead(&world, &chain));
}
