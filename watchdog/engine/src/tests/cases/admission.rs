//! Q: hosts that went down because too much was started at once, or because their operator read the wrong number.

use std::time::Duration;

use super::shell;
use crate::effect::{BpfCommand, Effect};
use crate::gate::Launch;
use crate::input::Input;
use crate::tests::gate::{
    GIB, ask, crowd, granted, host, launch, memory, pids, queue, queue_position, roomy, run, start, waiting,
};
use crate::tests::world::World;
use watchdog_api::{FindingKind, RefusalReason};
use watchdog_types::{Bytes, CgroupLimit, HostMemory, ProcessId};

/// Q01: six subagents, seventy node processes, one minute. A gate at the roots is not enough: the session's own growth is
/// bounded in the kernel, seen as a burst, and nothing more is granted meanwhile.
#[test]
fn bursting_session_is_bounded_and_reported() {
    let config = "[gate]\nexpected_memory = \"700MiB\"\n[[profile]]\nname = \"claude-code\"\nmax_helpers = 30\n";
    let mut world = host(config, 46 * GIB, 44 * GIB);
    let agent = start(&mut world);
    let bounded = |effect: &Effect| matches!(effect, Effect::Bpf(BpfCommand::ApplyLimits(root, bounds)) if *root == agent && bounds.max_helpers == Some(30));
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
    assert_eq!(queue_position(&world, next).unwrap().blocker.reason, RefusalReason::Breaker);
    assert_eq!(granted(&world), [agent]);
}

/// Q02: fifteen sessions of 1.5 to 2 GB on 24 GB. As many as fit are granted, the rest waits in order, with its place and the
/// reason, and each gets its turn.
#[test]
fn fifteen_sessions_share_room_for_ten() {
    let config = "[gate]\nexpected_memory = \"2GiB\"\nbreaker_open = \"100%\"\nswap_share = \"0%\"\n";
    let mut world = host(config, 24 * GIB, 23 * GIB);
    let crowd = crowd(&mut world, 15);
    assert_eq!(granted(&world), crowd[..10]);
    assert_eq!(waiting(&world), pids(&crowd[10..]));
    let first = queue_position(&world, crowd[10]).unwrap();
    assert_eq!((first.position, first.blocker.reason), (1, RefusalReason::Memory));
    assert!(first.blocker.detail.contains("needs 2.0 GiB"), "{}", first.blocker.detail);
    assert_eq!(queue_position(&world, crowd[14]).unwrap().position, 5);
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
fn nine_launches_limit_two_grants_two() {
    let mut world = roomy("[[profile]]\nname = \"claude-code\"\nmax_sessions = 2\n");
    let crowd = crowd(&mut world, 9);
    assert_eq!(granted(&world), crowd[..2]);
    assert_eq!(waiting(&world), pids(&crowd[2..]));
}

/// Q04: the operator used the gate, the automatic resume did not. Agents started without the gate are reported, and count.
#[test]
fn resume_without_gate_reported_and_counted() {
    let mut world = roomy("[gate]\nmax_sessions = 3\n");
    let resumed: Vec<ProcessId> = (0..3).map(|_| world.claude()).collect();
    let reported: Vec<u32> = world.open(FindingKind::Ungated).iter().map(|finding| finding.pid).collect();
    assert_eq!(reported, pids(&resumed));
    start(&mut world);
    assert_eq!(granted(&world), []);
}

/// Q05: 46 % available while 64 % of swap is used: the scope of the workers was what killed them. And 29 GB available while no
/// swap is free: cold pages, and no reason to refuse.
#[test]
fn cgroup_limit_blocks_full_swap_admits() {
    let mib = |gib: f64| Bytes((gib * f64::from(1 << 30)) as u64);
    let swapped = |total: f64, available: f64, swap: f64, free: f64| HostMemory {
        total: mib(total),
        available: mib(available),
        swap_total: mib(swap),
        swap_free: mib(free),
        ..HostMemory::default()
    };
    let mut world = roomy("[gate]\nexpected_memory = \"1GiB\"\n");
    world.feed(Input::Host(swapped(30.6, 14.1, 8.0, 2.9)));
    let scope =
        CgroupLimit { path: "/user.slice/workers.slice".into(), max: mib(8.0), current: mib(7.8), cache: mib(0.1) };
    let asked = launch(&mut world);
    let worker = ask(&mut world, Launch { cgroups: vec![scope], ..asked });
    let blocker = queue_position(&world, worker).unwrap().blocker;
    assert_eq!((blocker.reason, blocker.bound.as_str()), (RefusalReason::Memory, "memory.max"));
    assert!(blocker.detail.contains("of 8.0 GiB in cgroup /user.slice/workers.slice"), "{}", blocker.detail);

    let mut world = roomy("[gate]\nexpected_memory = \"1GiB\"\n");
    world.feed(Input::Host(swapped(62.6, 29.0, 8.0, 0.0)));
    let process = start(&mut world);
    assert_eq!(granted(&world), [process]);
}

/// Q06: an idle agent's tree takes 660 MB, one that runs the tests 9.6 GB. What is measured bounds memory, not a count.
#[test]
fn oversized_agent_delays_others() {
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
    assert_eq!(queue_position(&world, next).unwrap().blocker.reason, RefusalReason::Memory);
    world.kill(tests);
    memory(&mut world, 16 * GIB, 13 * GIB - 4 * 660);
    assert_eq!(granted(&world).last(), Some(&next));
}

/// T25: twenty cold starts of the same daemon at once, by one agent's commands, are a burst, however well each behaves.
#[test]
fn twenty_daemon_starts_form_burst() {
    let (mut world, agent) = World::with_claude();
    for _ in 0..20 {
        world.spawn(agent, &["/usr/bin/node", "/repo/node_modules/nx/src/daemon/server/start.js"]);
    }
    world.pass(Duration::from_secs(5));
    assert_eq!(world.open(FindingKind::Fanout).len(), 1);
}
