use std::time::Duration;

use super::world::World;
use crate::effect::{Effect, JournalEvent};
use crate::input::Input;
use watchdog_api::{FindingKind, ProcessKind, SessionState};
use watchdog_types::{BootTime, Exit, ExitStatus, KernelEvent, ProcessId};

#[test]
fn first_scan_finds_running_agents() {
    let mut world = World::new();
    let agent = world.unseen(super::world::SHELL, "/home/u/.local/bin/claude");
    let shell = world.unseen(agent, "/bin/bash");
    let tool = world.unseen(shell, "/usr/bin/rg");
    let stranger = world.unseen(super::world::SHELL, "/usr/bin/vim");
    world.feed(world.scan(false));

    let session = world.session(agent);
    assert_eq!(session.processes.iter().map(|p| p.pid).collect::<Vec<_>>(), [agent.pid.0, shell.pid.0, tool.pid.0]);
    for process in [agent, shell, tool] {
        assert_eq!(world.tracked[&process].root, agent);
    }
    assert!(!world.tracked.contains_key(&stranger));
}

#[test]
fn losses_repaired_by_scan_and_reported() {
    let (mut world, agent) = World::with_claude();
    let gone = world.spawn(agent, &["/bin/bash"]);
    world.now = BootTime(world.now.0 + 1_000);
    let unseen = world.unseen(agent, "/usr/bin/rg");
    world.vanish(gone);

    world.feed(Input::Lost(7));
    assert!(world.effects.contains(&Effect::ScanProcesses));
    world.feed(world.scan(true));

    let pids: Vec<u32> = world.session(agent).processes.iter().map(|p| p.pid).collect();
    assert_eq!(pids, [agent.pid.0, unseen.pid.0]);
    assert_eq!(world.row(unseen).parent_pid, agent.pid.0);
    assert!(world.journal.contains(&JournalEvent::Reconciled { lost: 7, added: 1, removed: 1 }));

    // What the ring still held is reported after the scan: once more, and then no more.
    let rescans = |world: &World| world.effects.iter().filter(|effect| **effect == Effect::ScanProcesses).count();
    assert_eq!(rescans(&world), 2);
    world.feed(world.scan(true));
    assert_eq!(rescans(&world), 2);
}

#[test]
fn scan_cannot_undo_later_events() {
    let (mut world, agent) = World::with_claude();
    world.now = BootTime(world.now.0 + 1_000);
    let scan = world.scan(true);
    world.now = BootTime(world.now.0 + 1_000);
    let newer = world.spawn(agent, &["/bin/bash"]);
    let dead = world.spawn(agent, &["/bin/true"]);
    world.kill(dead);
    world.feed(scan);

    let pids: Vec<u32> = world.session(agent).processes.iter().map(|p| p.pid).collect();
    assert_eq!(pids, [agent.pid.0, newer.pid.0]);
}

/// An agent, and a process of it that a scan did not find any more, without an event of its exit.
fn scan_without_process() -> (World, ProcessId, ProcessId) {
    let (mut world, agent) = World::with_claude();
    let dead = world.spawn(agent, &["/bin/bash"]);
    world.now = BootTime(world.now.0 + 1_000);
    world.vanish(dead);
    world.feed(world.scan(true));
    (world, agent, dead)
}

#[test]
fn exit_behind_scan_keeps_its_status() {
    let (mut world, _, dead) = scan_without_process();
    let exit = Exit { at: world.now, process: dead, status: Some(ExitStatus::Signal(15)), peak: None };
    world.feed(Input::Kernel(KernelEvent::Exit(exit)));
    let exits: Vec<_> = world.journal.iter().filter(|event| matches!(event, JournalEvent::Exit { .. })).collect();
    assert!(matches!(exits[..], [JournalEvent::Exit { status: Some(ExitStatus::Signal(15)), .. }]), "{exits:?}");
}

#[test]
fn missing_process_exits_after_scan() {
    let (mut world, agent, _) = scan_without_process();
    world.wait(Duration::from_millis(500));
    assert_eq!(world.session(agent).processes.len(), 1);
}

#[test]
fn old_scan_does_not_revive_process() {
    let (mut world, agent) = World::with_claude();
    let dead = world.spawn(agent, &["/bin/true"]);
    let scan = world.scan(true);
    world.kill(dead);
    world.feed(scan);
    assert_eq!(world.session(agent).processes.len(), 1);
}

#[test]
fn lost_exit_still_leaves_orphans() {
    let (mut world, agent) = World::with_claude();
    let helper = world.spawn(agent, &["/usr/bin/node", "/x/.bin/mcp-server-memory"]);
    world.now = BootTime(world.now.0 + 1_000);
    world.vanish(agent);
    world.feed(Input::Lost(1));
    world.feed(world.scan(true));
    world.wait(Duration::from_secs(1));

    assert_eq!(world.open(FindingKind::Orphan)[0].pid, helper.pid.0);
    assert_eq!(world.tree().sessions[0].state, SessionState::Orphaned);
}

#[test]
fn helper_below_lost_parent_keeps_session() {
    let (mut world, agent) = World::with_claude();
    let middle = world.unseen(agent, "/bin/bash");
    let helper = world.unseen(middle, "/usr/bin/sleep");
    world.vanish(middle);
    world.feed(Input::Lost(3));
    world.feed(world.scan(true));

    let row = world.row(helper);
    assert_eq!((row.parent_pid, row.depth), (middle.pid.0, 2), "the kernel's map has its parent");
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
    let (mut world, agent) = World::with_claude();
    let helper = world.fork(agent);
    // The kernel's entry still says that it has only been forked.
    world.runs(helper, &["/usr/bin/node", "/x/.bin/mcp-server-memory"]);
    let scan = later_scan(&mut world, None);
    world.feed(scan);

    assert_eq!(world.row(helper).kind, ProcessKind::McpServer);
    assert!(!world.tracked[&helper].forked, "the kernel's entry is brought up to date");

    world.runs(helper, &["/usr/bin/node", "/x/.bin/mcp-server-time"]);
    let scan = later_scan(&mut world, None);
    world.feed(scan);
    assert_eq!(world.row(helper).argv, ["/usr/bin/node", "/x/.bin/mcp-server-time"]);
}

#[test]
fn title_is_no_exec() {
    let (mut world, agent) = World::with_claude();
    let helper = world.spawn(agent, &["/usr/bin/node", "/x/.bin/mcp-server-memory"]);
    world.runs(helper, &["mcp-server"]);
    let scan = later_scan(&mut world, Some(helper));
    world.feed(scan);
    assert_eq!(world.row(helper).kind, ProcessKind::McpServer);
    assert_eq!(world.row(helper).argv, ["/usr/bin/node", "/x/.bin/mcp-server-memory"]);
}

#[test]
fn newer_exec_outlives_older_scan() {
    let (mut world, agent) = World::with_claude();
    let helper = world.spawn(agent, &["/bin/bash"]);
    let scan = later_scan(&mut world, None);
    world.now = BootTime(world.now.0 + 1_000);
    world.exec(helper, "/usr/bin/rg", &["rg", "x"]);
    world.feed(scan);
    assert_eq!(world.row(helper).argv, ["rg", "x"]);
}
