use std::time::Duration;

use super::world::{MINUTE, World};
use crate::effect::{Effect, ScanRequest};
use watchdog_api::{FindingKind, ProcessState};
use watchdog_config::{Config, ReclaimConfig, ReclaimMode};
use watchdog_types::{Bytes, ProcessId, Stdin};

const SERVER: [&str; 2] = ["/usr/bin/node", "/x/.bin/mcp-server-memory"];

/// Reclaim looks at all processes of sessions.
fn without_reclaim() -> World {
    let reclaim = ReclaimConfig { mode: ReclaimMode::Off, ..ReclaimConfig::default() };
    World::with(Config { reclaim, ..Config::default() })
}

/// An agent that starts this server anew every ten minutes, and never ends it.
fn generations(world: &mut World, count: usize) -> (ProcessId, Vec<ProcessId>) {
    let agent = world.claude();
    let mut servers = Vec::new();
    for _ in 0..count {
        let server = world.spawn(agent, &SERVER);
        world.memory(server, Bytes::from_mib(50));
        servers.push(server);
        world.rest(10 * MINUTE);
    }
    (agent, servers)
}

#[test]
fn older_idle_servers_share_finding() {
    let mut world = World::new();
    let (agent, servers) = generations(&mut world, 4);
    world.rest(40 * MINUTE);

    let findings = world.open(FindingKind::Stale);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let evidence = &findings[0].evidence;
    assert_eq!((findings[0].pid, findings[0].proposed_action.as_str()), (servers[0].pid.0, "report"));
    assert_eq!(evidence["parent_pid"], agent.pid.0);
    assert_eq!((&evidence["count"], &evidence["equals"]), (&3.into(), &4.into()));
    assert_eq!(evidence["memory_bytes"], 150 << 20);
    assert_eq!(evidence["started_per_hour"], 6.0);
    assert!(evidence["idle_seconds"].as_u64() >= Some(1_800), "{evidence:#?}");
    assert!(evidence["oldest_age_seconds"].as_u64() >= Some(4_700), "{evidence:#?}");
    let states: Vec<ProcessState> = servers.iter().map(|server| world.row(*server).state).collect();
    let stale = ProcessState::Stale;
    assert_eq!(states, [stale, stale, stale, ProcessState::Running], "the youngest of equals is never stale");
}

#[test]
fn short_idleness_is_not_stale() {
    let mut world = World::new();
    generations(&mut world, 2);
    world.rest(10 * MINUTE);
    assert!(world.all(FindingKind::Stale).is_empty());
}

#[test]
fn pool_workers_are_no_generations() {
    let mut world = World::new();
    let agent = world.claude();
    for _ in 0..8 {
        world.spawn(agent, &SERVER);
    }
    world.rest(120 * MINUTE);
    assert!(world.all(FindingKind::Stale).is_empty());
}

#[test]
fn other_arguments_supersede_nothing() {
    let mut world = World::new();
    let agent = world.claude();
    for root in ["/a", "/b", "/c"] {
        world.spawn(agent, &["/usr/bin/node", "/x/.bin/mcp-server-filesystem", root]);
        world.rest(10 * MINUTE);
    }
    world.rest(120 * MINUTE);
    assert!(world.all(FindingKind::Stale).is_empty());
}

#[test]
fn heartbeat_is_no_activity() {
    let mut world = World::new();
    let agent = world.claude();
    let old = world.spawn(agent, &SERVER);
    // A timer every second, and a keep-alive every fifteen.
    world.does(old, Duration::from_millis(8), 64, 400);
    world.rest(10 * MINUTE);
    world.spawn(agent, &SERVER);
    world.rest(60 * MINUTE);
    assert_eq!(world.row(old).state, ProcessState::Stale);
}

