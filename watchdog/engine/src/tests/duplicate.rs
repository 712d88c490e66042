use std::time::Duration;

use super::world::World;
use watchdog_api::FindingKind;
use watchdog_types::{Bytes, ProcessId};

const SETTLED: Duration = Duration::from_secs(180);

/// An agent with `npm exec`, its shell and the server.
fn with_server(world: &mut World, package: &str, command: &str, mib: u64) -> (ProcessId, ProcessId) {
    let agent = world.claude();
    let npm = world.spawn(agent, &["/usr/bin/node", "/usr/bin/npx", "-y", package]);
    let shell = world.spawn(npm, &["/usr/bin/dash", "-c", command]);
    let script = format!("/home/u/.npm/_npx/1/node_modules/.bin/{command}");
    let server = world.spawn(shell, &["/usr/bin/node", &script]);
    for process in [npm, server] {
        world.memory(process, Bytes::from_mib(mib / 2));
    }
    (agent, npm)
}

#[test]
fn shared_server_states_possible_savings() {
    let mut world = World::new();
    let started: Vec<_> =
        [80, 100, 90].map(|mib| with_server(&mut world, "@upstash/context7-mcp", "context7-mcp", mib)).into();
    // Started directly, it is the same server.
    let agent = world.agent("/usr/local/bin/codex");
    let direct = world.spawn(agent, &["/usr/bin/node", "/usr/lib/node_modules/.bin/context7-mcp"]);
    world.memory(direct, Bytes::from_mib(40));
    world.wait(SETTLED);

    let findings = world.open(FindingKind::Duplicate);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let evidence = &findings[0].evidence;
    assert_eq!((findings[0].pid, findings[0].severity.name()), (started[0].1.pid.0, "info"));
    assert_eq!(findings[0].proposed_action, "report");
    assert_eq!((&evidence["name"], &evidence["count"]), (&"context7-mcp".into(), &4.into()));
    assert_eq!(evidence["memory_bytes"], 310 << 20);
    assert_eq!(evidence["sharing_would_save_bytes"], 210 << 20);
    assert_eq!(evidence["sessions"].as_array().map(Vec::len), Some(4));
}

#[test]
fn different_arguments_make_different_servers() {
    let mut world = World::new();
    for url in ["postgres://u:secret@a/x", "postgres://u:secret@a/y", "postgres://u:secret@a/x"] {
        let agent = world.claude();
        world.spawn(agent, &["/usr/bin/node", "/x/.bin/mcp-server-postgres", url]);
    }
    world.wait(SETTLED);
    let findings = world.open(FindingKind::Duplicate);
    assert_eq!((findings.len(), &findings[0].evidence["count"]), (1, &2.into()));
    assert!(!format!("{findings:?}").contains("secret"));
}

#[test]
fn two_servers_of_agent_no_duplicate() {
    let (mut world, agent) = World::with_claude();
    for _ in 0..2 {
        world.spawn(agent, &["/usr/bin/node", "/x/.bin/context7-mcp"]);
    }
    world.wait(SETTLED);
    assert!(world.all(FindingKind::Duplicate).is_empty());
}

#[test]
fn brief_servers_are_no_duplicates() {
    let mut world = World::new();
    with_server(&mut world, "@upstash/context7-mcp", "context7-mcp", 80);
    world.wait(SETTLED);
    let (list, npm) = with_server(&mut world, "@upstash/context7-mcp", "context7-mcp", 80);
    world.wait(Duration::from_secs(2));
    world.kill(list);
    world.wait(Duration::from_secs(200));
    // What it left behind is an orphan, and no duplicate.
    assert_eq!(world.row(npm).state.name(), "orphaned");
    assert!(world.all(FindingKind::Duplicate).is_empty());
}

#[test]
fn single_survivor_closes_finding() {
    let mut world = World::new();
    let agents = [0, 1].map(|_| {
        let agent = world.claude();
        (agent, world.spawn(agent, &["/usr/bin/node", "/x/.bin/context7-mcp"]))
    });
    world.wait(SETTLED);
    assert_eq!(world.open(FindingKind::Duplicate).len(), 1);
    world.kill(agents[0].1);
    world.wait(SETTLED);
    assert!(world.open(FindingKind::Duplicate).is_empty());
    assert!(world.all(FindingKind::Duplicate)[0].closed_because.is_some());
}

#[test]
fn finding_keeps_id_when_oldest_exits() {
    let mut world = World::new();
    let servers = [0, 1, 2].map(|_| {
        let agent = world.claude();
        world.spawn(agent, &["/usr/bin/node", "/x/.bin/context7-mcp"])
    });
    world.wait(SETTLED);
    let before = world.open(FindingKind::Duplicate).remove(0);
    world.kill(servers[0]);
    world.wait(SETTLED);
    let after = world.open(FindingKind::Duplicate);
    assert_eq!((after[0].id, after[0].pid, &after[0].evidence["count"]), (before.id, servers[1].pid.0, &2.into()));
}

#[test]
fn servers_of_same_agents_share_finding() {
    let mut world = World::new();
    let names = ["a-mcp", "b-mcp", "c-mcp", "d-mcp", "e-mcp"];
    let serve = |world: &mut World, names: &[&str]| {
        let agent = world.claude();
        names.iter().for_each(|name| {
            let server = world.spawn(agent, &["/usr/bin/node", &format!("/x/.bin/{name}")]);
            world.memory(server, Bytes::from_mib(20));
        });
        agent
    };
    serve(&mut world, &names);
    serve(&mut world, &names);
    world.wait(SETTLED);
    let pair = world.open(FindingKind::Duplicate);
    assert_eq!((pair.len(), &pair[0].evidence["count"], &pair[0].evidence["agents"]), (1, &10.into(), &2.into()));
    assert_eq!(pair[0].evidence["sharing_would_save_bytes"], 100_u64 << 20);
    assert_eq!(pair[0].evidence["servers"].as_array().map(Vec::len), Some(5));
    assert_eq!(
        pair[0].summary,
        "10 identical a-mcp, b-mcp, c-mcp, d-mcp, e-mcp (200 MiB) for 2 agents; sharing one of each would save 100 MiB"
    );

    // A third agent with two of them: two sets of agents.
    let third = serve(&mut world, &names[3..]);
    world.wait(SETTLED);
    let split = world.open(FindingKind::Duplicate);
    assert_eq!(split.iter().map(|finding| &finding.evidence["count"]).collect::<Vec<_>>(), [&6, &6]);
    assert_eq!(split[0].id, pair[0].id);

    world.kill(third);
    world.wait(SETTLED);
    let again = world.open(FindingKind::Duplicate);
    assert_eq!((again.len(), again[0].id, &again[0].evidence["count"]), (1, pair[0].id, &10.into()));
}
