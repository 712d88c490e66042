//! Every event arrives, however it is notified.

use std::thread::sleep;
use std::time::Duration;

use tokio::time::timeout;
use watchdog_config::Candidates;
use watchdog_kernel::{LoadOptions, Tracer};
use watchdog_types::KernelEvent;

use super::scene::{TestAgent, root, soon};

/// A look that takes the record of a notice before the notice itself is heard, and finds nothing behind it, must not end
/// the looking: the next record may come without a notice, and then keeps all later ones from being noticed.
#[tokio::test]
async fn early_drain_delays_no_later_event() {
    let candidates = Candidates::default();
    let (mut tracer, streams) =
        Tracer::load(&LoadOptions::new(4_096, &candidates)).expect("these tests need root and a kernel with BTF");
    let mut lifecycle = streams.lifecycle.into_stream().expect("a runtime that watches descriptors");
    let agent = TestAgent::waiting("while :; do sleep 0.001; done");
    tracer.track(agent.process, &root(agent.process)).expect("track");
    agent.go();

    let mut unnoticed = 0;
    for _ in 0..200 {
        let mut events = Vec::new();
        while events.is_empty() {
            match timeout(soon() / 3, lifecycle.next(&mut events, |_| true)).await {
                Ok(read) => read.expect("a ring"),
                // If a program is held up before it sends its record, no notice follows. The daemon drains the ring
                // now and then, so the test does too.
                Err(_) => {
                    unnoticed += 1;
                    lifecycle.drain(&mut events);
                }
            }
            assert!(unnoticed <= 1, "the agent forks all the time");
        }
        for _ in 0..8 {
            lifecycle.drain(&mut events);
            sleep(Duration::from_micros(200));
        }
    }
}

#[tokio::test]
async fn urgent_event_releases_held_ones() {
    let candidates = Candidates::default();
    let (mut tracer, streams) =
        Tracer::load(&LoadOptions::new(4_096, &candidates)).expect("these tests need root and a kernel with BTF");
    let mut lifecycle = streams.lifecycle.into_stream().expect("a runtime that watches descriptors");
    // Two commands: busybox's shell executes the last one in its own place.
    let agent = TestAgent::waiting("/bin/true; /bin/true");
    tracer.track(agent.process, &root(agent.process)).expect("track");
    agent.go();

    let own_exit = |event: &KernelEvent| matches!(event, KernelEvent::Exit(exit) if exit.process == agent.process);
    let mut events = Vec::new();
    while !events.iter().any(own_exit) {
        timeout(soon(), lifecycle.next(&mut events, own_exit)).await.expect("the agent exits").expect("a ring");
    }
    let exits = events.iter().filter(|event| matches!(event, KernelEvent::Exit(_))).count();
    assert!(events.iter().any(|event| matches!(event, KernelEvent::Fork(_))) && exits >= 1, "{events:?}");
    assert!(events.is_sorted_by_key(KernelEvent::at), "{events:?}");
}

#[tokio::test]
async fn lone_event_arrives() {
    let candidates = Candidates::default();
    let (mut tracer, streams) =
        Tracer::load(&LoadOptions::new(4_096, &candidates)).expect("these tests need root and a kernel with BTF");
    let mut lifecycle = streams.lifecycle.into_stream().expect("a runtime that watches descriptors");
    let agent = TestAgent::waiting("/bin/true; exec sleep 100");
    tracer.track(agent.process, &root(agent.process)).expect("track");
    agent.go();

    let mut events = Vec::new();
    // By the process: busybox executes itself under another name.
    let executes = |event: &KernelEvent| matches!(event, KernelEvent::Exec(exec) if exec.process == agent.process);
    while !events.iter().any(executes) {
        timeout(soon(), lifecycle.next(&mut events, |_| false)).await.expect("the agent executes").expect("a ring");
    }
}
