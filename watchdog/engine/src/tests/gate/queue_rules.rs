//! Launches enter the queue, wait in it, and leave it without a grant.

use super::*;

#[test]
fn no_wait_states_blocker() {
    let mut world = roomy(&config_with("max_sessions = 1"));
    let first = start(&mut world);
    let asked = launch(&mut world);
    let second = ask(&mut world, Launch { waits: false, ..asked });
    assert_eq!(granted(&world), [first]);
    assert_eq!(refused(&world, second), Some(RefusalReason::Quota));
    assert_eq!(waiting(&world), Vec::<u32>::new());
    assert_eq!(queue(&world).refused[0].pid, second.pid.0);
}

#[test]
fn no_wait_does_not_jump_queue() {
    let mut world = roomy(&config_with("max_sessions = 1"));
    let crowd = crowd(&mut world, 2);
    world.kill(crowd[0]);
    let asked = launch(&mut world);
    let impatient = ask(&mut world, Launch { waits: false, ..asked });
    assert_eq!(granted(&world), crowd);
    assert_eq!(refused(&world, impatient), Some(RefusalReason::Quota));
}

#[test]
fn queue_timeout_refuses_launch() {
    let mut world = roomy(&config_with("max_sessions = 1\ntimeout = \"1m\""));
    let first = start(&mut world);
    let asked = launch(&mut world);
    let brief = ask(&mut world, Launch { timeout: Some(Duration::from_secs(2)), ..asked });
    let usual = start(&mut world);
    assert!(world.engine.next_tick(world.now) <= Duration::from_secs(2));
    world.pass(Duration::from_secs(3));
    assert_eq!(refused(&world, brief), Some(RefusalReason::Timeout));
    assert_eq!(waiting(&world), pids(&[usual]));
    world.pass(Duration::from_secs(60));
    assert_eq!(refused(&world, usual), Some(RefusalReason::Timeout));
    assert_eq!(granted(&world), [first]);
}

#[test]
fn full_queue_refuses_launch() {
    let mut world = roomy(&config_with("max_sessions = 1\nmax_queue = 3"));
    let crowd = crowd(&mut world, 6);
    assert_eq!(waiting(&world), pids(&crowd[1..4]));
    assert!(crowd[4..].iter().all(|process| refused(&world, *process) == Some(RefusalReason::QueueFull)));
}

#[test]
fn zero_queue_grants_free_slot() {
    let mut world = roomy(&config_with("max_sessions = 1\nmax_queue = 0"));
    let crowd = crowd(&mut world, 2);
    assert_eq!(refused(&world, crowd[1]), Some(RefusalReason::QueueFull));
    world.kill(crowd[0]);
    let next = start(&mut world);
    assert_eq!(granted(&world), [crowd[0], next]);
}

#[test]
fn full_queue_admits_grantable_launch() {
    let mut world = roomy("[gate]\nmax_queue = 1\n[[profile]]\nname = \"claude-code\"\nmax_sessions = 1\n");
    let crowd = crowd(&mut world, 3);
    assert_eq!(refused(&world, crowd[2]), Some(RefusalReason::QueueFull));
    let asked = launch(&mut world);
    let other = ask(&mut world, Launch { image: image("/usr/bin/codex", &["codex"]), ..asked });
    assert_eq!(granted(&world), [crowd[0], other]);
}

#[test]
fn dead_client_leaves_queue() {
    let mut world = roomy(&config_with("max_sessions = 1"));
    let crowd = crowd(&mut world, 3);
    world.feed(Input::CancelLaunch(crowd[1], Cancellation::ClientGone));
    assert_eq!(waiting(&world), pids(&crowd[2..]));
    world.kill(crowd[0]);
    assert_eq!(granted(&world), [crowd[0], crowd[2]]);
    assert_eq!(refusals(&world), []);
}

#[test]
fn cancelled_client_is_answered() {
    let mut world = roomy(&config_with("max_sessions = 1"));
    let crowd = crowd(&mut world, 2);
    assert_eq!(world.engine.waiting(Pid(crowd[1].pid.0)), Some((crowd[1], USER)));
    world.feed(Input::CancelLaunch(crowd[1], Cancellation::Cancelled));
    assert_eq!(refused(&world, crowd[1]), Some(RefusalReason::Cancelled));
    assert_eq!(waiting(&world), Vec::<u32>::new());
}

#[test]
fn user_sees_own_launches_only() {
    let mut world = roomy(&config_with("max_sessions = 1"));
    start(&mut world);
    let theirs = start(&mut world);
    let asked = launch(&mut world);
    let mine = ask(&mut world, Launch { uid: Uid(2_000), ..asked });
    let seen = world.engine.queue(world.now, Viewer::User(Uid(2_000)), &naming());
    assert_eq!(seen.waiting.iter().map(|waiter| waiter.pid).collect::<Vec<_>>(), [mine.pid.0]);
    assert_eq!(seen.leases, []);
    assert_eq!(queue_position(&world, theirs).unwrap().blocker.holders.len(), 1);
    let holders = queue_position(&world, mine).unwrap().blocker.holders;
    assert_eq!(world.engine.occupants(&holders, Viewer::User(Uid(2_000)), &naming()), []);
    assert_eq!(world.engine.occupants(&holders, Viewer::Root, &naming()).len(), 1);
}
