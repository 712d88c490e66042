//! What the daemon costs while nothing happens: 1,000 tracked processes that sleep.

use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::daemon::Daemon;
use super::figures::Figures;
use super::stage::{As, Stage};
use crate::quantile::median;

const SLEEPERS: usize = 1_000;

/// Measures memory, CPU at rest, and the CPU of a scrape and of a tree.
pub(super) fn run(stage: &Stage, quick: bool, figures: &mut Figures) -> Result<()> {
    let (settle, rest) = if quick { (5, 10) } else { (10, 30) };
    let daemon = Daemon::start(stage)?;
    println!("idle: {SLEEPERS} sleeping processes below an agent; ready after {:.0?}", daemon.ready_after);
    println!("  without them: {}", memory(&daemon)?);
    let count = SLEEPERS.to_string();
    let mut worker =
        stage.worker(As::Agent, &["sleepers", &count]).stdin(Stdio::piped()).spawn().context("starting the worker")?;
    let deadline = Instant::now() + Duration::from_secs(30);
    while processes(&daemon)? <= SLEEPERS {
        ensure!(Instant::now() < deadline, "the daemon knows {} processes only", processes(&daemon)?);
        thread::sleep(Duration::from_millis(100));
    }
    thread::sleep(Duration::from_secs(settle));
    println!("  with them:    {}", memory(&daemon)?);
    at_rest(&daemon, Duration::from_secs(rest), figures)?;

    let scrape = cpu_of(&daemon, 20, || daemon.scrape().map(drop))?;
    let tree = cpu_of(&daemon, 5, || daemon.tree().map(drop))?;
    figures.at_most("idle: CPU of a scrape", 20.0, scrape, 0.0, "ms");
    figures.told("idle: CPU of GET /v1/tree", format!("{tree:.1} ms"));
    println!("  after scrapes and trees: {}", memory(&daemon)?);
    #[expect(clippy::cast_precision_loss, reason = "some thousand KiB")]
    let rss = daemon.memory_kib("VmRSS")? as f64 / 1024.0;
    figures.at_most("idle: RSS", 12.0, rss, 0.0, "MiB");
    figures.told("idle: of which anonymous", format!("{} KiB", daemon.memory_kib("RssAnon")?));
    drop(worker.stdin.take());
    worker.wait().context("waiting for the worker")?;
    Ok(())
}

fn processes(daemon: &Daemon) -> Result<usize> {
    Ok(daemon.tree()?.sessions.iter().map(|session| session.processes.len()).sum())
}

fn memory(daemon: &Daemon) -> Result<String> {
    let [rss, anon, file, shmem] = ["VmRSS", "RssAnon", "RssFile", "RssShmem"].map(|field| daemon.memory_kib(field));
    Ok(format!("RSS {} KiB: anonymous {}, file {}, shared {}", rss?, anon?, file?, shmem?))
}

/// CPU per second while nobody asks anything.
fn at_rest(daemon: &Daemon, rest: Duration, figures: &mut Figures) -> Result<()> {
    let (before, began) = (daemon.cpu_by_thread()?, Instant::now());
    thread::sleep(rest);
    let (after, took) = (daemon.cpu_by_thread()?, began.elapsed().as_secs_f64());
    let mut all = 0.0;
    for (thread, cpu) in after {
        let spent = cpu.saturating_sub(before.get(&thread).copied().unwrap_or_default());
        let per_second = spent.as_secs_f64() * 1e3 / took;
        all += per_second;
        println!("  at rest, thread {thread:<10} {per_second:.3} ms/s");
    }
    figures.at_most("idle: CPU at rest", 1.0, all, 0.0, "ms/s");
    Ok(())
}

/// The median CPU time of the daemon, in milliseconds, while something is asked of it. What it does at rest meanwhile is
/// in it.
fn cpu_of(daemon: &Daemon, times: u32, mut ask: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut spent = Vec::new();
    for _ in 0..times {
        let before = daemon.cpu()?;
        ask()?;
        spent.push((daemon.cpu()? - before).as_secs_f64() * 1e3);
        thread::sleep(Duration::from_millis(100));
    }
    Ok(median(&spent))
}
