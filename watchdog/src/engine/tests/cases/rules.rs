//! Races, reused pids, and what must not grow.

use std::time::Duration;

use super::*;
use crate::api::ProcessState;
use crate::engine::id::{Pid, Ticks};
use crate::engine::input::{Exec, ExitStatus, Input, KernelEvent, Lineage};
use crate::engine::tests::world::{USER, image, naming};

/// A server begins to listen only after its agent's death: what is proposed rests on fresh facts.
#[test]
fn facts_are_looked_at_once_more_before_anything_is_proposed() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let server = world.spawn(agent, &["/usr/bin/node", "/p/serve.js"]);
    world.kill(agent);
    assert_eq!(verdict(&world, server), "clear");
    world.shows(server, |seen| seen.listens = vec!["tcp 0.0.0.0:3000".into()]);
    world.wait(Duration::from_secs(60));

    assert_eq!(verdict(&world, server), "unknown");
    assert_eq!(proposal(&world), "report");
    let changes = |entry: &&crate::engine::effect::Happening| matches!(entry, crate::engine::effect::Happening::Finding { change, .. } if change == "changed");
    assert_eq!(world.journal.iter().filter(changes).count(), 0, "it was never proposed, not even for a moment");
}

#[test]
fn a_proc_that_does_not_answer_delays_the_proposal_and_does_not_stop_it() {
    let mut world = World::new();
    let agent = claude(&mut world);
    world.spawn(agent, &["/usr/bin/node", "/x/.bin/mcp-server-memory"]);
    world.slow_proc = true;
    world.kill(agent);
    world.wait(Duration::from_secs(29));
    assert_eq!(proposal(&world), "report");
    world.wait(Duration::from_secs(6));
    assert_eq!(proposal(&world), "terminate");
}

#[test]
fn adopting_an_agent_covers_what_it_starts_later() {
    let mut world = World::new();
    let agent = claude(&mut world);
    world.tell(Input::Adopt(agent));
    let chain = npx(&mut world, agent, "@upstash/context7-mcp", "context7-mcp");
    world.kill(agent);
    world.wait(Duration::from_secs(60));

    assert_no_orphan_ever(&world);
    assert_eq!(world.row(chain[2]).state, ProcessState::Running);
}

/// T33: a pid that is given out again proves that its last holder is gone.
#[test]
fn a_reused_pid_is_another_process() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let helper = world.spawn(agent, &["/usr/bin/node", "/x/.bin/mcp-server-memory"]);
    world.wait(Duration::from_secs(10));
    // The agent's exit was lost, and a command of somebody else's agent has its pid now.
    let other = claude(&mut world);
    let again = ProcessId { pid: agent.pid, start_time: Ticks(world.now.0 / 10_000_000) };
    let lineage =
        Lineage { root: other, parent: Some(other), depth: 1, provisional: false, forked: false, witness: false };
    let (path, argv) = ("/usr/bin/sleep", ["sleep", "9"]);
    let exec = Exec {
        at: world.now,
        process: again,
        lineage,
        uid: USER,
        ppid: other.pid,
        comm: "sleep".into(),
        image: image(path, &argv),
    };
    world.tell(Input::Kernel(KernelEvent::Exec(exec)));
    world.wait(Duration::from_millis(250));

    assert_eq!(world.engine.process(agent.pid), Some(again));
    assert_one_group(&world, agent, &[helper]);
    let owner = world.session(other);
    assert!(owner.processes.iter().any(|row| row.pid == again.pid.0), "{owner:#?}");
}

/// A root that is remembered as dead has no claim to a pid that somebody else has now.
#[test]
fn a_dead_root_does_not_take_a_living_process_out_of_the_table() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let helper = world.spawn(agent, &["/usr/bin/sleep", "9"]);
    assert_eq!(world.engine.process(helper.pid), Some(helper));
    world.kill(agent);
    assert_eq!(world.engine.process(helper.pid), Some(helper));
    assert_eq!(world.engine.process(agent.pid), None);
}

/// A daemon that forks itself again and again, each time letting its parent exit.
#[test]
fn endless_double_forks_leave_no_trail_of_the_dead() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let mut daemon = world.spawn(agent, &["/opt/restless"]);
    for _ in 0..200 {
        let next = world.fork(daemon);
        world.end(daemon, ExitStatus::Code(0));
        daemon = next;
        world.wait(Duration::from_secs(1));
    }
    world.wait(Duration::from_secs(10));

    let remembered = world.engine.table.iter().count();
    assert!(remembered <= 6, "{remembered} processes are remembered for two that live");
    world.kill(agent);
    assert_one_group(&world, agent, &[daemon]);
}

/// A group that is swallowed by that of an agent further up is not "gone".
#[test]
fn a_group_that_joins_another_says_so() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let nested = world.spawn(agent, &["/usr/local/bin/codex", "exec", "x"]);
    let helper = world.spawn(nested, &["/opt/py/bin/python3", "/opt/py/bin/mcp-server-time"]);
    world.kill(nested);
    world.wait(Duration::from_secs(1));
    world.kill(agent);
    world.wait(Duration::from_secs(1));

    assert_one_group(&world, agent, &[helper]);
    let closed = world.all(FindingKind::Orphan);
    assert_eq!(closed[0].closed_because.as_deref(), Some("part of the group of an agent further up"));
}

/// The agent's user sees what is left of it, though its first helper runs as somebody else.
#[test]
fn a_group_is_shown_to_the_user_whose_agent_died() {
    use crate::engine::id::Uid;
    use crate::engine::view::Viewer;
    let mut world = World::new();
    let agent = claude(&mut world);
    let sudo = world.fork(agent);
    let (path, argv) = ("/usr/bin/node", ["node", "/x/.bin/mcp-server-memory"]);
    let exec = Exec {
        at: world.now,
        process: sudo,
        lineage: world.tracked[&sudo],
        uid: Uid::ROOT,
        ppid: agent.pid,
        comm: "node".into(),
        image: image(path, &argv),
    };
    world.tell(Input::Kernel(KernelEvent::Exec(exec)));
    world.kill(agent);

    let seen_by = |uid| world.engine.findings(Viewer::User(uid), &naming(), false).findings.len();
    assert_eq!((seen_by(USER), seen_by(Uid(4_242))), (1, 0));
}

/// Exits and execs that arrive for processes that nobody knows change nothing.
#[test]
fn an_exit_of_a_stranger_is_no_news() {
    let mut world = World::new();
    claude(&mut world);
    let before = world.tree();
    let stranger = ProcessId { pid: Pid(77), start_time: Ticks(5) };
    let exit = crate::engine::input::Exit { at: world.now, process: stranger, status: None, peak: None };
    world.tell(Input::Kernel(KernelEvent::Exit(exit)));
    assert_eq!(format!("{:?}", world.tree()), format!("{before:?}"));
}
