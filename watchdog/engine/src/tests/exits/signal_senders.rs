//! Signals and their senders.

use super::*;

#[test]
fn handled_sigterm_names_its_sender() {
    let mut world = World::new();
    host(&mut world, 32 * GIB, 19 * GIB);
    let agent = world.claude();
    world.wait(Duration::from_secs(600));
    signal(&mut world, (STRANGER, "earlyoom"), agent, SIGTERM, SI_USER);
    world.now = world.now.plus(Duration::from_millis(40));
    world.end_after(agent, ExitStatus::Code(143), Some(Bytes(400 * MIB)));

    let death = death(&world, agent);
    assert_eq!(death.facts.cause, Cause::AskedToEnd);
    let sender = death.facts.sender.unwrap();
    assert_eq!((sender.pid, sender.comm.as_str(), sender.relation), (77, "earlyoom", Relation::Stranger));
    insta::assert_snapshot!(death.facts.summary, @"claude (pid 1001, the agent of session 1, claude-code) exited with code 143, 0.04s after SIGTERM from earlyoom (pid 77, uid 0, a userspace OOM killer by its name). It ran 10m; 400 MiB peak. Host: 19/32 GiB available, pressure 0 %.");
}

#[test]
fn late_exit_ignores_old_signal() {
    let (mut world, agent) = World::with_claude();
    signal(&mut world, (STRANGER, "bash"), agent, SIGTERM, SI_USER);
    world.wait(Duration::from_secs(60));
    world.end(agent, ExitStatus::Code(1));
    assert_eq!(death(&world, agent).facts.cause, Cause::Failed);
}

#[test]
fn fatal_signal_outranks_earlier_ones() {
    let (mut world, agent) = World::with_claude();
    signal(&mut world, (STRANGER, "systemd"), agent, SIGTERM, SI_USER);
    world.wait(Duration::from_secs(10));
    let killer = ProcessId { pid: Pid(78), ..STRANGER };
    signal(&mut world, (killer, "kill"), agent, SIGKILL, SI_USER);
    world.kill(agent);
    let facts = death(&world, agent).facts;
    assert_eq!((facts.cause, facts.signal, facts.sender.unwrap().pid), (Cause::Killed, Some(SIGKILL), 78));
}

#[test]
fn reraised_signal_names_its_origin() {
    let (mut world, agent) = World::with_claude();
    signal(&mut world, (STRANGER, "earlyoom"), agent, SIGTERM, SI_USER);
    signal(&mut world, (agent, "node"), agent, SIGTERM, SI_USER);
    world.end(agent, ExitStatus::Signal(SIGTERM));

    let facts = death(&world, agent).facts;
    assert_eq!(facts.sender.map(|sender| sender.relation), Some(Relation::Itself));
    assert_eq!(facts.origin.map(|origin| (origin.pid, origin.relation)), Some((77, Relation::Stranger)));
    assert!(facts.summary.contains("re-raised by its own handler after earlyoom (pid 77, uid 0, a userspace OOM killer by its name) sent SIGTERM"), "{}", facts.summary);
}

#[test]
fn forwarded_signal_names_its_origin() {
    let mut world = World::new();
    let launcher = world.agent_with("/usr/bin/node", &["node", "/usr/lib/node_modules/@openai/codex/bin/codex.js"]);
    let codex = world.spawn(launcher, &["/usr/lib/node_modules/@openai/codex/vendor/codex"]);
    signal(&mut world, (STRANGER, "mainthread-reap"), launcher, SIGTERM, SI_USER);
    signal(&mut world, (launcher, "MainThread"), codex, SIGTERM, SI_USER);
    world.end(codex, ExitStatus::Signal(SIGTERM));

    let facts = death(&world, codex).facts;
    assert_eq!(facts.sender.map(|sender| (sender.pid, sender.relation)), Some((launcher.pid.0, Relation::Parent)));
    assert_eq!(facts.origin.map(|origin| (origin.pid, origin.relation)), Some((77, Relation::Stranger)));
    assert!(facts.summary.contains("from its parent codex.js"), "{}", facts.summary);
    assert!(
        facts.summary.contains("which had received SIGTERM from mainthread-reap (pid 77, uid 0"),
        "{}",
        facts.summary
    );
}

