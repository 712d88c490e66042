//! What is lost is counted.

use std::collections::HashSet;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use watchdog::config::Candidates;
use watchdog::engine::input::{KernelEvent, Lineage};
use watchdog::kernel::{KernelError, LoadOptions};
use watchdog_common::{RecordKind, SampleFlags};

use super::scene::{Agent, Scene, eventually, root};

#[test]
fn every_record_that_finds_no_room_is_counted_by_kind() {
    let candidates = Candidates::default();
    let mut scene = Scene::with(&LoadOptions { lifecycle_ring: 4_096, ..LoadOptions::new(4_096, &candidates) });
    let mut agent = scene.agent("i=0; while [ $i -lt 300 ]; do (:); i=$((i+1)); done");
    agent.child.wait().expect("wait");
    scene.lifecycle.drain(&mut scene.events);

    let told = |wanted: fn(&KernelEvent) -> bool| scene.events.iter().filter(|event| wanted(event)).count() as u64;
    let lost = scene.tracer.lost().expect("lost");
    assert!(lost.of(RecordKind::Fork) > 0);
    assert_eq!(lost.of(RecordKind::Fork) + told(|event| matches!(event, KernelEvent::Fork(_))), 300);
    assert_eq!(lost.of(RecordKind::Exit) + told(|event| matches!(event, KernelEvent::Exit(_))), 301);
    assert_eq!(lost.total(), lost.lifecycle());
    assert_eq!(lost.untracked(), 0);
}

#[test]
fn processes_that_find_no_room_in_the_map_are_counted() {
    let candidates = Candidates::default();
    let mut scene = Scene::with(&LoadOptions::new(4, &candidates));
    let agent = Agent::python(
        "import os\n\
         for _ in range(50):\n\
         \x20   if os.fork() == 0:\n\
         \x20       sys.stdin.readline(); os._exit(0)\n\
         sys.stdin.readline()\n",
    );
    scene.track(agent.process);
    agent.go();
    eventually("children find no room", || scene.tracer.lost().expect("lost").untracked() > 0);
    scene.tracer.flush_log();
}

#[test]
fn zombies_take_no_room() {
    let candidates = Candidates::default();
    let mut scene = Scene::with(&LoadOptions::new(16, &candidates));
    let script = "import sys, os\n\
         sys.stdin.readline()\n\
         for _ in range(50):\n\
         \x20   pid = os.fork()\n\
         \x20   if pid == 0: os._exit(0)\n\
         \x20   os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)\n\
         sys.stdout.write('forked\\n'); sys.stdout.flush(); sys.stdin.readline()\n";
    let [mut hog, mut other] = [python(65_534, script), forker(65_533, 5)];
    for agent in [&mut hog, &mut other] {
        scene.track(agent.process);
        agent.go();
        assert_eq!(agent.hears(), "forked");
    }
    assert_eq!(scene.tracer.lost().expect("lost").untracked(), 0);
    assert_eq!(scene.tracer.entries().expect("entries").len(), 1 + 6);
    assert_eq!(scene.tracer.dead().expect("dead").len(), 50);
    let samples = scene.tracer.sample().expect("sample");
    assert_eq!(samples.iter().filter(|sample| sample.flags & SampleFlags::ZOMBIE != 0).count(), 50);
}

/// A Python program of this user.
fn python(uid: u32, script: &str) -> Agent {
    let mut command = Command::new("/usr/bin/python3");
    Agent::of(command.args(["-c", script]).uid(uid).stdin(Stdio::piped()).stdout(Stdio::piped()))
}

/// A Python program of this user that forks so many children, says so, and then waits, as they do.
fn forker(uid: u32, children: u32) -> Agent {
    let script = format!(
        "import sys, os\n\
         sys.stdin.readline()\n\
         for _ in range({children}):\n\
         \x20   if os.fork() == 0:\n\
         \x20       sys.stdin.readline(); os._exit(0)\n\
         sys.stdout.write('forked\\n'); sys.stdout.flush(); sys.stdin.readline()\n"
    );
    python(uid, &script)
}

