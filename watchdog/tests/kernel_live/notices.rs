//! Whoever waits for events gets them.

use std::thread::sleep;
use std::time::Duration;

use tokio::time::timeout;
use watchdog::config::Candidates;
use watchdog::kernel::{LoadOptions, Tracer};

use super::scene::{Agent, root, soon};

/// A look that takes the record of a notice before the notice itself is heard, and finds nothing behind it, must not end
/// the looking: the next record may come without a notice, and then keeps all later ones from being noticed.
#[tokio::test]
async fn a_look_in_between_keeps_no_later_event_from_arriving() {
    let candidates = Candidates::default();
    let (mut tracer, streams) =
        Tracer::load(&LoadOptions::new(4_096, &candidates)).expect("these tests need root and a kernel with BTF");
    let mut lifecycle = streams.lifecycle.into_stream().expect("a runtime that watches descriptors");
    let agent = Agent::waiting("while :; do sleep 0.001; done");
    tracer.track(agent.process, &root(agent.process)).expect("track");
    agent.go();

    for _ in 0..200 {
        let mut events = Vec::new();
        while events.is_empty() {
            timeout(soon(), lifecycle.next(&mut events)).await.expect("the agent forks all the time").expect("a ring");
        }
        for _ in 0..8 {
            lifecycle.drain(&mut events);
            sleep(Duration::from_micros(200));
        }
    }
}