#[test]
fn hook_killing_agent_is_same_tree() {
    let (mut world, agent) = World::with_claude();
    let shell = world.spawn(agent, &["/bin/sh", "-c", "/x/hook.sh"]);
    let hook = world.spawn(shell, &["/bin/bash", "/x/hook.sh"]);
    signal(&mut world, (hook, "hook.sh"), agent, SIGTERM, SI_USER);
    world.end(agent, ExitStatus::Code(143));
    let facts = death(&world, agent).facts;
    assert_eq!(facts.sender.unwrap().relation, Relation::SameTree);
    assert!(facts.summary.contains("from hook.sh (pid"), "{}", facts.summary);
}

#[test]
fn nested_agents_are_one_tree() {
    let (mut world, outer) = World::with_claude();
    let inner = world.spawn(outer, &["/usr/local/bin/codex"]);
    let other = world.claude();
    assert_ne!(world.session(outer).id, world.session(inner).id, "the inner agent has a session of its own");
    signal(&mut world, (other, "claude"), outer, SIGTERM, SI_USER);
    signal(&mut world, (inner, "codex"), outer, SIGKILL, SI_USER);
    world.kill(outer);
    assert_eq!(death(&world, outer).facts.sender.unwrap().relation, Relation::SameTree);
    signal(&mut world, (other, "claude"), inner, SIGKILL, SI_USER);
    world.kill(inner);
    let sender = death(&world, inner).facts.sender.unwrap();
    assert_eq!((sender.relation, sender.session), (Relation::OtherTree, Some(world.session(other).id)));
}

#[test]
fn own_signals_are_attributed() {
    let mut world = World::new();
    world.feed(Input::OwnProcess(STRANGER));
    let agent = world.claude();
    signal(&mut world, (STRANGER, "watchdogd"), agent, SIGKILL, SI_USER);
    world.kill(agent);
    let facts = death(&world, agent).facts;
    assert_eq!(facts.sender.unwrap().relation, Relation::Watchdog);
    assert!(facts.summary.contains("SIGKILL from agent-watchdog"), "{}", facts.summary);
}

#[test]
fn parent_death_signal_is_recognised() {
    let (mut world, agent) = World::with_claude();
    let tool = world.spawn(agent, &["/usr/bin/cargo", "test"]);
    world.kill(agent);
    signal(&mut world, (agent, "claude"), tool, SIGTERM, SI_USER);
    world.end(tool, ExitStatus::Signal(SIGTERM));
    let sender = death(&world, tool).facts.sender.unwrap();
    assert_eq!((sender.relation, sender.by_its_death), (Relation::Parent, true));
}

#[test]
fn killed_scope_lists_companions() {
    let mut world = World::new();
    let agents = [world.claude(), world.claude()];
    let mut all = Vec::from(agents);
    for agent in agents {
        all.extend((0..20).map(|_| world.spawn(agent, &["/bin/bash", "-c", "sleep 1000"])));
    }
    world.wait(Duration::from_secs(30));
    for process in &all {
        signal(&mut world, (STRANGER, "systemd-oomd"), *process, SIGKILL, SI_USER);
        world.kill(*process);
    }
    let facts = death(&world, agents[0]).facts;
    assert_eq!(facts.died_with_count, 41);
    assert!(facts.died_with.len() <= 10);
    assert!(
        facts.summary.contains("from systemd-oomd (pid 77, uid 0, a userspace OOM killer by its name)"),
        "{}",
        facts.summary
    );
    assert!(facts.summary.contains("and 38 more"), "{}", facts.summary);
}
