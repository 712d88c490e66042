//! Which processes are inspected for their limits, when, and which of two limits holds.

use std::time::Duration;

use super::world::World;
use crate::effect::Effect;
use crate::input::Input;
use watchdog_types::{Bytes, CgroupLimit, ExitStatus, Limits, ProcessId};

fn times_asked(world: &World, process: ProcessId) -> usize {
    world.effects.iter().filter(|effect| **effect == Effect::ReadProcessLimits(process)).count()
}

fn limits(world: &World, process: ProcessId) -> Option<Limits> {
    world.engine.table.get(process).and_then(|known| known.limits.as_deref().cloned())
}

fn cgroup(max: Bytes) -> Option<CgroupLimit> {
    Some(CgroupLimit { path: "/run.scope".into(), max, current: Bytes(0), ..CgroupLimit::default() })
}

#[test]
fn agents_and_node_inspected_at_once() {
    let (mut world, agent) = World::with_claude();
    let server = world.spawn(agent, &["/usr/bin/node", "/x/node_modules/.bin/mcp-server-memory"]);
    assert_eq!((times_asked(&world, agent), times_asked(&world, server)), (1, 1));
}

#[test]
fn only_lasting_tool_is_inspected() {
    let (mut world, agent) = World::with_claude();
    let short = world.spawn(agent, &["/usr/bin/ls"]);
    let longer = world.spawn(agent, &["/usr/bin/cargo", "test"]);
    world.end(short, ExitStatus::Code(0));
    world.wait(Duration::from_secs(60));
    assert_eq!((times_asked(&world, short), times_asked(&world, longer)), (0, 1));
}

#[test]
fn default_heap_follows_version_and_cgroup() {
    let mut world = World::new();
    world.host(Bytes::from_mib(8_000), Bytes(0));
    let agent = world.claude();
    let node = world.spawn(agent, &["/usr/bin/node", "/x/a.js"]);
    world.feed(Input::Limits(node, Limits { cgroup: cgroup(Bytes::from_mib(900)), ..Limits::default() }));
    let known = limits(&world, node).unwrap();
    assert_eq!((known.v8_heap, known.v8_default), (Some(Bytes::from_mib(450)), true));
    world.feed(Input::Limits(node, Limits { node_major: Some(10), ..Limits::default() }));
    assert_eq!(limits(&world, node).unwrap().v8_heap, Some(Bytes::from_mib(1_400)));
    let python = world.spawn(agent, &["/usr/bin/python3", "/x/a.py"]);
    world.feed(Input::Limits(python, Limits { cgroup: cgroup(Bytes::from_mib(900)), ..Limits::default() }));
    assert_eq!(limits(&world, python).unwrap().v8_heap, None);
}

#[test]
fn each_exec_is_inspected() {
    let (mut world, agent) = World::with_claude();
    let process = world.spawn(agent, &["/bin/sh", "-c", "exec sleep 1000"]);
    world.wait(Duration::from_secs(2));
    world.exec(process, "/usr/bin/sleep", &["sleep", "1000"]);
    world.wait(Duration::from_secs(2));
    assert_eq!(times_asked(&world, process), 2);
}

#[test]
fn rejected_candidate_is_not_inspected() {
    let mut world = World::new();
    let process = world.agent_with("/usr/bin/node", &["node", "/x/server.js"]);
    world.wait(Duration::from_secs(2));
    assert_eq!(times_asked(&world, process), 0);
}

#[test]
fn agents_and_large_processes_reinspected() {
    let (mut world, agent) = World::with_claude();
    let [small, large] = [(); 2].map(|()| world.spawn(agent, &["/usr/bin/node", "/x/server.js"]));
    world.memory(large, Bytes::from_mib(300));
    world.wait(Duration::from_secs(60));
    let young = [agent, small, large].map(|process| times_asked(&world, process));
    assert!((5..=7).contains(&young[0]) && young[1] == 1 && (5..=7).contains(&young[2]), "{young:?}");
    world.wait(Duration::from_secs(90));
    let then = [agent, small, large].map(|process| times_asked(&world, process));
    assert_eq!([0, 2].map(|at| then[at] - young[at]), [3, 3]);
    assert!(then[1] - young[1] <= 2, "once a minute at most: {young:?} {then:?}");
}

#[test]
fn argv_limit_overrides_environment() {
    let (mut world, agent) = World::with_claude();
    let node = world.spawn(agent, &["/usr/bin/node", "--max-old-space-size=200", "/x/a.js"]);
    assert_eq!(
        limits(&world, node),
        Some(Limits { cgroup: None, v8_heap: Some(Bytes::from_mib(200)), ..Limits::default() })
    );

    let found =
        Limits { cgroup: cgroup(Bytes::from_mib(900)), v8_heap: Some(Bytes::from_mib(300)), ..Limits::default() };
    world.feed(Input::Limits(node, found.clone()));
    assert_eq!(limits(&world, node), Some(Limits { v8_heap: Some(Bytes::from_mib(200)), ..found }));
}

#[test]
fn heap_percentage_applies_to_cgroup_limit() {
    let (mut world, agent) = World::with_claude();
    let node = world.spawn(agent, &["/usr/bin/node", "--max-old-space-size-percentage=50", "/x/a.js"]);
    assert_eq!(limits(&world, node), None, "the memory of the host is not known yet");

    world.feed(Input::Host(watchdog_types::HostMemory {
        total: Bytes::from_mib(8_192),
        available: Bytes::from_mib(8_000),
        ..Default::default()
    }));
    world
        .feed(Input::Limits(node, Limits { cgroup: cgroup(Bytes::from_mib(900)), v8_heap: None, ..Limits::default() }));
    assert_eq!(limits(&world, node).and_then(|limits| limits.v8_heap), Some(Bytes::from_mib(450)));
}

#[test]
fn environment_limit_lasts_until_exec() {
    let (mut world, agent) = World::with_claude();
    let node = world.spawn(agent, &["/usr/bin/node", "/x/a.js"]);
    let found =
        Limits { cgroup: cgroup(Bytes::from_mib(900)), v8_heap: Some(Bytes::from_mib(300)), ..Limits::default() };
    world.feed(Input::Limits(node, found.clone()));
    assert_eq!(limits(&world, node), Some(found.clone()));

    world.exec(node, "/usr/bin/sleep", &["sleep", "60"]);
    assert_eq!(limits(&world, node), Some(Limits { v8_heap: None, ..found }), "the cgroup is still its own");
}
