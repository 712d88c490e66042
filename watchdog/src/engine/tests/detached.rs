use std::time::Duration;

use super::world::World;
use crate::api::{FindingKind, ProcessKind, ProcessState, SessionState};
use crate::engine::input::ExitStatus;

#[test]
fn what_its_shell_left_running_is_reported_and_never_more() {
    let mut world = World::new();
    let agent = world.claude();
    let shell = world.spawn(agent, &["/bin/bash", "-c", "npx vitest run | head -3"]);
    let runner = world.spawn(shell, &["/usr/bin/node", "/p/node_modules/.bin/vitest", "run"]);
    let worker = world.spawn(runner, &["/usr/bin/node", "/p/node_modules/vitest/dist/worker.js"]);
    world.kill(runner);
    world.wait(Duration::from_secs(1));

    let findings = world.open(FindingKind::Detached);
    assert_eq!(findings.iter().map(|finding| finding.pid).collect::<Vec<_>>(), [worker.pid.0]);
    assert_eq!(world.row(worker).state, ProcessState::Detached);
    world.wait(Duration::from_secs(3_600));
    assert_eq!(world.open(FindingKind::Detached)[0].proposed_action, "report");
    assert!(world.open(FindingKind::Orphan).is_empty());
}

#[test]
fn a_child_that_ends_with_its_parent_is_no_news() {
    let mut world = World::new();
    let agent = world.claude();
    let shell = world.spawn(agent, &["/bin/bash", "-c", "x"]);
    let child = world.spawn(shell, &["/usr/bin/sleep", "1"]);
    world.kill(shell);
    world.wait(Duration::from_millis(250));
    world.kill(child);
    world.wait(Duration::from_secs(5));

    assert!(world.all(FindingKind::Detached).is_empty());
}

#[test]
fn a_sidecar_that_outlives_its_server_for_a_moment_is_no_news() {
    let mut world = World::new();
    let agent = world.claude();
    let server = world.spawn(agent, &["/usr/bin/node", "/x/.bin/chrome-devtools-mcp"]);
    let script = "/x/node_modules/chrome-devtools-mcp/build/src/telemetry/watchdog/main.js";
    let sidecar = world.spawn(server, &["/usr/bin/node", script, "--parent-pid=7"]);
    world.end(server, ExitStatus::Code(0));
    world.wait(Duration::from_secs(20));
    assert!(world.open(FindingKind::Detached).is_empty());
    world.wait(Duration::from_secs(20));
    assert_eq!(world.open(FindingKind::Detached)[0].pid, sidecar.pid.0);
}

#[test]
fn it_becomes_an_orphan_with_its_agents_death() {
    let mut world = World::new();
    let agent = world.claude();
    let shell = world.spawn(agent, &["/bin/bash", "-c", "yes &"]);
    let yes = world.spawn(shell, &["/usr/bin/yes"]);
    world.end(shell, ExitStatus::Code(0));
    world.wait(Duration::from_secs(1));
    world.kill(agent);
    world.wait(Duration::from_millis(250));

    assert!(world.open(FindingKind::Detached).is_empty());
    assert_eq!(world.all(FindingKind::Detached)[0].closed_because.as_deref(), Some("became an orphan"));
    assert_eq!(world.open(FindingKind::Orphan)[0].pid, yes.pid.0);
}

#[test]
fn the_agent_behind_a_dead_launcher_is_an_orphan_that_nobody_ends() {
    let mut world = World::new();
    let launcher = world.agent("/x/node_modules/.bin/gemini");
    world.exec(launcher, "/usr/bin/node", &["node", "/x/node_modules/.bin/gemini"]);
    let script = "/x/node_modules/.bin/gemini";
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
