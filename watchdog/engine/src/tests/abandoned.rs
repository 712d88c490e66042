use std::time::Duration;

use super::world::{SHELL, World};
use crate::input::Input;
use watchdog_api::{FindingKind, Severity};
use watchdog_types::{Exit, KernelEvent, Pid, ProcessId, Signal, Ticks, Uid};

/// The shell of the terminal exits, as its witness entry reports.
fn shell_ends(world: &mut World) {
    assert!(world.tracked.get(&SHELL).is_some_and(|entry| entry.witness), "the shell's exit has to be seen");
    world.tracked.remove(&SHELL);
    let exit = Exit { at: world.now, process: SHELL, status: None, peak: None };
    world.feed(Input::Kernel(KernelEvent::Exit(exit)));
}

fn loses_terminal(world: &mut World, agent: ProcessId) {
    world.shows(agent, |seen| {
        seen.tty = false;
        seen.leader_alive = false;
        seen.leader = None;
        seen.ppid = 1;
        seen.parent_comm = "systemd".into();
    });
}

#[test]
fn closed_terminal_abandons_agent() {
    let (mut world, agent) = World::with_claude();
    loses_terminal(&mut world, agent);
    shell_ends(&mut world);
    world.wait(Duration::from_secs(1));

    let findings = world.open(FindingKind::Abandoned);
    assert_eq!(findings.len(), 1);
    assert_eq!((findings[0].pid, findings[0].severity), (agent.pid.0, Severity::Warning));
    world.wait(Duration::from_secs(3_600));
    assert_eq!(world.open(FindingKind::Abandoned)[0].proposed_action, "report");
}

#[test]
fn agent_that_exits_promptly_not_reported() {
    let (mut world, agent) = World::with_claude();
    loses_terminal(&mut world, agent);
    shell_ends(&mut world);
    world.wait(Duration::from_millis(250));
    world.kill(agent);
    world.wait(Duration::from_secs(2));

    assert!(world.all(FindingKind::Abandoned).is_empty());
}

#[test]
fn agent_that_ignores_hangup_is_abandoned() {
    let (mut world, agent) = World::with_claude();
    world.shows(agent, |seen| seen.tty = false);
    let kernel = ProcessId { pid: Pid(1), start_time: Ticks(0) };
    let signal = Signal {
        at: world.now,
        process: agent,
        signal: 1,
        code: 128,
        delivered: true,
        sender: kernel,
        sender_comm: "sshd".into(),
        sender_uid: Uid::ROOT,
        sender_thread_exits: false,
    };
    world.feed(Input::Kernel(KernelEvent::Signal(signal)));
    world.wait(Duration::from_secs(1));

    let findings = world.open(FindingKind::Abandoned);
    assert_eq!(findings[0].evidence["lost"], "terminal");
}

#[test]
fn agent_without_terminal_not_abandoned() {
    let mut world = World::new();
    world.ordinary.tty = false;
    world.ordinary.leader = None;
    world.claude();
    world.wait(Duration::from_secs(600));

    assert!(world.all(FindingKind::Abandoned).is_empty());
}

#[test]
fn agent_under_nohup_not_abandoned() {
    let (mut world, agent) = World::with_claude();
    loses_terminal(&mut world, agent);
    world.shows(agent, |seen| seen.ignores_hup = true);
    shell_ends(&mut world);
    world.wait(Duration::from_secs(5));

    assert!(world.all(FindingKind::Abandoned).is_empty());
}

/// One that was found running, with no terminal and a leader that is not there: a dead one, or none.
fn found_without_a_leader(sid: u32) -> World {
    let mut world = World::new();
    world.ordinary.tty = false;
    world.ordinary.leader = None;
    world.ordinary.leader_alive = false;
    world.ordinary.sid = sid;
    world.unseen(SHELL, "/home/u/.local/bin/claude");
    world.now = world.now.plus(Duration::from_secs(3_600));
    world.feed(world.scan(false));
    world.wait(Duration::from_secs(2));
    world
}

#[test]
fn agent_found_without_leader_is_abandoned() {
    assert_eq!(found_without_a_leader(SHELL.pid.0).open(FindingKind::Abandoned).len(), 1);
}

#[test]
fn leaderless_session_not_abandoned() {
    assert!(found_without_a_leader(0).all(FindingKind::Abandoned).is_empty());
}
