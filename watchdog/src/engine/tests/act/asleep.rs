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
    world.wait(10 * SECOND);
    assert!(all_dead(&world, &chain));
}
