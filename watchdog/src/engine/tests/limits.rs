//! Who is looked at for its ceilings, when, and what of two statements holds.

use std::time::Duration;

use super::world::World;
use crate::engine::effect::Effect;
use crate::engine::id::{Bytes, ProcessId};
use crate::engine::input::{CgroupLimit, ExitStatus, Input, Limits};

fn times_asked(world: &World, process: ProcessId) -> usize {
    world.effects.iter().filter(|effect| **effect == Effect::FindLimits(process)).count()
}

fn limits(world: &World, process: ProcessId) -> Option<Limits> {
    world.engine.table.get(process).and_then(|known| known.limits.as_deref().cloned())
}

fn cgroup(max: Bytes) -> Option<CgroupLimit> {
    Some(CgroupLimit { path: "/run.scope".into(), max, current: Bytes(0), ..CgroupLimit::default() })
}

#[test]
fn agents_and_node_programs_are_looked_at_at_once() {
    let mut world = World::new();
    let agent = world.claude();
    let server = world.spawn(agent, &["/usr/bin/node", "/x/node_modules/.bin/mcp-server-memory"]);
    assert_eq!((times_asked(&world, agent), times_asked(&world, server)), (1, 1));
}

#[test]
fn a_short_tool_is_not_looked_at_and_a_longer_one_once() {
    let mut world = World::new();
    let agent = world.claude();
    let short = world.spawn(agent, &["/usr/bin/ls"]);
    let longer = world.spawn(agent, &["/usr/bin/cargo", "test"]);
    world.end(short, ExitStatus::Code(0));
    world.wait(Duration::from_secs(60));
    assert_eq!((times_asked(&world, short), times_asked(&world, longer)), (0, 1));
}

#[test]
fn every_program_is_looked_at_anew() {
    let mut world = World::new();
    let agent = world.claude();
    let process = world.spawn(agent, &["/bin/sh", "-c", "exec sleep 1000"]);
    world.wait(Duration::from_secs(2));
    world.exec(process, "/usr/bin/sleep", &["sleep", "1000"]);
    world.wait(Duration::from_secs(2));
    assert_eq!(times_asked(&world, process), 2);
}

#[test]
fn a_candidate_that_is_no_agent_is_not_looked_at() {
    let mut world = World::new();
    let process = world.agent_with("/usr/bin/node", &["node", "/x/server.js"]);
    world.wait(Duration::from_secs(2));
    assert_eq!(times_asked(&world, process), 0);
}

#[test]
fn agents_and_large_processes_are_looked_at_again_now_and_then() {
    let mut world = World::new();
    let agent = world.claude();
    let [small, large] = [(); 2].map(|()| world.spawn(agent, &["/usr/bin/node", "/x/server.js"]));
    world.memory(large, Bytes::from_mib(300));
    world.wait(Duration::from_secs(65));
    assert_eq!([agent, small, large].map(|process| times_asked(&world, process)), [3, 1, 3]);
}

#[test]
fn what_argv_states_is_known_at_the_exec_and_wins_over_the_environment() {
    let mut world = World::new();
    let agent = world.claude();
    let node = world.spawn(agent, &["/usr/bin/node", "--max-old-space-size=200", "/x/a.js"]);
    assert_eq!(limits(&world, node), Some(Limits { cgroup: None, v8_heap: Some(Bytes::from_mib(200)) }));

    let found = Limits { cgroup: cgroup(Bytes::from_mib(900)), v8_heap: Some(Bytes::from_mib(300)) };
    world.tell(Input::Limits(node, found.clone()));
    assert_eq!(limits(&world, node), Some(Limits { v8_heap: Some(Bytes::from_mib(200)), ..found }));
}

#[test]
fn a_share_is_one_of_the_cgroups_limit_where_there_is_one() {
    let mut world = World::new();
    let agent = world.claude();
    let node = world.spawn(agent, &["/usr/bin/node", "--max-old-space-size-percentage=50", "/x/a.js"]);
    assert_eq!(limits(&world, node), None, "nobody knows yet how much there is");

    world.tell(Input::Host(crate::engine::input::HostMemory {
        total: Bytes::from_mib(8_192),
        available: Bytes::from_mib(8_000),
        ..Default::default()
    }));
    world.tell(Input::Limits(node, Limits { cgroup: cgroup(Bytes::from_mib(900)), v8_heap: None }));
    assert_eq!(limits(&world, node).and_then(|limits| limits.v8_heap), Some(Bytes::from_mib(450)));
}

#[test]
fn what_the_environment_states_holds_until_the_next_program() {
    let mut world = World::new();
    let agent = world.claude();
    let node = world.spawn(agent, &["/usr/bin/node", "/x/a.js"]);
    let found = Limits { cgroup: cgroup(Bytes::from_mib(900)), v8_heap: Some(Bytes::from_mib(300)) };
    world.tell(Input::Limits(node, found.clone()));
    assert_eq!(limits(&world, node), Some(found.clone()));

    world.exec(node, "/usr/bin/sleep", &["sleep", "60"]);
    assert_eq!(limits(&world, node), Some(Limits { v8_heap: None, ..found }), "the cgroup is still its own");
}
