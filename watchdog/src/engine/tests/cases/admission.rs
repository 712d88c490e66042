//! Q: hosts that went down because too much was started at once, or because whoever started it looked at the wrong number.

use std::time::Duration;

use super::shell;
use crate::api::{FindingKind, RefusalReason};
use crate::engine::effect::Effect;
use crate::engine::gate::Launch;
use crate::engine::id::{Bytes, ProcessId};
use crate::engine::input::{CgroupLimit, HostMemory, Input};
use crate::engine::tests::gate::{
    GIB, ask, crowd, granted, host, launch, memory, pids, queue, roomy, run, start, told, waiting,
};
use crate::engine::tests::world::World;

/// Q01: six subagents, seventy node processes, one minute. A gate at the roots is not enough: the session's own growth is
/// bounded in the kernel, seen as a burst, and nothing more is granted meanwhile.
#[test]
fn a_session_that_bursts_is_bounded_seen_and_followed_by_nothing() {
    let config = "[gate]\nexpected_memory = \"700MiB\"\n[[profile]]\nname = \"claude-code\"\nmax_helpers = 30\n";
    let mut world = host(config, 46 * GIB, 44 * GIB);
    let agent = start(&mut world);
    let bounded = |effect: &Effect| matches!(effect, Effect::Bound(root, bounds) if *root == agent && bounds.max_helpers == Some(30));
    assert!(world.effects.iter().any(bounded));
    run(&mut world, agent);
    for _ in 0..6 {
        let subagent = world.spawn(agent, &["/usr/bin/claude", "-p", "task"]);
        for _ in 0..11 {
            let lint = shell(&mut world, subagent, "eslint .");
            world.memory(lint, Bytes::from_mib(620));
        }
    }
    world.pass(Duration::from_secs(5));
    assert_eq!(world.open(FindingKind::Fanout).len(), 1);
    memory(&mut world, 46 * GIB, 3 * GIB);
    let next = start(&mut world);
    assert_eq!(told(&world, next).unwrap().obstacle.reason, RefusalReason::Breaker);
    assert_eq!(granted(&world), [agent]);
}

/// Q02: fifteen sessions of 1.5 to 2 GB on 24 GB. As many as fit are granted, the rest waits in order, with its place and the
/// reason, and each gets its turn.
#[test]
fn fifteen_sessions_on_a_host_for_ten_take_turns() {
    let config = "[gate]\nexpected_memory = \"2GiB\"\nbreaker_open = \"100%\"\nswap_share = \"0%\"\n";
    let mut world = host(config, 24 * GIB, 23 * GIB);
    let crowd = crowd(&mut world, 15);
    assert_eq!(granted(&world), crowd[..10]);
    assert_eq!(waiting(&world), pids(&crowd[10..]));
    let first = told(&world, crowd[10]).unwrap();
    assert_eq!((first.position, first.obstacle.reason), (1, RefusalReason::Memory));
    assert!(first.obstacle.detail.contains("2.0 GiB needed"), "{}", first.obstacle.detail);
    assert_eq!(told(&world, crowd[14]).unwrap().position, 5);
    // What was promised shows; then one after the other ends, and its memory is the next one's.
    for process in &crowd[..10] {
        run(&mut world, *process);
        world.memory(*process, Bytes::from_mib(1_900));
    }
    for (ended, process) in (1..).zip(&crowd[..5]) {
        world.kill(*process);
        memory(&mut world, 24 * GIB, 23 * GIB - (10 - ended) * 1_900 - (ended - 1) * 1_900);
        assert_eq!(granted(&world), crowd[..10 + ended as usize], "after {ended} ends");
        let next = crowd[9 + ended as usize];
        run(&mut world, next);
        world.memory(next, Bytes::from_mib(1_900));
    }
}

/// Q03: a limit of two, and nine that all looked before any was there.
#[test]
fn nine_at_once_against_a_limit_of_two_are_two() {
    let mut world = roomy("[[profile]]\nname = \"claude-code\"\nmax_sessions = 2\n");
    let crowd = crowd(&mut world, 9);
    assert_eq!(granted(&world), crowd[..2]);
    assert_eq!(waiting(&world), pids(&crowd[2..]));
}