#[test]
fn use_prevents_and_ends_staleness() {
    let mut world = World::new();
    let (_, servers) = generations(&mut world, 3);
    // A request every ten seconds.
    world.does(servers[0], Duration::from_millis(25), 38, 65_000);
    world.rest(60 * MINUTE);
    let states = |world: &World| [world.row(servers[0]).state, world.row(servers[1]).state];
    assert_eq!(states(&world), [ProcessState::Running, ProcessState::Stale]);

    world.does(servers[1], Duration::from_millis(120), 200, 0);
    world.rest(5 * MINUTE);
    assert_eq!(states(&world), [ProcessState::Running; 2]);
    assert_eq!(world.all(FindingKind::Stale)[0].closed_because.as_deref(), Some("active again"));
}

/// As claude 2.1 does while it waits, and while it works.
#[test]
fn busy_agents_have_own_threshold() {
    let mut world = World::new();
    let agent = world.claude();
    let subagents = [0, 1, 2].map(|_| {
        let subagent = world.spawn(agent, &["/home/u/.local/bin/claude", "-p", "--resume", "1"]);
        world.does(subagent, Duration::from_millis(350), 1_200, 200_000);
        world.rest(10 * MINUTE);
        subagent
    });
    world.does(subagents[1], Duration::from_secs(2), 3_000, 2_000_000);
    world.rest(60 * MINUTE);
    let states = subagents.map(|subagent| world.row(subagent).state);
    assert_eq!(states, [ProcessState::Stale, ProcessState::Running, ProcessState::Running]);
}

#[test]
fn changing_memory_counts_as_work() {
    let mut world = World::new();
    let (_, servers) = generations(&mut world, 2);
    for step in 0..60 {
        world.memory(servers[0], Bytes::from_mib(50 + 2 * step));
        world.rest(MINUTE);
    }
    assert!(world.all(FindingKind::Stale).is_empty());
}

/// T11: the agent waits at 0 % CPU for 45 minutes of tests.
#[test]
fn childrens_activity_counts_for_helper() {
    let mut world = World::new();
    let agent = world.claude();
    let old = world.spawn(agent, &["/home/u/.local/bin/claude", "-p", "--resume", "1"]);
    let shell = world.spawn(old, &["/bin/bash", "-c", "pytest"]);
    let pytest = world.spawn(shell, &["/usr/bin/python3", "/usr/bin/pytest"]);
    world.does(pytest, Duration::from_secs(50), 5_000, 1 << 20);
    world.rest(10 * MINUTE);
    world.spawn(agent, &["/home/u/.local/bin/claude", "-p", "--resume", "2"]);
    world.rest(60 * MINUTE);
    assert!(world.all(FindingKind::Stale).is_empty());
}

#[test]
fn kept_process_is_not_stale() {
    let mut world = World::new();
    let (_, servers) = generations(&mut world, 3);
    world.feed(crate::input::Input::Adopt(servers[0]));
    world.rest(60 * MINUTE);
    let findings = world.open(FindingKind::Stale);
    assert_eq!((findings.len(), findings[0].pid), (1, servers[1].pid.0));
}

#[test]
fn listening_dev_servers_are_not_stale() {
    let mut world = World::new();
    let agent = world.claude();
    let mut start = |command: &str| {
        let shell = world.spawn(agent, &["/bin/bash", "-c", command]);
        let node = world.spawn(shell, &["/usr/bin/node", "/p/node_modules/.bin/vite"]);
        world.shows(node, |seen| seen.listens = vec!["tcp 127.0.0.1:5173".into()]);
        world.rest(10 * MINUTE);
    };
    ["npm run dev", "npm run api", "npm run dev"].into_iter().for_each(&mut start);
    world.rest(120 * MINUTE);
    assert!(world.all(FindingKind::Stale).is_empty());
}

#[test]
fn idle_daemon_below_exempts_nothing() {
    let mut world = World::new();
    let agent = world.claude();
    let old = world.spawn(agent, &["/home/u/.local/bin/claude", "-p", "1"]);
    let shell = world.spawn(old, &["/bin/bash", "-c", "./gradlew build"]);
    let daemon = world.spawn(shell, &["/j/java", "-cp", "/g.jar", "org.gradle.launcher.daemon.bootstrap.GradleDaemon"]);
    world.does(daemon, Duration::from_secs(3), 1_200, 0);
    world.end(shell, watchdog_types::ExitStatus::Code(0));
    world.rest(10 * MINUTE);
    world.spawn(agent, &["/home/u/.local/bin/claude", "-p", "2"]);
    world.rest(60 * MINUTE);
    assert_eq!(world.row(old).state, ProcessState::Stale);
    assert_eq!(world.row(daemon).state, ProcessState::Kept);
}

