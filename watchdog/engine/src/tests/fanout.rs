use std::time::Duration;

use super::world::World;
use watchdog_api::{FindingKind, Severity};
use watchdog_types::{Bytes, ExitStatus, ProcessId};

const CLAUDE: &str = "/home/u/.local/bin/claude";

fn server(world: &mut World, parent: ProcessId, name: &str) -> ProcessId {
    let script = format!("/x/.bin/{name}");
    world.spawn(parent, &["/usr/bin/node", &script])
}

#[test]
fn helpers_beyond_limit_form_burst() {
    let mut world = World::new();
    world.host(Bytes::from_mib(2_000), Bytes(0));
    let elder = world.claude();
    for mib in [90, 100, 400] {
        let settled = server(&mut world, elder, "mcp-server-memory");
        world.memory(settled, Bytes::from_mib(mib));
    }
    world.wait(Duration::from_secs(180));
    let agent = world.claude();
    for _ in 0..10 {
        server(&mut world, agent, "mcp-server-memory");
    }
    world.wait(Duration::from_secs(5));
    assert!(world.all(FindingKind::Fanout).is_empty(), "ten are in order");
    let last = server(&mut world, agent, "mcp-server-memory");
    world.memory(last, Bytes::from_mib(10));
    world.wait(Duration::from_secs(4));

    let findings = world.open(FindingKind::Fanout);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let evidence = &findings[0].evidence;
    assert_eq!((findings[0].pid, findings[0].proposed_action.as_str()), (agent.pid.0, "report"));
    assert_eq!((&evidence["helpers"], &evidence["helpers_limit"]), (&11.into(), &10.into()));
    assert_eq!(
        (&evidence["memory_bytes"], &evidence["expected_bytes"]),
        (&(10 << 20).into(), &(1_100_u64 << 20).into())
    );
    assert_eq!(evidence["started_by"][0]["pid"], agent.pid.0);
    assert_eq!(findings[0].severity, Severity::Warning, "more than a quarter of what is there");

    world.wait(Duration::from_secs(90));
    let closed = world.all(FindingKind::Fanout);
    assert_eq!((closed.len(), closed[0].closed_because.as_deref()), (1, Some("no more are started")));
}

#[test]
fn build_with_compilers_counts_once() {
    let (mut world, agent) = World::with_claude();
    let shell = world.spawn(agent, &["/bin/bash", "-c", "make -j64"]);
    let make = world.spawn(shell, &["/usr/bin/make", "-j64"]);
    for _ in 0..64 {
        let cc = world.spawn(make, &["/usr/bin/cc", "-c", "x.c"]);
        world.spawn(cc, &["/usr/lib/gcc/cc1", "x.c"]);
    }
    world.wait(Duration::from_secs(60));
    assert!(world.all(FindingKind::Fanout).is_empty());
}

#[test]
fn short_searches_are_no_burst() {
    let (mut world, agent) = World::with_claude();
    for round in 0..30 {
        let searches: Vec<ProcessId> = (0..12).map(|_| world.spawn(agent, &["/usr/bin/rg", "x"])).collect();
        world.wait(Duration::from_millis(if round % 2 == 0 { 250 } else { 1_250 }));
        searches.into_iter().for_each(|search| world.end(search, ExitStatus::Code(0)));
    }
    world.wait(Duration::from_secs(5));
    assert!(world.all(FindingKind::Fanout).is_empty());
}

#[test]
fn browser_with_renderers_counts_once() {
    let (mut world, agent) = World::with_claude();
    let playwright = server(&mut world, agent, "playwright-mcp");
    let chrome = world.spawn(playwright, &["/opt/chrome/chrome", "--headless"]);
    for _ in 0..20 {
        world.spawn(chrome, &["/opt/chrome/chrome", "--type=renderer"]);
    }
    world.wait(Duration::from_secs(30));
    assert!(world.all(FindingKind::Fanout).is_empty());
}

