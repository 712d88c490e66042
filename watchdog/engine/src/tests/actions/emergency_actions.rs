use super::*;

/// Memory is about to run out: 8 % of it is left.
fn short(world: &mut World) {
    world.host_is(memory(16_384, 1_310));
}

fn relieved(world: &mut World) {
    world.host_is(memory(16_384, 8_000));
}

#[test]
fn emergency_prefers_orphans_spares_agents() {
    let mut world = acting(|_| {});
    let (dead, agent) = (world.claude(), world.claude());
    let orphans = server(&mut world, dead);
    let (servers, burst) = (server(&mut world, agent), tool(&mut world, agent, 900));
    world.kill(dead);
    world.wait(SECOND);

    short(&mut world);
    assert_eq!(world.terminated()[..3], [orphans[2], orphans[1], orphans[0]]);
    world.wait(SECOND);
    short(&mut world);
    world.wait(SECOND);
    assert!(all_dead(&world, &[burst]), "{:#?}", receipts(&world));
    for _ in 0..10 {
        short(&mut world);
        world.wait(5 * SECOND);
    }
    assert!(!all_dead(&world, &[agent]) && servers.iter().all(|server| !all_dead(&world, &[*server])));
    let receipts = receipts(&world);
    assert_eq!(receipts.len(), 2, "{receipts:#?}");
    assert!(receipts.iter().all(|receipt| receipt.by == watchdog_api::DecidedBy::Emergency));
    assert!(receipts[0].reason.starts_with("7% of memory left: "), "{}", receipts[0].reason);
}

#[test]
fn emergency_stops_after_recovery() {
    let mut world = acting(|_| {});
    let (one, other) = (world.claude(), world.claude());
    let (first, second) = (server(&mut world, one), server(&mut world, other));
    world.memory(first[2], Bytes::from_mib(500));
    world.stubborn.insert(first[2]);
    world.kill(one);
    world.kill(other);
    world.wait(SECOND);

    short(&mut world);
    world.wait(5 * SECOND);
    short(&mut world);
    assert_eq!(receipts(&world).len(), 1, "the largest group first, and one at a time");
    world.wait(6 * SECOND);
    relieved(&mut world);
    world.wait(5 * SECOND);
    assert!(all_dead(&world, &first), "{:#?}", receipts(&world));
    assert!(second.iter().all(|process| !all_dead(&world, &[*process])));
}

#[test]
fn kill_threshold_skips_sigterm() {
    let mut world = acting(|_| {});
    let agent = world.claude();
    let hog = tool(&mut world, agent, 4_000);
    world.stubborn.insert(hog);
    short(&mut world);
    assert_eq!(world.terminated(), [hog]);
    world.wait(2 * SECOND);
    world.host_is(memory(16_384, 300));
    world.wait(SECOND);
    assert!(all_dead(&world, &[hog]), "{:?}", world.operations);

    let hog = tool(&mut world, agent, 4_000);
    world.wait(SECOND);
    world.host_is(memory(16_384, 300));
    assert_eq!(
        world.operations.last().map(|(_, operation, process)| (*operation, *process)),
        Some((Operation::Kill, hog))
    );
}

#[test]
fn small_burst_is_skipped() {
    let mut world = acting(|_| {});
    let agent = world.claude();
    let hog = world.spawn(agent, &["/usr/bin/python3", "fill.py"]);
    world.memory(hog, Bytes::from_mib(9_000));
    world.wait(2 * MINUTE);
    let small = tool(&mut world, agent, 200);
    short(&mut world);
    assert_eq!(world.terminated(), [hog]);
    assert!(!all_dead(&world, &[small]));
}

#[test]
fn tool_with_terminal_is_no_exemption() {
    let mut world = acting(|_| {});
    let agent = world.claude();
    let tool = tool(&mut world, agent, 3_000);
    world.shows(tool, |seen| (seen.sid, seen.tty) = (tool.pid.0, true));
    short(&mut world);
    world.wait(SECOND);
    assert!(all_dead(&world, &[tool]), "{:#?}", receipts(&world));
}

#[test]
fn free_swap_prevents_emergency() {
    let mut world = acting(|_| {});
    let agent = world.claude();
    tool(&mut world, agent, 4_000);
    let swap = Bytes::from_mib(8_192);
    world.host_is(HostMemory { swap_total: swap, swap_free: swap, ..memory(16_384, 1_000) });
    world.wait(5 * SECOND);
    assert!(world.operations.is_empty());
    world.host_is(HostMemory { swap_total: swap, swap_free: Bytes::from_mib(200), ..memory(16_384, 1_000) });
    assert_eq!(world.operations.len(), 1);
}

#[test]
fn pressure_alone_terminates_nothing() {
    let mut world = acting(|_| {});
    let chain = orphaned(&mut world);
    let (some, full) = (Some(90.0), Some(90.0));
    world.host_is(HostMemory { pressure_some_avg10: some, pressure_full_avg10: full, ..memory(16_384, 9_800) });
    world.wait(20 * SECOND);
    assert!(world.operations.is_empty() && !all_dead(&world, &chain));
}

#[test]
fn missing_candidates_are_reported_once() {
    let mut world = acting(|_| {});
    let agent = world.claude();
    world.memory(agent, Bytes::from_mib(12_000));
    for _ in 0..5 {
        short(&mut world);
        world.wait(5 * SECOND);
    }
    assert!(world.operations.is_empty());
    assert_eq!(held_back(&world).len(), 1);
}

#[test]
fn emergency_can_be_disabled() {
    let mut world = acting(|config| config.actions.emergency = false);
    let agent = world.claude();
    tool(&mut world, agent, 4_000);
    short(&mut world);
    world.wait(5 * SECOND);
    assert!(world.operations.is_empty());
}

#[test]
fn urgent_action_kills_forked_children() {
    let mut world = acting(|_| {});
    let chain = left_behind(&mut world);
    world.slow_proc = true;
    world.host_is(memory(16_384, 300));
    let child = world.fork(chain[2]);
    world.slow_proc = false;
    for process in chain {
        let seen = world.ordinary.clone();
        world.feed(Input::Inspected(process, Some(seen)));
    }
    world.wait(SECOND);
    assert!(all_dead(&world, &[child]) && all_dead(&world, &chain), "{:#?}", receipts(&world));
    assert!(world.operations.iter().all(|(_, operation, _)| *operation == Operation::Kill), "{:#?}", world.operations);
}
