//! Grants a second and their latency, for a hundred hosts.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use watchdog_tests::RedisServer;

use super::super::figures::Figures;
use super::server;
use super::simulated_host::SimulatedHost;
use crate::quantile::{median, quantile};

const HOSTS: usize = 100;
const TTL: Duration = Duration::from_secs(3);
const PER_SECOND: u32 = 500;
/// How long a launch holds its place where places are few.
const HOLD: Duration = Duration::from_millis(5);

/// What the hosts of one run saw.
#[derive(Default)]
struct LoadTally {
    grants: AtomicU64,
    /// Launches that run now, and the most that ever did.
    running: AtomicU32,
    most_running: AtomicU32,
}

pub(super) fn run(quick: bool, figures: &mut Figures) -> Result<()> {
    let span = Duration::from_secs(if quick { 2 } else { 10 });
    println!("fleet: {HOSTS} hosts, each a thread and a connection, {span:?} a run");
    let (tally, times) = load(1_000, span, None)?;
    let grants = rate(&tally, span);
    figures.holds("fleet: grants/s, no host waits", "≥ 5000/s", format!("{grants:.0}/s"), grants >= 5_000.0);
    figures.info("fleet: round trip of an ask at full load, p50", format!("{:.1} ms", median(&times)));
    let (tally, _) = load(50, span, None)?;
    figures.info("fleet: grants/s, 50 places, each held for 5 ms", format!("{:.0}/s", rate(&tally, span)));
    let most = tally.most_running.load(Ordering::Relaxed);
    figures.holds("fleet: most at once of 50 places", "≤ 50", most.to_string(), most <= 50);
    let (_, times) = load(1_000, span, Some(PER_SECOND))?;
    figures.info(format!("fleet: an ask at {PER_SECOND}/s, p50"), format!("{:.2} ms", median(&times)));
    figures.at_most(format!("fleet: an ask at {PER_SECOND}/s, p99"), 20.0, quantile(&times, 0.99), 0.0, "ms");
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "some hundred thousand grants")]
fn rate(tally: &LoadTally, span: Duration) -> f64 {
    tally.grants.load(Ordering::Relaxed) as f64 / span.as_secs_f64()
}

/// Lets each host launch and end, as fast as it can or so many times a second for all. Returns milliseconds of each ask.
fn load(places: u32, span: Duration, per_second: Option<u32>) -> Result<(LoadTally, Vec<f64>)> {
    let server = server()?;
    let (tally, start) = (LoadTally::default(), Barrier::new(HOSTS + 1));
    let mut hosts = join(&server, places)?;
    hosts[0].wait_for_grants()?;
    hosts.iter_mut().try_for_each(SimulatedHost::restate)?;
    let times = thread::scope(|scope| {
        let threads: Vec<_> = hosts
            .into_iter()
            .enumerate()
            .map(|(number, mut host)| {
                let (tally, start) = (&tally, &start);
                scope.spawn(move || {
                    start.wait();
                    let pace = per_second.map(|all| Duration::from_secs(1) * HOSTS as u32 / all);
                    let began = Instant::now() + pace.unwrap_or_default().mul_f64(number as f64 / HOSTS as f64);
                    launch(&mut host, tally, began, span, pace, places)
                })
            })
            .collect();
        start.wait();
        let times = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a panic"))?);
        times.collect::<Result<Vec<Vec<f64>>>>()
    })?;
    Ok((tally, times.concat()))
}

fn join(server: &RedisServer, places: u32) -> Result<Vec<SimulatedHost>> {
    let hosts = (0..HOSTS).map(|number| SimulatedHost::join(server, number, TTL, places));
    hosts.collect::<Result<_>>().context("joining the hosts")
}

fn launch(
    host: &mut SimulatedHost,
    tally: &LoadTally,
    mut next: Instant,
    span: Duration,
    pace: Option<Duration>,
    places: u32,
) -> Result<Vec<f64>> {
    let (mut times, end) = (Vec::new(), next + span);
    while next < end {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        // From when it should have been sent, so that a slow answer also counts for those behind it.
        let due = if pace.is_some() { next } else { Instant::now() };
        let answer = host.ask()?;
        times.push(due.elapsed().as_secs_f64() * 1e3);
        match answer {
            Ok(()) => {
                let running = tally.running.fetch_add(1, Ordering::SeqCst) + 1;
                tally.most_running.fetch_max(running, Ordering::SeqCst);
                tally.grants.fetch_add(1, Ordering::Relaxed);
                if places < HOSTS as u32 {
                    thread::sleep(HOLD);
                }
                // The end is counted before the store learns of it.
                tally.running.fetch_sub(1, Ordering::SeqCst);
                host.end()?;
            }
            // Calls come through another connection; here the next try is soon.
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
        next = pace.map_or_else(Instant::now, |pace| next + pace);
    }
    Ok(times)
}