#[test]
fn agents_have_separate_limit() {
    let (mut world, agent) = World::with_claude();
    for _ in 0..3 {
        world.spawn(agent, &[CLAUDE, "-p"]);
    }
    world.wait(Duration::from_secs(5));
    assert!(world.all(FindingKind::Fanout).is_empty(), "three are in order");
    let shell = world.spawn(agent, &["/bin/bash", "-c", "codex exec x"]);
    world.spawn(shell, &["/usr/local/bin/codex", "exec", "x"]);
    world.wait(Duration::from_secs(4));

    let findings = world.open(FindingKind::Fanout);
    assert_eq!((findings.len(), &findings[0].evidence["agents"]), (1, &4.into()));
    assert_eq!(findings[0].pid, agent.pid.0, "whichever session the nested agent has");
    assert!(findings[0].summary.starts_with("4 agents"), "{}", findings[0].summary);
}

#[test]
fn helpers_children_count_once() {
    let mut world = World::new();
    world.host(Bytes::from_mib(8_000), Bytes(0));
    // What has settled: a shell with a server of 100 MiB below it.
    let elder = world.claude();
    let shell = world.spawn(elder, &["/bin/bash", "-c", "make serve"]);
    let settled = server(&mut world, shell, "mcp-server-memory");
    world.memory(shell, Bytes::from_mib(20));
    world.memory(settled, Bytes::from_mib(100));
    world.wait(Duration::from_secs(180));

    let agent = world.claude();
    for _ in 0..6 {
        let shell = world.spawn(agent, &["/bin/bash", "-c", "make serve"]);
        let server = server(&mut world, shell, "mcp-server-memory");
        world.memory(shell, Bytes::from_mib(20));
        world.memory(server, Bytes::from_mib(10));
    }
    world.wait(Duration::from_secs(6));

    let evidence = &world.open(FindingKind::Fanout)[0].evidence;
    assert_eq!(evidence["helpers"], 12);
    assert_eq!(evidence["memory_bytes"], 6 * (30_u64 << 20), "what they hold");
    assert_eq!(evidence["expected_bytes"], 6 * (120_u64 << 20), "what they will");
    let rows = evidence["what"].as_array().unwrap();
    let by_kind: Vec<u64> = rows.iter().map(|row| row["memory_bytes"].as_u64().unwrap() >> 20).collect();
    assert_eq!(by_kind.iter().sum::<u64>(), 180, "{rows:#?}");
}

#[test]
fn sequential_agents_are_no_burst() {
    let (mut world, agent) = World::with_claude();
    for _ in 0..12 {
        world.spawn(agent, &[CLAUDE, "-p"]);
        world.wait(Duration::from_secs(25));
    }
    assert!(world.all(FindingKind::Fanout).is_empty());
}

#[test]
fn no_estimate_without_earlier_helpers() {
    let (mut world, agent) = World::with_claude();
    for _ in 0..12 {
        server(&mut world, agent, "mcp-server-memory");
    }
    world.wait(Duration::from_secs(4));
    assert!(world.open(FindingKind::Fanout)[0].evidence["expected_bytes"].is_null());
}

#[test]
fn storm_leaves_no_state() {
    let (mut world, agent) = World::with_claude();
    for _ in 0..3_000 {
        let tool = world.spawn(agent, &["/usr/bin/git", "status"]);
        world.end(tool, ExitStatus::Code(0));
    }
    world.wait(Duration::from_secs(120));
    assert!(world.all(FindingKind::Fanout).is_empty());
    world.kill(agent);
    world.wait(Duration::from_secs(120));
    let left = format!("{:?}", world.engine.detectors);
    assert!(left.contains("fanout: Fanout { sessions: {}, counted: {}, "), "{left}");
}

#[test]
fn scanned_helpers_count() {
    let (mut world, agent) = World::with_claude();
    for _ in 0..12 {
        world.unseen(agent, "/opt/bin/mcp-server-notes");
    }
    let scan = world.scan(true);
    world.feed(scan);
    world.wait(Duration::from_secs(4));
    assert_eq!(world.open(FindingKind::Fanout)[0].evidence["helpers"], 12);
}
