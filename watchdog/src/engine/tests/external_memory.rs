use std::time::Duration;

use super::world::{World, naming};
use crate::api::{FindingKind, ProcessState};
use crate::engine::deaths::Subject;
use crate::engine::effect::Effect;
use crate::engine::id::{Bytes, ProcessId, SessionId, Uid};
use crate::engine::input::{ExitStatus, Tmpfs, TmpfsFile, TmpfsMount};
use crate::engine::view::Viewer;

const GRADLE: [&str; 4] = ["/j/java", "-cp", "/g.jar", "org.gradle.launcher.daemon.bootstrap.GradleDaemon"];

/// The host's count of shared memory rises to this, of which processes map so much.
fn shmem(world: &mut World, mib: u64, mapped: u64, used: u64) {
    let file = TmpfsFile { path: "/tmp/claude-1000/t.output".into(), size: Bytes::from_mib(used), uid: Uid(1_000) };
    world.tmpfs = Tmpfs {
        shmem: Bytes::from_mib(mib),
        mapped: Bytes::from_mib(mapped),
        mounts: vec![TmpfsMount { path: "/tmp".into(), used: Bytes::from_mib(used) }],
        largest: Some(file),
    };
    for _ in 0..40 {
        world.host(Bytes::from_mib(30_000), Bytes::from_mib(mib));
        world.wait(Duration::from_secs(1));
    }
}

/// L09: a task's output in /tmp grew to 31 GB. No process shows it, and it outlives its session.
#[test]
fn files_in_memory_that_grow_are_named_and_charged_to_nobody() {
    let mut world = World::new();
    let agent = world.claude();
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
fn shared_memory_that_a_process_maps_is_that_process_s() {
    let mut world = World::new();
    world.claude();
    shmem(&mut world, 500, 100, 300);
    shmem(&mut world, 9_000, 8_700, 300);
    assert!(world.all(FindingKind::External).is_empty());
}

#[test]
fn files_that_were_there_before_are_no_growth() {
    let mut world = World::new();
    shmem(&mut world, 20_000, 100, 19_900);
    world.claude();
    shmem(&mut world, 20_100, 100, 20_000);
    assert!(world.all(FindingKind::External).is_empty());
}

#[test]
fn without_growth_nobody_looks_twice() {
    let mut world = World::new();
    shmem(&mut world, 500, 100, 300);
    let looks = |world: &World| world.effects.iter().filter(|effect| **effect == Effect::LookAtTmpfs).count();
    assert_eq!(looks(&world), 0, "no session, no look");
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

/// The same memory, wherever it is told.
fn told_of(world: &World, agent: ProcessId) -> [u64; 5] {
    let session = world.session(agent);
    let id = SessionId(session.id);
    let explained = world.engine.explain(Viewer::Root, &naming(), world.now, Subject::Session(id)).unwrap();
    let (largest, _) = world.engine.largest(1, 0);
    let told = [
        session.memory_bytes,
        world.engine.counts(Viewer::Root).memory_bytes,
        world.engine.gauges().memory.values().sum(),
        explained.session.unwrap().memory_bytes,
        largest[0].memory_bytes,
    ];
    told.map(|bytes| bytes >> 20)
}

#[test]
fn what_is_charged_to_nobody_is_so_wherever_memory_is_told() {
    let mut world = World::new();
    let agent = world.claude();
    let session = SessionId(world.session(agent).id);
    world.memory(agent, Bytes::from_mib(300));
    let (client, daemon) = gradle(&mut world, agent);
    world.wait(Duration::from_secs(1));
    assert_eq!(told_of(&world, agent), [1_200; 5]);
    world.end(client, ExitStatus::Code(0));
    world.wait(Duration::from_secs(120));
    assert_eq!(told_of(&world, agent), [300; 5]);
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
fn a_build_server_that_outlives_its_command_is_charged_to_nobody() {
    let mut world = World::new();
    let agent = world.claude();
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
