//! Close watch: attached, and detached again, while everything runs.

use watchdog::engine::id::Bytes;
use watchdog::engine::input::KernelEvent;
use watchdog::kernel::Features;

use super::scene::Scene;

#[test]
fn this_kernel_gives_every_feature() {
    let scene = Scene::new();
    let Features { signals, oom, close_watch, sampler, counting, files, lsm } = scene.tracer.features();
    for feature in [signals, oom, close_watch, sampler, counting, files] {
        assert_eq!(feature, &Ok(()));
    }
    // fork, exec, one of two for exit, free; signal, one of two for victims; three of close watch; the sampler, and what counts;
    // and two that refuse, where they are called. Spares of fork and exit come on top where tracepoints can be preempted.
    let programs = scene.tracer.program_stats();
    let spares = programs.iter().filter(|program| program.name.ends_with("_spare")).count();
    assert!(matches!(spares, 0 | 2), "{programs:?}");
    assert_eq!(programs.len() - spares, if lsm.is_ok() { 13 } else { 11 }, "{programs:?}");
    // The verifier gives up at a million; exec needs 582,000 on 6.1.
    assert!(programs.iter().all(|program| program.verified_instructions < 700_000), "{programs:?}");
}

#[test]
fn memory_steps_come_while_close_watch_is_on_and_only_then() {
    let mut scene = Scene::new();
    // dd takes a buffer of that size, and fills it.
    let script = "exec dd if=/dev/zero of=/dev/null bs=64M count=1 2>/dev/null";
    let unwatched = scene.agent(script);
    scene.wait_for_exit(unwatched.process);
    assert!(!scene.events.iter().any(is_step));

    scene.tracer.set_close_watch(true).expect("attach");
    scene.tracer.set_close_watch(true).expect("once more is nothing");
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
    let told = scene.events.iter().any(|e| matches!(e, KernelEvent::MemoryStep(s) if s.process == after.process));
    assert!(!told);
}

fn is_step(event: &KernelEvent) -> bool {
    matches!(event, KernelEvent::MemoryStep(_))
}
