use std::time::Duration;

use super::shown_world::listed;
use super::world::World;
use watchdog_api::{FindingKind, ProcessKind, ProcessState, SessionState};
use watchdog_types::{Bytes, ExitStatus, ProcessId};

/// A session whose shell left such processes in the background, each with this memory.
fn background(world: &mut World, agent: ProcessId, memory: &[u64]) -> Vec<ProcessId> {
    let spawn = |mib: &u64| {
        let shell = world.spawn(agent, &["/bin/bash", "-c", "sleep 40 &"]);
        let process = world.spawn(shell, &["/usr/bin/sleep", "40"]);
        world.memory(process, Bytes::from_mib(*mib));
        world.end(shell, ExitStatus::Code(0));
        process
    };
    memory.iter().map(spawn).collect()
}

#[test]
fn large_old_background_process_is_found() {
    let (mut world, agent) = World::with_claude();
    let shell = world.spawn(agent, &["/bin/bash", "-c", "npx vitest run | head -3"]);
    let runner = world.spawn(shell, &["/usr/bin/node", "/p/node_modules/.bin/vitest", "run"]);
    let worker = world.spawn(runner, &["/usr/bin/node", "/p/node_modules/vitest/dist/worker.js"]);
    let below = world.spawn(worker, &["/usr/bin/esbuild"]);
    world.memory(below, Bytes::from_mib(40));
    world.kill(runner);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.row(worker).state, ProcessState::Detached);
    world.pass(Duration::from_secs(57));
    assert!(world.all(FindingKind::Detached).is_empty());
    world.pass(Duration::from_secs(3));

    let findings = world.open(FindingKind::Detached);
    assert_eq!(findings.iter().map(|finding| finding.pid).collect::<Vec<_>>(), [worker.pid.0]);
    assert_eq!(findings[0].evidence["memory_bytes"], Bytes::from_mib(40).0);
    assert!(
        findings[0].summary.starts_with("worker.js (40 MiB) outlived its parent vitest"),
        "{}",
        findings[0].summary
    );
    world.wait(Duration::from_secs(3_600));
    assert_eq!(world.open(FindingKind::Detached)[0].proposed_action, "report");
    assert!(world.open(FindingKind::Orphan).is_empty());

    world.kill(below);
    world.pass(Duration::from_secs(2));
    let closed = world.all(FindingKind::Detached)[0].closed_because.clone();
    assert_eq!(closed.as_deref(), Some("below [orphans] detached_memory"));
}

#[test]
fn background_processes_are_one_finding() {
    let mut world = World::new();
    let (agent, other) = (world.claude(), world.claude());
    let all = background(&mut world, agent, &[1; 80]);
    background(&mut world, other, &[1; 8]);
    world.pass(Duration::from_secs(62));

    let findings = world.open(FindingKind::Detached);
    assert_eq!(findings.len(), 1, "the other session is below the minimum: {findings:#?}");
    assert_eq!((findings[0].pid, &findings[0].evidence["count"]), (all[0].pid.0, &80.into()));
    assert_eq!(listed(&findings[0]).len(), 50);
    let summary = "80 processes (80 MiB) outlived their parents; the largest is sleep; their agent is running";
    assert_eq!(findings[0].summary, summary);

    all[..70].iter().for_each(|process| world.kill(*process));
    world.pass(Duration::from_secs(2));
    assert!(world.open(FindingKind::Detached).is_empty());
    assert_eq!(world.all(FindingKind::Detached).len(), 1);
}

#[test]
fn brief_background_processes_are_only_counted() {
    let (mut world, agent) = World::with_claude();
    for _ in 0..500 {
        let all = background(&mut world, agent, &[1]);
        world.wait(Duration::from_millis(500));
        world.kill(all[0]);
    }
    assert!(world.all(FindingKind::Detached).is_empty());

    background(&mut world, agent, &[100]);
    world.pass(Duration::from_secs(62));
    let findings = world.open(FindingKind::Detached);
    assert_eq!((findings.len(), &findings[0].evidence["brief"]), (1, &500.into()));
}

