use super::world::{SECOND, World};
use watchdog_api::{FindingKind, Severity};
use watchdog_config::{Config, Size};
use watchdog_types::{Bytes, ProcessId};

fn size(mib: u64) -> Option<Size> {
    Some(Size::Bytes(Bytes::from_mib(mib)))
}

/// A process may take 200 MiB, a session 500, and all of them 800.
fn world() -> World {
    let mut config = Config::default();
    let profile = config.profiles.iter_mut().find(|profile| profile.name == "claude-code").unwrap();
    (profile.max_process_memory, profile.max_memory, profile.max_total_memory) = (size(200), size(500), size(800));
    World::with(config)
}

fn helper(world: &mut World, agent: ProcessId, mib: u64) -> ProcessId {
    let helper = world.spawn(agent, &["/usr/bin/node", "/x/.bin/mcp-server-memory"]);
    world.memory(helper, Bytes::from_mib(mib));
    helper
}

#[test]
fn process_over_limit_states_numbers() {
    let mut world = world();
    let agent = world.claude();
    let large = helper(&mut world, agent, 250);
    helper(&mut world, agent, 199);
    world.wait(10 * SECOND);

    let findings = world.open(FindingKind::Overlimit);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let evidence = &findings[0].evidence;
    assert_eq!((findings[0].pid, findings[0].severity), (large.pid.0, Severity::Warning));
    assert_eq!(findings[0].proposed_action, "report");
    assert_eq!((&evidence["scope"], &evidence["limit_bytes"]), (&"process".into(), &(200 << 20).into()));
    assert_eq!(evidence["value_bytes"], 250 << 20);
    assert!(evidence["over_for_seconds"].as_u64() >= Some(9), "{evidence:#?}");
}

#[test]
fn limits_apply_to_session_and_profile() {
    let mut world = world();
    let agents = [0, 1].map(|_| world.claude());
    for agent in agents {
        for _ in 0..3 {
            helper(&mut world, agent, 150);
        }
    }
    world.wait(5 * SECOND);
    let findings = world.open(FindingKind::Overlimit);
    assert_eq!((findings.len(), &findings[0].evidence["scope"]), (1, &"profile".into()));
    assert_eq!((findings[0].pid, &findings[0].evidence["value_bytes"]), (agents[0].pid.0, &(900 << 20).into()));

    // The finding of the oldest agent has both limits then; the other agent gets one of its own.
    for agent in agents {
        helper(&mut world, agent, 150);
    }
    world.wait(5 * SECOND);
    let findings = world.open(FindingKind::Overlimit);
    assert_eq!(findings.iter().map(|finding| finding.pid).collect::<Vec<_>>(), [agents[0].pid.0, agents[1].pid.0]);
    let scopes: Vec<&serde_json::Value> =
        findings[0].evidence["limits"].as_array().unwrap().iter().map(|limit| &limit["scope"]).collect();
    assert_eq!(scopes, ["session", "profile"]);
}

#[test]
fn one_second_burst_not_reported() {
    let mut world = world();
    let agent = world.claude();
    let tool = helper(&mut world, agent, 50);
    for _ in 0..5 {
        world.memory(tool, Bytes::from_mib(4_000));
        world.wait(2 * SECOND);
        world.memory(tool, Bytes::from_mib(50));
        world.wait(20 * SECOND);
    }
    assert!(world.all(FindingKind::Overlimit).is_empty());
}

#[test]
fn swaying_around_limit_keeps_finding() {
    let mut world = world();
    let agent = world.claude();
    let large = helper(&mut world, agent, 210);
    world.wait(5 * SECOND);
    for _ in 0..20 {
        for mib in [190, 210, 150, 220] {
            world.memory(large, Bytes::from_mib(mib));
            world.wait(5 * SECOND);
        }
    }
    assert_eq!(world.all(FindingKind::Overlimit).len(), 1);
    assert_eq!(world.open(FindingKind::Overlimit).len(), 1);

    world.memory(large, Bytes::from_mib(100));
    world.wait(20 * SECOND);
    assert_eq!(world.all(FindingKind::Overlimit)[0].closed_because.as_deref(), Some("below its limit"));
}

#[test]
fn double_limit_critical_until_exit() {
    let mut world = world();
    let agent = world.claude();
    let large = helper(&mut world, agent, 450);
    world.wait(5 * SECOND);
    assert_eq!(world.open(FindingKind::Overlimit)[0].severity, Severity::Critical);
    world.kill(large);
    world.wait(2 * SECOND);
    assert_eq!(world.all(FindingKind::Overlimit)[0].closed_because.as_deref(), Some("gone"));
}

#[test]
fn limit_may_be_host_share() {
    let mut config = Config::default();
    let profile = config.profiles.iter_mut().find(|profile| profile.name == "claude-code").unwrap();
    profile.max_memory = Some(Size::PercentOfHost(10));
    let mut world = World::with(config);
    let agent = world.claude();
    world.memory(agent, Bytes::from_mib(7_000));
    world.wait(5 * SECOND);
    assert!(world.all(FindingKind::Overlimit).is_empty(), "the size of the host is not known yet");
    world.host(Bytes::from_mib(30_000), Bytes(0));
    world.memory(agent, Bytes::from_mib(7_001));
    world.wait(5 * SECOND);
    assert_eq!(world.open(FindingKind::Overlimit)[0].evidence["limit_bytes"], (64_u64 << 30) / 10);
}

#[test]
fn no_limits_no_findings() {
    let (mut world, agent) = World::with_claude();
    world.memory(agent, Bytes::from_mib(100_000));
    world.wait(10 * SECOND);
    assert!(world.all(FindingKind::Overlimit).is_empty());
}
