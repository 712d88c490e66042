//! Features, the verifier's effort, and close watch.

use watchdog_kernel::Features;
use watchdog_types::{Bytes, KernelEvent};

use super::scene::KernelScene;

#[test]
fn all_features_on_and_verifier_cheap() {
    let scene = KernelScene::new();
    let Features { signals, oom, close_watch, sampler, counting, files, lsm } = scene.tracer.features();
    for feature in [signals, oom, close_watch, sampler, counting, files] {
        assert_eq!(feature, &Ok(()));
    }
    // fork, exec, exit and free; signal and mark_victim; three of close watch; the two iterators; and two LSM programs, where
    // the kernel calls them. Second programs on fork and exit come on top where tracepoints can be preempted.
    let programs = scene.tracer.program_stats();
    let spares = programs.iter().filter(|program| program.name.ends_with("_spare")).count();
    assert!(matches!(spares, 0 | 2), "{programs:?}");
    assert_eq!(programs.len() - spares, if lsm.is_ok() { 13 } else { 11 }, "{programs:?}");
    // The verifier refuses a million; exec takes 85,000 on 6.1.
    assert!(programs.iter().all(|program| program.verified_instructions < 120_000), "{programs:?}");
}

#[test]
fn memory_steps_only_in_close_watch() {
    let mut scene = KernelScene::new();
    // dd allocates a buffer of that size and fills it.
    let script = "exec dd if=/dev/zero of=/dev/null bs=64M count=1 2>/dev/null";
    let unwatched = scene.agent(script);
    scene.wait_for_exit(unwatched.process);
    assert!(!scene.events.iter().any(is_step));

    scene.tracer.set_close_watch(true).expect("attach");
    scene.tracer.set_close_watch(true).expect("a second call");
    assert!(scene.tracer.close_watch());
    let watched = scene.agent(script);
    scene.wait_for_exit(watched.process);
    scene.wait_for("a step", |event| is_step(event).then_some(()));
    let steps: Vec<Bytes> = scene
        .events
        .iter()
        .filter_map(|event| match event {
            KernelEvent::MemoryStep(sample) if sample.process == watched.process => Some(sample.memory.charged()),
            _ => None,
        })
        .collect();
    assert!(steps.iter().any(|&charged| charged > Bytes::from_mib(60)), "{steps:?}");
    assert!((12..=60).contains(&steps.len()), "64 MiB up and down in steps of 4 MiB: {steps:?}");

    scene.tracer.set_close_watch(false).expect("detach");
    assert!(!scene.tracer.close_watch());
    let after = scene.agent(script);
    scene.wait_for_exit(after.process);
    let reported = scene.events.iter().any(|e| matches!(e, KernelEvent::MemoryStep(s) if s.process == after.process));
    assert!(!reported);
}

fn is_step(event: &KernelEvent) -> bool {
    matches!(event, KernelEvent::MemoryStep(_))
}