/// Q04: the operator's way asked, the automatic resume did not. What was started past the gate is told, and counts.
#[test]
fn a_resume_that_walks_around_the_gate_is_told_and_counted() {
    let mut world = roomy("[gate]\nmax_sessions = 3\n");
    let resumed: Vec<ProcessId> = (0..3).map(|_| world.claude()).collect();
    let told_of: Vec<u32> = world.open(FindingKind::Ungated).iter().map(|finding| finding.pid).collect();
    assert_eq!(told_of, pids(&resumed));
    start(&mut world);
    assert_eq!(granted(&world), []);
}

/// Q05: 46 % available while 64 % of swap is used: the scope of the workers was what killed them. And 29 GB available while no
/// swap is free: cold pages, and no reason to refuse.
#[test]
fn the_limit_that_kills_is_asked_and_full_swap_alone_refuses_nothing() {
    let mib = |gib: f64| Bytes((gib * f64::from(1 << 30)) as u64);
    let swapped = |total: f64, available: f64, swap: f64, free: f64| HostMemory {
        total: mib(total),
        available: mib(available),
        swap_total: mib(swap),
        swap_free: mib(free),
        ..HostMemory::default()
    };
    let mut world = roomy("[gate]\nexpected_memory = \"1GiB\"\n");
    world.tell(Input::Host(swapped(30.6, 14.1, 8.0, 2.9)));
    let scope =
        CgroupLimit { path: "/user.slice/workers.slice".into(), max: mib(8.0), current: mib(7.8), cache: mib(0.1) };
    let asked = launch(&mut world);
    let worker = ask(&mut world, Launch { cgroups: vec![scope], ..asked });
    let obstacle = told(&world, worker).unwrap().obstacle;
    assert_eq!((obstacle.reason, obstacle.bound.as_str()), (RefusalReason::Memory, "memory.max"));
    assert!(obstacle.detail.contains("/user.slice/workers.slice: 8.0 GiB"), "{}", obstacle.detail);

    let mut world = roomy("[gate]\nexpected_memory = \"1GiB\"\n");
    world.tell(Input::Host(swapped(62.6, 29.0, 8.0, 0.0)));
    let process = start(&mut world);
    assert_eq!(granted(&world), [process]);
}

/// Q06: an idle agent's tree takes 660 MB, one that runs the tests 9.6 GB. What is measured bounds memory, not a count.
#[test]
fn an_agent_that_takes_twenty_times_as_much_takes_the_room_of_others() {
    let config =
        "[gate]\nexpected_memory = \"660MiB\"\nreserve = \"1GiB\"\nbreaker_open = \"100%\"\nbreaker_close = \"99%\"\n";
    let mut world = host(config, 16 * GIB, 13 * GIB);
    let agents = crowd(&mut world, 4);
    for agent in &agents {
        run(&mut world, *agent);
        world.memory(*agent, Bytes::from_mib(660));
    }
    memory(&mut world, 16 * GIB, 13 * GIB - 4 * 660);
    assert_eq!(queue(&world).room.promised_bytes, 0);
    let tests = shell(&mut world, agents[0], "npx vitest");
    world.memory(tests, Bytes::from_mib(9_600));
    memory(&mut world, 16 * GIB, 13 * GIB - 4 * 660 - 9_600);
    let next = start(&mut world);
    assert_eq!(told(&world, next).unwrap().obstacle.reason, RefusalReason::Memory);
    world.kill(tests);
    memory(&mut world, 16 * GIB, 13 * GIB - 4 * 660);
    assert_eq!(granted(&world).last(), Some(&next));
}

/// T25: twenty cold starts of the same daemon at once, by one agent's commands, are a burst, however well each behaves.
#[test]
fn twenty_cold_starts_of_a_daemon_are_a_burst() {
    let mut world = World::new();
    let agent = world.claude();
    for _ in 0..20 {
        world.spawn(agent, &["/usr/bin/node", "/repo/node_modules/nx/src/daemon/server/start.js"]);
    }
    world.pass(Duration::from_secs(5));
    assert_eq!(world.open(FindingKind::Fanout).len(), 1);
}