#[test]
fn users_leave_room_for_each_other() {
    const ROOM: u32 = 64;
    let candidates = Candidates::default();
    let mut scene = Scene::with(&LoadOptions::new(ROOM, &candidates));
    let of_session = |scene: &Scene, root: &Agent| {
        let entries = scene.tracer.entries().expect("entries");
        entries.iter().filter(|entry| entry.lineage.root == root.process).count() as u32
    };
    let [mut hog, mut second] = [forker(65_534, 2 * ROOM), forker(65_533, 10)];
    for agent in [&mut hog, &mut second] {
        scene.track(agent.process);
        agent.go();
        assert_eq!(agent.hears(), "forked");
    }
    assert_eq!(of_session(&scene, &hog), ROOM / 2, "as many as are free");
    assert_eq!(of_session(&scene, &second), 11, "all of them");
    assert_eq!(scene.tracer.lost().expect("lost").untracked(), u64::from(2 * ROOM + 1 - ROOM / 2));

    // What the daemon tracks is held to the same.
    let [more, others] = [forker(65_534, 0), forker(65_533, 0)];
    let refused = scene.tracer.track(more.process, &root(more.process));
    assert!(matches!(refused, Err(KernelError::ShareFull(process)) if process == more.process), "{refused:?}");
    scene.track(others.process);

    drop(hog);
    scene.tracer.repaired_entries().expect("repair");
    eventually("the user's children exit", || scene.tracer.entries().expect("entries").len() == 12);
    scene.track(more.process);
}

#[test]
fn without_loss_the_counters_stay_at_zero() {
    let mut scene = Scene::new();
    let agent = scene.agent("/bin/true; /bin/true");
    scene.wait_for_exit(agent.process);
    assert_eq!(scene.tracer.lost().expect("lost").total(), 0);
}

#[test]
fn scan_clears_forked_flag() {
    let mut scene = Scene::new();
    let agent =
        Agent::python("import os\nif os.fork() == 0:\n    sys.stdin.readline(); os._exit(0)\nsys.stdin.readline()\n");
    scene.track(agent.process);
    agent.go();
    let child = scene.wait_for("fork", |event| match event {
        KernelEvent::Fork(fork) => Some(fork.clone()),
        _ => None,
    });
    let noted = |scene: &Scene| {
        let entries = scene.tracer.entries().expect("entries");
        entries.iter().find(|entry| entry.process == child.process).expect("the child's entry").lineage
    };
    assert!(noted(&scene).forked);
    scene.tracer.track(child.process, &child.lineage).expect("track");
    assert!(noted(&scene).forked, "nothing has seen an exec");
    scene.tracer.track(child.process, &Lineage { forked: false, ..child.lineage }).expect("track");
    assert!(!noted(&scene).forked);
}

#[test]
fn concurrent_forks_reported_once() {
    const WORKERS: usize = 4;
    const FORKS: usize = 200;
    let mut scene = Scene::new();
    let mut agent = scene.agent(&format!(
        "for w in 1 2 3 {WORKERS}; do (i=0; while [ $i -lt {FORKS} ]; do (:); i=$((i+1)); done) & done; wait"
    ));
    agent.child.wait().expect("wait");
    scene.wait_for_exit(agent.process);

    let lost = scene.tracer.lost().expect("lost");
    let forks: Vec<_> = scene.forks().iter().map(|fork| fork.process).collect();
    let exits = scene.events.iter().filter(|event| matches!(event, KernelEvent::Exit(_))).count() as u64;
    let once: HashSet<_> = forks.iter().collect();
    assert_eq!(once.len(), forks.len());
    let expected = (WORKERS * (FORKS + 1)) as u64;
    let skipped: Vec<_> = scene.tracer.program_stats().into_iter().map(|stats| (stats.name, stats.missed)).collect();
    let told = forks.len() as u64 + lost.of(RecordKind::Fork);
    assert!((told..=told + lost.missed()).contains(&expected), "{told} of {expected}; {skipped:?}");
    assert!(exits + lost.of(RecordKind::Exit) <= expected + 1, "{exits}");
    eprintln!("skipped runs: {skipped:?}");
}
