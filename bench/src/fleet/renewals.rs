//! A thousand hosts that renew their rows, and the view of them.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use watchdog_fleet::{FleetStore, Restated};
use watchdog_tests::RedisServer;
use watchdog_types::FleetShares;

use super::super::figures::Figures;
use super::server;
use super::simulated_host::{SimulatedHost, USERS};
use crate::quantile::median;

const HOSTS: usize = 1_000;
const TTL: Duration = Duration::from_secs(15);
const THREADS: usize = 8;

pub(super) fn run(quick: bool, figures: &mut Figures) -> Result<()> {
    let span = if quick { TTL / 3 } else { TTL };
    println!("fleet: {HOSTS} hosts renew every {:?}, for {span:?}", TTL / 3);
    let server = server()?;
    let hosts = (0..HOSTS).map(|number| SimulatedHost::join(&server, number, TTL, 2_000));
    let mut hosts: Vec<SimulatedHost> = hosts.collect::<Result<_>>().context("joining the hosts")?;
    hosts[0].wait_for_grants()?;
    for host in &mut hosts {
        host.restate()?;
        host.ask()?.ok().context("a place")?;
        host.begin()?;
    }
    // As after each renewal of a fleet that has been up for one TTL.
    let shares = shares(&mut hosts[0])?.pools.len();
    ensure!(shares == USERS + 1, "the store states {shares} shares");
    let idle = share_of_a_core(&server, Duration::from_secs(2), || Ok(()))?;
    let busy = share_of_a_core(&server, span, || renew(&mut hosts, span))?;
    figures.info("fleet: the server with nothing to do", format!("{idle:.1} % of a core"));
    figures.at_most(format!("fleet: {HOSTS} hosts renewing, {shares} shares each"), 5.0, busy, 0.0, "% of a core");
    let mut times = Vec::new();
    for _ in 0..20 {
        let started = Instant::now();
        let view = hosts[0].store.view()?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
        ensure!(view.hosts.len() == HOSTS, "{} hosts in the view", view.hosts.len());
        ensure!(view.pools.iter().any(|pool| pool.held as usize == HOSTS), "{:?}", view.pools.first());
    }
    figures.at_most(format!("fleet: view of {HOSTS} hosts"), 200.0, median(&times), 0.0, "ms");
    Ok(())
}

fn shares(host: &mut SimulatedHost) -> Result<FleetShares> {
    match host.store.restate(&host.row)? {
        Restated::Done { shares, .. } => Ok(shares),
        other => bail!("{other:?}"),
    }
}

/// Each host once in a third of the TTL, evenly.
fn renew(hosts: &mut [SimulatedHost], span: Duration) -> Result<()> {
    let share = HOSTS / THREADS;
    let pace = TTL / 3 / u32::try_from(share).context("a number of hosts")?;
    let end = Instant::now() + span;
    thread::scope(|scope| {
        let threads: Vec<_> = hosts
            .chunks_mut(share)
            .map(|hosts| {
                scope.spawn(move || {
                    let mut next = Instant::now();
                    while next < end {
                        for host in &mut *hosts {
                            thread::sleep(next.saturating_duration_since(Instant::now()));
                            host.restate()?;
                            next += pace;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a panic"))?)
    })
}

/// CPU time of the server while the work is done and until `at_least` has passed, in percent of one core.
fn share_of_a_core(server: &RedisServer, at_least: Duration, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let (before, started) = (cpu(server)?, Instant::now());
    work()?;
    thread::sleep(at_least.saturating_sub(started.elapsed()));
    Ok((cpu(server)? - before) / started.elapsed().as_secs_f64() * 100.0)
}

/// Seconds, of all threads. The main thread's would lack the writes of the append-only file.
fn cpu(server: &RedisServer) -> Result<f64> {
    let path = format!("/proc/{}/stat", server.pid());
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| fields.get(field).and_then(|ticks| ticks.parse::<f64>().ok());
    // The fields 14 and 15 of proc_pid_stat(5); the first behind the name is field 3.
    Ok(ticks(11).zip(ticks(12)).map(|(user, system)| user + system).with_context(|| format!("{path}: {text}"))? / 100.0)
}
