use std::time::Duration;

use super::world::World;
use crate::api::{FindingKind, ProcessKind, SessionState};
use crate::engine::effect::{Effect, Happening};
use crate::engine::id::{BootTime, ProcessId};
use crate::engine::input::Input;

#[test]
fn the_first_scan_finds_agents_that_ran_before() {
    let mut world = World::new();
    let agent = world.unseen(super::world::SHELL, "/home/u/.local/bin/claude");
    let shell = world.unseen(agent, "/bin/bash");
    let tool = world.unseen(shell, "/usr/bin/rg");
    let stranger = world.unseen(super::world::SHELL, "/usr/bin/vim");
    world.tell(world.scan(false));

    let session = world.session(agent);
    assert_eq!(session.processes.iter().map(|p| p.pid).collect::<Vec<_>>(), [agent.pid.0, shell.pid.0, tool.pid.0]);
    for process in [agent, shell, tool] {
        assert_eq!(world.tracked[&process].root, agent);
    }
    assert!(!world.tracked.contains_key(&stranger));
}

#[test]
fn losses_are_repaired_by_a_scan_and_told() {
    let mut world = World::new();
    let agent = world.claude();
    let gone = world.spawn(agent, &["/bin/bash"]);
    world.now = BootTime(world.now.0 + 1_000);
    let unseen = world.unseen(agent, "/usr/bin/rg");
    world.vanish(gone);

    world.tell(Input::Lost(7));
    assert!(world.effects.contains(&Effect::Rescan));
    world.tell(world.scan(true));

    let pids: Vec<u32> = world.session(agent).processes.iter().map(|p| p.pid).collect();
    assert_eq!(pids, [agent.pid.0, unseen.pid.0]);
    assert_eq!(world.row(unseen).parent_pid, agent.pid.0);
    assert!(world.journal.contains(&Happening::Reconciled { lost: 7, added: 1, removed: 1 }));

    // What the ring still held is told after the scan: once more, and then no more.
    let rescans = |world: &World| world.effects.iter().filter(|effect| **effect == Effect::Rescan).count();
    assert_eq!(rescans(&world), 2);
    world.tell(world.scan(true));
    assert_eq!(rescans(&world), 2);
}

#[test]
fn a_scan_cannot_deny_what_happened_after_it_began() {
    let mut world = World::new();
    let agent = world.claude();
    world.now = BootTime(world.now.0 + 1_000);
    let scan = world.scan(true);
    world.now = BootTime(world.now.0 + 1_000);
    let newer = world.spawn(agent, &["/bin/bash"]);
    let dead = world.spawn(agent, &["/bin/true"]);
    world.kill(dead);
    world.tell(scan);

    let pids: Vec<u32> = world.session(agent).processes.iter().map(|p| p.pid).collect();
    assert_eq!(pids, [agent.pid.0, newer.pid.0]);
}

#[test]
fn a_process_whose_exit_was_lost_does_not_come_back_from_an_old_scan() {
    let mut world = World::new();
    let agent = world.claude();
    let dead = world.spawn(agent, &["/bin/true"]);
    let scan = world.scan(true);
    world.kill(dead);
    world.tell(scan);
    assert_eq!(world.session(agent).processes.len(), 1);
}

#[test]
fn an_agent_whose_exit_was_lost_still_leaves_orphans() {
    let mut world = World::new();
    let agent = world.claude();
    let helper = world.spawn(agent, &["/usr/bin/node", "/x/.bin/mcp-server-memory"]);
    world.now = BootTime(world.now.0 + 1_000);
    world.vanish(agent);
    world.tell(Input::Lost(1));
    world.tell(world.scan(true));
    world.wait(Duration::from_secs(1));

    assert_eq!(world.open(FindingKind::Orphan)[0].pid, helper.pid.0);
    assert_eq!(world.tree().sessions[0].state, SessionState::Orphaned);
}

#[test]
fn a_helper_found_below_a_lost_parent_belongs_to_the_session_of_its_root() {
    let mut world = World::new();
    let agent = world.claude();
    let middle = world.unseen(agent, "/bin/bash");
    let helper = world.unseen(middle, "/usr/bin/sleep");
    world.vanish(middle);
    world.tell(Input::Lost(3));
    world.tell(world.scan(true));

    let row = world.row(helper);
    assert_eq!((row.parent_pid, row.depth), (middle.pid.0, 2), "the kernel's map knows who forked it");
    world.kill(agent);
    world.wait(Duration::from_secs(1));
    assert_eq!(world.open(FindingKind::Orphan)[0].pid, helper.pid.0);
}

/// A scan some time later, in which the arguments of a process may be a title of its own.
fn later_scan(world: &mut World, titled: Option<ProcessId>) -> Input {
    world.now = BootTime(world.now.0 + 1_000);
    let mut input = world.scan(true);
    if let Input::Scan(scan) = &mut input {
        scan.processes.iter_mut().for_each(|scanned| scanned.titled = Some(scanned.process) == titled);
    }
    input
}

#[test]
fn skipped_exec_repaired_by_scan() {
    let mut world = World::new();
    let agent = world.claude();
    let helper = world.fork(agent);
    // The kernel's entry still says that it has only been forked.
    world.runs(helper, &["/usr/bin/node", "/x/.bin/mcp-server-memory"]);
    let scan = later_scan(&mut world, None);
    world.tell(scan);

    assert_eq!(world.row(helper).kind, ProcessKind::McpServer);
    assert!(!world.tracked[&helper].forked, "the kernel's entry is brought up to date");

    world.runs(helper, &["/usr/bin/node", "/x/.bin/mcp-server-time"]);
    let scan = later_scan(&mut world, None);
    world.tell(scan);
    assert_eq!(world.row(helper).argv, ["/usr/bin/node", "/x/.bin/mcp-server-time"]);
}

#[test]
fn title_is_no_exec() {
    let mut world = World::new();
    let agent = world.claude();
    let helper = world.spawn(agent, &["/usr/bin/node", "/x/.bin/mcp-server-memory"]);
    world.runs(helper, &["mcp-server"]);
    let scan = later_scan(&mut world, Some(helper));
    world.tell(scan);
    assert_eq!(world.row(helper).kind, ProcessKind::McpServer);
    assert_eq!(world.row(helper).argv, ["/usr/bin/node", "/x/.bin/mcp-server-memory"]);
}

#[test]
fn newer_exec_outlives_older_scan() {
    let mut world = World::new();
    let agent = world.claude();
    let helper = world.spawn(agent, &["/bin/bash"]);
    let scan = later_scan(&mut world, None);
    world.now = BootTime(world.now.0 + 1_000);
    world.exec(helper, "/usr/bin/rg", &["rg", "x"]);
    world.tell(scan);
    assert_eq!(world.row(helper).argv, ["rg", "x"]);
}
