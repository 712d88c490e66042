//! Races, reused pids, and what must not grow.

use std::time::Duration;

use super::*;
use crate::input::Input;
use crate::tests::shown_world::naming;
use crate::tests::world::{USER, image};
use watchdog_api::ProcessState;
use watchdog_types::{Exec, ExitStatus, KernelEvent, Lineage, Pid, Ticks};

/// A server begins to listen only after its agent's death: what is proposed rests on fresh facts.
#[test]
fn proposal_waits_for_second_inspection() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let server = world.spawn(agent, &["/usr/bin/node", "/p/serve.js"]);
    world.kill(agent);
    assert_eq!(verdict(&world, server), "clear");
    world.shows(server, |seen| seen.listens = vec!["tcp 0.0.0.0:3000".into()]);
    world.wait(Duration::from_secs(60));

    assert_eq!(verdict(&world, server), "unknown");
    assert_eq!(proposal(&world), "report");
    let changes = |entry: &&crate::effect::JournalEvent| matches!(entry, crate::effect::JournalEvent::Finding { change, .. } if change == "changed");
    assert_eq!(world.journal.iter().filter(changes).count(), 0, "it was never proposed, not even for a moment");
}

#[test]
fn slow_proc_only_delays_proposal() {
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
fn adoption_covers_later_helpers() {
    let mut world = World::new();
    let agent = claude(&mut world);
    world.feed(Input::Adopt(agent));
    let chain = npx(&mut world, agent, "@upstash/context7-mcp", "context7-mcp");
    world.kill(agent);
    world.wait(Duration::from_secs(60));

    assert_no_orphan_ever(&world);
    assert_eq!(world.row(chain[2]).state, ProcessState::Running);
}

/// T33: a reused pid proves that its last process has exited.
#[test]
fn reused_pid_is_another_process() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let helper = world.spawn(agent, &["/usr/bin/node", "/x/.bin/mcp-server-memory"]);
    world.wait(Duration::from_secs(10));
    // The agent's exit was lost, and a command of another user's agent has its pid now.
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
    world.feed(Input::Kernel(KernelEvent::Exec(exec)));
    world.wait(Duration::from_millis(250));

    assert_eq!(world.engine.process(agent.pid), Some(again));
    assert_one_group(&world, agent, &[helper]);
    let owner = world.session(other);
    assert!(owner.processes.iter().any(|row| row.pid == again.pid.0), "{owner:#?}");
}

/// A root that is remembered as dead has no claim to a pid that another process has now.
#[test]
fn dead_root_leaves_survivors_tracked() {
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
fn double_forks_leave_no_dead_entries() {
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
fn merged_group_closes_with_reason() {
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

/// The agent's user sees what is left of it, though its first helper runs as another user.
#[test]
fn agents_user_sees_orphan_group() {
    use watchdog_types::{Uid, Viewer};
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
    world.feed(Input::Kernel(KernelEvent::Exec(exec)));
    world.kill(agent);

    let seen_by = |uid| world.engine.findings(Viewer::User(uid), &naming(), false).findings.len();
    assert_eq!((seen_by(USER), seen_by(Uid(4_242))), (1, 0));
}

/// Exits and execs of unknown processes change nothing.
#[test]
fn strangers_exit_is_ignored() {
    let mut world = World::new();
    claude(&mut world);
    let before = world.tree();
    let stranger = ProcessId { pid: Pid(77), start_time: Ticks(5) };
    let exit = watchdog_types::Exit { at: world.now, process: stranger, status: None, peak: None };
    world.feed(Input::Kernel(KernelEvent::Exit(exit)));
    assert_eq!(format!("{:?}", world.tree()), format!("{before:?}"));
}
