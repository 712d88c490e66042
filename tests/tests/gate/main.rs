//! The gate, on the running kernel.

mod contention;
mod denials;
mod leases;
mod session_bounds;

use std::time::Duration;

use watchdog_tests::{Daemon, ProcessKey, Stage, limit, poll};

/// Starts agents through the gate: their processes.
fn launch(stage: &mut Stage, daemon: &Daemon, count: usize, options: &[&str], script: &str) -> Vec<ProcessKey> {
    (0..count).map(|_| stage.execute(daemon.launch(stage, options, script))).collect()
}

/// Waits until so many wait in the queue.
fn queued(daemon: &Daemon, count: usize) {
    let waiting = poll(limit(Duration::from_secs(20)), || (daemon.queue().waiting.len() == count).then_some(()));
    assert!(waiting.is_some(), "{:#?}\n{}", daemon.queue(), daemon.log());
}

/// Whether the daemon has BPF LSM.
fn lsm(daemon: &Daemon) -> bool {
    daemon.status().capabilities.iter().any(|capability| capability.name == "lsm" && capability.on)
}
