//! Signals, and who sent them.

use super::*;

#[test]
fn an_agent_that_answers_a_strangers_sigterm_names_the_stranger_and_clears_memory() {
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
    insta::assert_snapshot!(death.facts.summary, @"claude (pid 1001, the agent of session 1, claude-code) exited with code 143, 0.04s after it was sent SIGTERM by earlyoom (pid 77, uid 0), by its name a program that kills when memory is short. It lived for 10m, had 400 MiB at its peak. The host had 19 GiB of 32 GiB available, with a memory pressure of 0 %: it was not short of memory.");
}

#[test]
fn a_code_long_after_a_signal_has_nothing_to_do_with_it() {
    let mut world = World::new();
    let agent = world.claude();
    signal(&mut world, (STRANGER, "bash"), agent, SIGTERM, SI_USER);
    world.wait(Duration::from_secs(60));
    world.end(agent, ExitStatus::Code(1));
    assert_eq!(death(&world, agent).facts.cause, Cause::Failed);
}

#[test]
fn the_signal_that_kills_is_told_and_not_those_before_it() {
    let mut world = World::new();
    let agent = world.claude();
    signal(&mut world, (STRANGER, "systemd"), agent, SIGTERM, SI_USER);
    world.wait(Duration::from_secs(10));
    let killer = ProcessId { pid: Pid(78), ..STRANGER };
    signal(&mut world, (killer, "kill"), agent, SIGKILL, SI_USER);
    world.kill(agent);
    let facts = death(&world, agent).facts;
    assert_eq!((facts.cause, facts.signal, facts.sender.unwrap().pid), (Cause::Killed, Some(SIGKILL), 78));
}

#[test]
fn who_tidies_up_and_sends_itself_the_same_signal_was_asked_to() {
    let mut world = World::new();
    let agent = world.claude();
    signal(&mut world, (STRANGER, "earlyoom"), agent, SIGTERM, SI_USER);
    signal(&mut world, (agent, "node"), agent, SIGTERM, SI_USER);
    world.end(agent, ExitStatus::Signal(SIGTERM));

    let facts = death(&world, agent).facts;
    assert_eq!(facts.sender.map(|sender| sender.relation), Some(Relation::Itself));
    assert_eq!(facts.origin.map(|origin| (origin.pid, origin.relation)), Some((77, Relation::Stranger)));
    assert!(facts.summary.contains("had been sent SIGTERM by earlyoom"), "{}", facts.summary);
}

#[test]
fn a_launcher_that_passes_a_signal_on_leads_to_who_sent_it() {
    let mut world = World::new();
    let launcher = world.agent_with("/usr/bin/node", &["node", "/usr/lib/node_modules/@openai/codex/bin/codex.js"]);
    let codex = world.spawn(launcher, &["/usr/lib/node_modules/@openai/codex/vendor/codex"]);
    signal(&mut world, (STRANGER, "mainthread-reap"), launcher, SIGTERM, SI_USER);
    signal(&mut world, (launcher, "MainThread"), codex, SIGTERM, SI_USER);
    world.end(codex, ExitStatus::Signal(SIGTERM));

    let facts = death(&world, codex).facts;
    assert_eq!(facts.sender.map(|sender| (sender.pid, sender.relation)), Some((launcher.pid.0, Relation::Parent)));
    assert_eq!(facts.origin.map(|origin| (origin.pid, origin.relation)), Some((77, Relation::Stranger)));
    assert!(facts.summary.contains("by its parent codex.js"), "{}", facts.summary);
    assert!(facts.summary.contains("had been sent SIGTERM by mainthread-reap (pid 77, uid 0)"), "{}", facts.summary);
}

#[test]
fn a_hook_that_kills_its_own_agent_is_of_the_same_tree() {
    let mut world = World::new();
    let agent = world.claude();
    let shell = world.spawn(agent, &["/bin/sh", "-c", "/x/hook.sh"]);
    let hook = world.spawn(shell, &["/bin/bash", "/x/hook.sh"]);
    signal(&mut world, (hook, "hook.sh"), agent, SIGTERM, SI_USER);
    world.end(agent, ExitStatus::Code(143));
    let facts = death(&world, agent).facts;
    assert_eq!(facts.sender.unwrap().relation, Relation::SameTree);
    assert!(facts.summary.contains("by hook.sh (pid"), "{}", facts.summary);
}

#[test]
fn agents_inside_agents_are_one_tree_and_others_are_not() {
    let mut world = World::new();
    let outer = world.claude();
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
fn the_watchdog_knows_itself() {
    let mut world = World::new();
    world.tell(Input::Watchdog(STRANGER));
    let agent = world.claude();
    signal(&mut world, (STRANGER, "watchdogd"), agent, SIGKILL, SI_USER);
    world.kill(agent);
    let facts = death(&world, agent).facts;
    assert_eq!(facts.sender.unwrap().relation, Relation::Watchdog);
    assert!(facts.summary.contains("sent by agent-watchdog"), "{}", facts.summary);
}

#[test]
fn a_child_that_asked_to_die_with_its_parent_is_told_so() {
    let mut world = World::new();
    let agent = world.claude();
    let tool = world.spawn(agent, &["/usr/bin/cargo", "test"]);
    world.kill(agent);
    signal(&mut world, (agent, "claude"), tool, SIGTERM, SI_USER);
    world.end(tool, ExitStatus::Signal(SIGTERM));
    let sender = death(&world, tool).facts.sender.unwrap();
    assert_eq!((sender.relation, sender.by_its_death), (Relation::Parent, true));
}

#[test]
fn a_scope_that_is_killed_as_one_died_together() {
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
        facts.summary.contains("by systemd-oomd (pid 77, uid 0), by its name a program that kills"),
        "{}",
        facts.summary
    );
    assert!(facts.summary.contains("and 38 more"), "{}", facts.summary);
}
