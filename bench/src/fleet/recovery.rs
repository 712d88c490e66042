//! How soon a place is another's: after its host died, and after it was released.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use watchdog_fleet::{FleetEvent, FleetWorkers};

use super::super::figures::Figures;
use super::server;
use super::simulated_host::SimulatedHost;
use crate::quantile::{median, quantile};

const TTL: Duration = Duration::from_secs(15);

pub(super) fn run(quick: bool, figures: &mut Figures) -> Result<()> {
    let ttl = if quick { TTL / 5 } else { TTL };
    println!("fleet: a host dies, TTL {ttl:?}; then a place is released to a host that waits");
    let server = server()?;
    let mut waiting = SimulatedHost::join(&server, 1, ttl, 1)?;
    waiting.wait_for_grants()?;
    let mut dead = SimulatedHost::join(&server, 2, ttl, 1)?;
    dead.ask()?.ok().context("a place")?;
    dead.begin()?;
    let (died, mut renewed) = (Instant::now(), Instant::now());
    while let Err(retry_after) = waiting.ask()? {
        // As the daemon does: the renewal continues, and the next ask is when the store said.
        let next = Instant::now() + retry_after;
        while let left @ 1.. = next.saturating_duration_since(Instant::now()).as_millis() {
            if renewed.elapsed() > ttl / 3 {
                waiting.restate()?;
                renewed = Instant::now();
            }
            thread::sleep(Duration::from_millis(20).min(Duration::from_millis(u64::try_from(left).unwrap_or(20))));
        }
    }
    let goal = ttl.as_secs_f64() + 1.0;
    figures.at_most("fleet: a dead host's place is another's", goal, died.elapsed().as_secs_f64(), 0.0, "s");
    waiting.begin()?;
    let times = wake_ups(&server, &mut waiting, if quick { 5 } else { 50 })?;
    figures.info("fleet: a released place wakes a waiting host, p50", format!("{:.1} ms", median(&times)));
    figures.at_most("fleet: a released place wakes a waiting host, p99", 50.0, quantile(&times, 0.99), 0.0, "ms");
    Ok(())
}

fn wake_ups(server: &watchdog_tests::RedisServer, holder: &mut SimulatedHost, rounds: usize) -> Result<Vec<f64>> {
    let mut waiting = SimulatedHost::join(server, 3, TTL, 1)?;
    let (sender, events) = mpsc::channel();
    let workers = FleetWorkers::start(&waiting.store, TTL, move |event| {
        if event == FleetEvent::Called {
            let _ = sender.send(Instant::now());
        }
    })?;
    workers.restate(waiting.row.clone());
    events.recv_timeout(TTL).context("listening")?;
    let mut times = Vec::new();
    for _ in 0..rounds {
        ensure!(waiting.ask()?.is_err(), "the place is free");
        let released = Instant::now();
        holder.end()?;
        let called = events.recv_timeout(TTL).context("a call")?;
        times.push(called.saturating_duration_since(released).as_secs_f64() * 1e3);
        waiting.ask()?.ok().context("the place")?;
        waiting.end()?;
        holder.ask()?.ok().context("the place")?;
        holder.begin()?;
    }
    Ok(times)
}
