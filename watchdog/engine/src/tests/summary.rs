use super::shown_world::naming;
use super::world::{SECOND, World};
use watchdog_types::{Bytes, ProcessId, SessionId, Uid};

fn session(world: &World, agent: ProcessId) -> SessionId {
    SessionId(world.session(agent).id)
}

#[test]
fn ended_session_summary_covers_all_helpers() {
    let (mut world, agent) = World::with_claude();
    let id = session(&world, agent);
    assert_eq!(world.engine.session_summary(id, &naming()), None, "it is not over");
    let helpers = [world.spawn(agent, &["/x/a"]), world.spawn(agent, &["/x/b"])];
    for (helper, mib) in helpers.into_iter().zip([30, 50]) {
        world.memory(helper, Bytes::from_mib(mib));
    }
    world.wait(SECOND);
    // One goes before the other grows: they never hold both peaks at once.
    world.kill(helpers[1]);
    world.memory(helpers[0], Bytes::from_mib(70));
    world.wait(SECOND);
    world.kill(helpers[0]);
    world.kill(agent);

    let (_, summary) = world.engine.session_summary(id, &naming()).expect("it is over");

    assert_eq!(summary.start.pid, agent.pid.0);
    assert_eq!(summary.helpers, 2);
    assert_eq!(Bytes(summary.peak_memory_bytes), Bytes::from_mib(80));
    assert_eq!(Bytes(summary.largest_process_peak_bytes), Bytes::from_mib(70));
    assert!(summary.start.started_at < summary.ended_at);
}

#[test]
fn helper_turned_agent_counts_separately() {
    let (mut world, agent) = World::with_claude();
    let shell = world.spawn(agent, &["/bin/sh"]);
    let other = world.spawn(shell, &["/usr/bin/codex"]);
    world.spawn(other, &["/bin/ls"]);
    let inner = session(&world, other);
    world.living().collect::<Vec<_>>().into_iter().for_each(|process| world.kill(process));

    let (_, summary) = world.engine.session_summary(inner, &naming()).expect("it is over");

    assert_eq!((summary.start.profile.as_str(), summary.helpers), ("codex", 1));
}

#[test]
fn summary_lists_largest_up_to_limit() {
    let mut world = World::new();
    let agents = [world.claude(), world.claude()];
    let helpers: Vec<ProcessId> = (0..4).map(|n| world.spawn(agents[n % 2], &["/x/helper"])).collect();
    for (n, helper) in helpers.iter().enumerate() {
        world.memory(*helper, Bytes::from_mib(10 * (n as u64 + 1)));
    }

    let (sessions, processes) = world.engine.largest(1, 3);

    assert_eq!((sessions.len(), sessions[0].session), (1, session(&world, agents[1]).0));
    assert_eq!((Bytes(sessions[0].memory_bytes), sessions[0].processes), (Bytes::from_mib(60), 3));
    let pids: Vec<u32> = processes.iter().map(|process| process.pid).collect();
    assert_eq!(pids, [helpers[3], helpers[2], helpers[1]].map(|process| process.pid.0));
    assert_eq!((processes[0].name.as_str(), Uid(processes[0].uid)), ("helper", Uid(sessions[0].uid)));
}
