//! The clock of the engine goes on while the host is suspended.

use super::*;

/// The host is suspended, and wakes up.
fn sleeps(world: &mut World) {
    world.now = world.now.plus(60 * MINUTE);
    world.tell(Input::Tick);
}

#[test]
fn who_was_told_to_end_has_his_time_after_the_host_has_slept_too() {
    let (mut world, chain) = reaped();
    world.wait(SECOND);
    sleeps(&mut world);
    world.wait(8 * SECOND);
    assert!(!all_dead(&world, &chain[..1]), "{:#?}", receipts(&world));
    world.wait(2 * SECOND);
    assert!(all_dead(&world, &chain));
}

#[test]
fn a_grace_that_passed_while_the_host_slept_can_still_be_called_off() {
    let mut world = acting(|_| {});
    let chain = left_behind(&mut world);
    sleeps(&mut world);
    world.wait(25 * SECOND);
    assert!(world.blows.is_empty());
    let said = held_back(&world);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("the host slept, or kept the watchdog from running, for 3600 s"), "{said:?}");
    world.wait(10 * SECOND);
    assert!(all_dead(&world, &chain));
}