#[test]
fn last_member_or_parent_closes_finding() {
    for parent_dies in [false, true] {
        let mut world = World::new();
        let (agent, servers) = generations(&mut world, 2);
        world.rest(40 * MINUTE);
        assert_eq!(world.open(FindingKind::Stale).len(), 1);
        world.kill(if parent_dies { agent } else { servers[0] });
        world.wait(Duration::from_secs(61));

        assert!(world.open(FindingKind::Stale).is_empty());
        let because = if parent_dies { "its parent is gone" } else { "gone" };
        assert_eq!(world.all(FindingKind::Stale)[0].closed_because.as_deref(), Some(because));
    }
}

#[test]
fn finding_continues_with_remaining_members() {
    let mut world = World::new();
    let (_, servers) = generations(&mut world, 4);
    world.rest(40 * MINUTE);
    let before = world.open(FindingKind::Stale).remove(0);
    world.kill(servers[0]);
    world.wait(Duration::from_secs(2));

    let after = world.open(FindingKind::Stale);
    assert_eq!((after.len(), after[0].id, after[0].pid), (1, before.id, servers[1].pid.0));
    assert_eq!(after[0].evidence["count"], 2);
}

#[test]
fn closed_stdin_is_evidence() {
    let mut world = World::new();
    let (_, servers) = generations(&mut world, 2);
    world.shows(servers[0], |seen| seen.stdin = Stdin::Closed);
    world.rest(40 * MINUTE);
    assert_eq!(world.open(FindingKind::Stale)[0].evidence["stdin_closed"], 1);
}

#[test]
fn sleepers_are_inspected_in_portions() {
    let mut world = without_reclaim();
    let agent = world.claude();
    for _ in 0..1_000 {
        world.spawn(agent, &["/usr/bin/sleep", "1d"]);
    }
    world.rest(5 * MINUTE);
    world.spawn(agent, &["/usr/bin/sleep", "1d"]);
    world.effects.clear();
    world.rest(4 * MINUTE);
    let looks: Vec<usize> = world
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Scan(ScanRequest::Activity(processes)) => Some(processes.len()),
            _ => None,
        })
        .collect();
    assert_eq!(looks, [128; 4]);
    world.rest(40 * MINUTE);
    assert_eq!(world.open(FindingKind::Stale)[0].evidence["count"], 1_000);
}

#[test]
fn idle_state_requests_no_inspection() {
    let mut world = without_reclaim();
    let agent = world.claude();
    world.spawn(agent, &SERVER);
    world.spawn(agent, &["/usr/bin/node", "/x/.bin/context7-mcp"]);
    world.rest(60 * MINUTE);
    assert!(!world.effects.iter().any(|effect| matches!(effect, Effect::Scan(ScanRequest::Activity(_)))));
}

#[test]
fn other_environment_is_another_instance() {
    let mut world = World::new();
    let (_, servers) = generations(&mut world, 3);
    for (server, environment) in servers.iter().zip([1, 2, 1]) {
        world.shows(*server, |seen| seen.environment = Some(environment));
    }
    world.rest(70 * MINUTE);
    let states: Vec<ProcessState> = servers.iter().map(|server| world.row(*server).state).collect();
    let running = ProcessState::Running;
    assert_eq!(states, [ProcessState::Stale, running, running], "the third replaces the first only");

    // A closed stdin says more.
    world.shows(servers[1], |seen| seen.stdin = Stdin::Closed);
    world.rest(70 * MINUTE);
    assert_eq!(world.row(servers[1]).state, ProcessState::Stale);
}
