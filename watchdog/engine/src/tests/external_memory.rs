use std::time::Duration;

use super::shown_world::naming;
use super::world::World;
use crate::effect::{Effect, ScanRequest};
use crate::exits::ExplainTarget;
use crate::input::Input;
use watchdog_api::{FindingKind, ProcessState};
use watchdog_types::{
    Bytes, Container, ExitStatus, Pid, ProcessId, SessionId, Ticks, Tmpfs, TmpfsFile, TmpfsMount, Uid, Viewer,
};

const GRADLE: [&str; 4] = ["/j/java", "-cp", "/g.jar", "org.gradle.launcher.daemon.bootstrap.GradleDaemon"];

/// The host's count of shared memory rises to this, of which processes map so much.
fn shmem(world: &mut World, mib: u64, mapped: u64, used: u64) {
    let file = TmpfsFile { path: "/tmp/claude-1000/t.output".into(), size: Bytes::from_mib(used), uid: Uid(1_000) };
    world.tmpfs = Tmpfs {
        shmem: Bytes::from_mib(mib),
        mapped: Bytes::from_mib(mapped),
        mounts: vec![TmpfsMount { path: "/tmp".into(), used: Bytes::from_mib(used) }],
        largest: Some(file),
        ..Tmpfs::default()
    };
    for _ in 0..40 {
        world.host(Bytes::from_mib(30_000), Bytes::from_mib(mib));
        world.wait(Duration::from_secs(1));
    }
}

/// L09: a task's output in /tmp grew to 31 GB. No process shows it, and it outlives its session.
#[test]
fn growing_tmpfs_charged_to_none() {
    let (mut world, agent) = World::with_claude();
    shmem(&mut world, 500, 100, 300);
    shmem(&mut world, 32_000, 100, 31_800);

    let findings = world.open(FindingKind::External);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let evidence = &findings[0].evidence;
    assert_eq!((findings[0].session, findings[0].pid), (None, 0));
    assert_eq!(evidence["growth_bytes"], 31_500_u64 << 20);
    assert_eq!(evidence["mounts"][0]["path"], "/tmp");
    assert_eq!(evidence["largest_file"]["path"], "/tmp/claude-1000/t.output");
    assert_eq!(world.session(agent).memory_bytes, 0);

    world.kill(agent);
    shmem(&mut world, 32_000, 100, 31_800);
    assert_eq!(world.open(FindingKind::External).len(), 1, "it stays until it is removed");
    shmem(&mut world, 700, 100, 500);
    assert_eq!(world.all(FindingKind::External)[0].closed_because.as_deref(), Some("given back"));
}

#[test]
fn mapped_shared_memory_charged_to_process() {
    let mut world = World::new();
    world.claude();
    shmem(&mut world, 500, 100, 300);
    shmem(&mut world, 9_000, 8_700, 300);
    assert!(world.all(FindingKind::External).is_empty());
}

#[test]
fn older_tmpfs_files_are_no_growth() {
    let mut world = World::new();
    shmem(&mut world, 20_000, 100, 19_900);
    world.claude();
    shmem(&mut world, 20_100, 100, 20_000);
    assert!(world.all(FindingKind::External).is_empty());
}

#[test]
fn without_growth_no_second_inspection() {
    let mut world = World::new();
    shmem(&mut world, 500, 100, 300);
    let looks =
        |world: &World| world.effects.iter().filter(|effect| **effect == Effect::Scan(ScanRequest::Tmpfs)).count();
    assert_eq!(looks(&world), 1, "what there was before a session");
    world.claude();
    shmem(&mut world, 600, 100, 400);
    shmem(&mut world, 700, 100, 500);
    assert_eq!(looks(&world), 1);
}

fn gradle(world: &mut World, agent: ProcessId) -> (ProcessId, ProcessId) {
    let client = world.spawn(agent, &["/bin/bash", "-c", "./gradlew build"]);
    let daemon = world.spawn(client, &GRADLE);
    world.memory(daemon, Bytes::from_mib(900));
    (client, daemon)
}

/// The memory of the session, in MiB, from each place that reports it.
fn reported_memory(world: &World, agent: ProcessId) -> [u64; 5] {
    let session = world.session(agent);
    let id = SessionId(session.id);
    let explained = world.engine.explain(Viewer::Root, &naming(), world.now, ExplainTarget::Session(id)).unwrap();
    let (largest, _) = world.engine.largest(1, 0);
    let reported = [
        session.memory_bytes,
        world.engine.counts(Viewer::Root).memory_bytes,
        world.engine.gauges(world.now).memory.values().sum(),
        explained.session.unwrap().memory_bytes,
        largest[0].memory_bytes,
    ];
    reported.map(|bytes| bytes >> 20)
}