#[test]
fn background_agents_are_one_finding() {
    let (mut world, agent) = World::with_claude();
    for _ in 0..20 {
        let shell = world.spawn(agent, &["/bin/bash", "-c", "claude -p task &"]);
        let inner = world.spawn(shell, &["/home/u/.local/bin/claude", "-p", "task"]);
        world.memory(inner, Bytes::from_mib(300));
        world.end(shell, ExitStatus::Code(0));
    }
    world.pass(Duration::from_secs(62));
    let findings = world.open(FindingKind::Detached);
    assert_eq!((findings.len(), findings[0].session), (1, Some(world.session(agent).id)));
}

#[test]
fn child_exiting_with_parent_not_reported() {
    let (mut world, agent) = World::with_claude();
    let shell = world.spawn(agent, &["/bin/bash", "-c", "x"]);
    let child = world.spawn(shell, &["/usr/bin/sleep", "1"]);
    world.kill(shell);
    world.wait(Duration::from_millis(250));
    world.kill(child);
    world.wait(Duration::from_secs(5));

    assert!(world.all(FindingKind::Detached).is_empty());
}

#[test]
fn briefly_surviving_sidecar_not_reported() {
    let (mut world, agent) = World::with_claude();
    let server = world.spawn(agent, &["/usr/bin/node", "/x/.bin/chrome-devtools-mcp"]);
    let script = "/x/node_modules/chrome-devtools-mcp/build/src/telemetry/watchdog/main.js";
    let sidecar = world.spawn(server, &["/usr/bin/node", script, "--parent-pid=7"]);
    world.end(server, ExitStatus::Code(0));
    world.wait(Duration::from_secs(20));
    assert_eq!(world.row(sidecar).state, ProcessState::Running);
    world.wait(Duration::from_secs(20));
    assert_eq!(world.row(sidecar).state, ProcessState::Detached);
}

#[test]
fn agents_death_turns_detached_into_orphan() {
    let (mut world, agent) = World::with_claude();
    let shell = world.spawn(agent, &["/bin/bash", "-c", "yes &"]);
    let yes = world.spawn(shell, &["/usr/bin/yes"]);
    world.memory(yes, Bytes::from_mib(100));
    world.end(shell, ExitStatus::Code(0));
    world.wait(Duration::from_secs(62));
    assert_eq!(world.open(FindingKind::Detached).len(), 1);
    world.kill(agent);
    world.wait(Duration::from_millis(250));

    assert!(world.open(FindingKind::Detached).is_empty());
    assert_eq!(world.all(FindingKind::Detached)[0].closed_because.as_deref(), Some("became an orphan"));
    assert_eq!(world.open(FindingKind::Orphan)[0].pid, yes.pid.0);
}

#[test]
fn agent_of_dead_launcher_not_terminated() {
    let mut world = World::new();
    let script = "/x/node_modules/.bin/gemini";
    let launcher = world.agent_with(script, &["/usr/bin/env", "node", script]);
    world.exec(launcher, "/usr/bin/node", &["node", script]);
    let agent = world.fork(launcher);
    world.exec(agent, "/usr/bin/node", &["/usr/bin/node", "--max-old-space-size=12052", script]);
    let helper = world.spawn(agent, &["/usr/bin/node", "/x/.bin/mcp-server-memory"]);
    assert_eq!(world.row(agent).kind, ProcessKind::Agent);
    assert_eq!(world.tree().sessions.len(), 1, "the pair is one agent");

    world.kill(launcher);
    world.wait(Duration::from_secs(60));

    let findings = world.open(FindingKind::Orphan);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!((findings[0].pid, findings[0].proposed_action.as_str()), (agent.pid.0, "report"));
    assert!(findings[0].summary.contains("still has its terminal"), "{}", findings[0].summary);
    assert_eq!(world.row(helper).state, ProcessState::Running);
    assert_eq!(world.tree().sessions[0].state, SessionState::Running);

    world.kill(agent);
    world.wait(Duration::from_secs(1));
    assert_eq!(world.open(FindingKind::Orphan)[0].pid, helper.pid.0);
}
