//! A hundred launches at once: time until each has started or is queued.

use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::super::daemon::BenchDaemon;
use super::super::figures::Figures;
use super::super::stage::BenchStage;
use super::super::worker::monotonic;
use super::launches::{Launches, Said};
use super::{millis, with_places};
use crate::quantile::{median, quantile};

const AT_ONCE: usize = 100;

/// With limits for all of them, and for ten.
pub(super) fn run(stage: &BenchStage, quick: bool, figures: &mut Figures) -> Result<()> {
    let rounds = if quick { 2 } else { 10 };
    println!("gate: {AT_ONCE} launches at once, {rounds} rounds: until the last one has started or is queued");
    for places in [AT_ONCE, 10] {
        let daemon = BenchDaemon::configured(stage, &with_places(places))?;
        let mut times = Vec::new();
        for _ in 0..rounds {
            times.push(millis(burst(stage, &daemon, places)?));
            until_empty(&daemon)?;
        }
        let (typical, most) = (median(&times), quantile(&times, 1.0));
        figures.info(format!("gate: {AT_ONCE} at once, limit {places}, p50"), format!("{typical:.0} ms"));
        figures.at_most(format!("gate: {AT_ONCE} at once, limit {places}, max"), 1_000.0, most, 0.0, "ms");
    }
    Ok(())
}

fn burst(stage: &BenchStage, daemon: &BenchDaemon, places: usize) -> Result<Duration> {
    let mut launches = Launches::new(stage, daemon)?;
    let (stdin, hold) = std::io::pipe().context("making a pipe")?;
    for _ in 0..AT_ONCE {
        launches.start(Stdio::from(stdin.try_clone().context("sharing a pipe")?))?;
    }
    for _ in 0..AT_ONCE {
        let (_, said) = launches.next()?;
        ensure!(said == Said::Ready, "a launch did not wait for the others");
    }
    let released = monotonic();
    drop(hold);
    let (mut granted, mut last) = (0, released);
    for _ in 0..AT_ONCE {
        let (at, said) = launches.next()?;
        last = last.max(at);
        granted += usize::from(matches!(said, Said::Began(_)));
    }
    ensure!(granted == places, "{granted} launches granted with a limit of {places}");
    Ok(last.saturating_sub(released))
}

/// Waits until the queue and the leases are empty.
fn until_empty(daemon: &BenchDaemon) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let queue = daemon.queue()?;
        if queue.waiting.is_empty() && queue.leases.is_empty() {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "timeout: {} leases and {} queued launches left",
            queue.leases.len(),
            queue.waiting.len()
        );
        thread::sleep(Duration::from_millis(50));
    }
}
