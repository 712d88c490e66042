//! What is lost is counted.

use watchdog::config::Candidates;
use watchdog::engine::input::KernelEvent;
use watchdog::kernel::LoadOptions;
use watchdog_common::RecordKind;

use super::scene::{Agent, Scene};

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
    super::scene::eventually("children find no room", || scene.tracer.lost().expect("lost").untracked() > 0);
    scene.tracer.flush_log();
}

#[test]
fn without_loss_the_counters_stay_at_zero() {
    let mut scene = Scene::new();
    let agent = scene.agent("/bin/true; /bin/true");
    scene.wait_for_exit(agent.process);
    assert_eq!(scene.tracer.lost().expect("lost").total(), 0);
}