#[test]
fn uncharged_memory_excluded_everywhere() {
    let (mut world, agent) = World::with_claude();
    let session = SessionId(world.session(agent).id);
    world.memory(agent, Bytes::from_mib(300));
    let (client, daemon) = gradle(&mut world, agent);
    world.wait(Duration::from_secs(1));
    assert_eq!(reported_memory(&world, agent), [1_200; 5]);
    world.end(client, ExitStatus::Code(0));
    world.wait(Duration::from_secs(120));
    assert_eq!(reported_memory(&world, agent), [300; 5]);
    let (_, processes) = world.engine.largest(0, 1);
    assert_eq!((processes[0].pid, processes[0].memory_bytes), (daemon.pid.0, 900 << 20), "what it holds it holds");

    // What it takes from now on is no peak of the session's.
    world.memory(daemon, Bytes::from_mib(5_000));
    world.wait(Duration::from_secs(120));
    world.kill(daemon);
    world.kill(agent);
    let (_, summary) = world.engine.session_summary(session, &naming()).unwrap();
    assert_eq!(summary.peak_memory_bytes, 1_200 << 20);
}

/// T26: the daemon serves the next build, of whichever session.
#[test]
fn outliving_build_server_charged_to_none() {
    let (mut world, agent) = World::with_claude();
    world.memory(agent, Bytes::from_mib(300));
    let (client, daemon) = gradle(&mut world, agent);
    world.wait(Duration::from_secs(120));
    assert!(world.all(FindingKind::External).is_empty(), "the command that started it still runs");
    assert_eq!(world.session(agent).memory_bytes, 1_200 << 20);
    world.end(client, ExitStatus::Code(0));
    world.wait(Duration::from_secs(120));

    let findings = world.open(FindingKind::External);
    assert_eq!((findings.len(), findings[0].pid, findings[0].session), (1, daemon.pid.0, None));
    assert_eq!(findings[0].evidence["name"], "the Gradle daemon");
    assert_eq!(findings[0].evidence["memory_bytes"], 900 << 20);
    assert_eq!(world.session(agent).memory_bytes, 300 << 20);
    assert_eq!(world.row(daemon).state, ProcessState::Kept);

    world.kill(daemon);
    world.wait(Duration::from_secs(120));
    assert_eq!(world.all(FindingKind::External)[0].closed_because.as_deref(), Some("gone"));
}

/// One agent runs container after container.
#[test]
fn container_clients_share_finding() {
    let (mut world, agent) = World::with_claude();
    let clients: Vec<ProcessId> =
        (0..12).map(|_| world.spawn(agent, &["/usr/bin/docker", "run", "--rm", "tools"])).collect();
    let container = |number: u32| Container {
        process: ProcessId { pid: Pid(9_000 + number), start_time: Ticks(clients[0].start_time.0 + 50) },
        id: format!("{number:064x}"),
        runtime: "docker".into(),
        comm: "tools".into(),
    };
    // Two clients are linked to the same containers: they ran at the same time.
    for client in &clients[..2] {
        world.feed(Input::Containers(*client, vec![container(1), container(2)]));
    }
    let findings = world.open(FindingKind::External);
    assert_eq!((findings.len(), findings[0].pid, findings[0].severity.name()), (1, clients[0].pid.0, "info"));
    assert_eq!((&findings[0].evidence["clients"], &findings[0].evidence["client_alive"]), (&12.into(), &true.into()));
    assert_eq!(findings[0].evidence["containers_started_meanwhile"].as_array().map(Vec::len), Some(2));

    for client in &clients {
        world.end(*client, ExitStatus::Code(0));
        let left = if *client == clients[1] { vec![container(2)] } else { Vec::new() };
        world.feed(Input::Containers(*client, left));
    }
    let left = world.open(FindingKind::External);
    assert_eq!((left.len(), left[0].id, left[0].severity.name()), (1, findings[0].id, "warning"));
    assert_eq!((left[0].pid, &left[0].evidence["client_alive"]), (clients[1].pid.0, &false.into()));
    world.feed(Input::Containers(clients[1], Vec::new()));
    assert_eq!(world.all(FindingKind::External)[0].closed_because.as_deref(), Some("gone"));
}
