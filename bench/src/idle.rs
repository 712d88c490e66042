//! Cost of the daemon at rest, with 1,000 sleeping tracked processes.

use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::daemon::BenchDaemon;
use super::figures::Figures;
use super::stage::{As, BenchStage};
use crate::quantile::median;

const SLEEPERS: usize = 1_000;

/// Measures memory, CPU at rest, and the CPU of a scrape and of a tree.
pub(super) fn run(stage: &BenchStage, quick: bool, figures: &mut Figures) -> Result<()> {
    // Until processes have been idle for two minutes, their activity is read every minute.
    let (settle, rest) = if quick { (5, 10) } else { (130, 60) };
    let (settle, rest) = (Duration::from_secs(settle), Duration::from_secs(rest));
    let daemon = BenchDaemon::start(stage)?;
    println!("idle: {SLEEPERS} sleeping processes below an agent; ready after {:.0?}", daemon.ready_after);
    println!("  without them: {}", memory(&daemon)?);
    let count = SLEEPERS.to_string();
    let mut worker =
        stage.worker(As::Agent, &["sleepers", &count]).stdin(Stdio::piped()).spawn().context("starting the worker")?;
    let deadline = Instant::now() + Duration::from_secs(30);
    while processes(&daemon)? <= SLEEPERS {
        ensure!(Instant::now() < deadline, "timeout: the daemon tracks only {} processes", processes(&daemon)?);
        thread::sleep(Duration::from_millis(100));
    }
    let before = daemon.cpu()?;
    thread::sleep(settle);
    let per_second = (daemon.cpu()? - before).as_secs_f64() * 1e3 / settle.as_secs_f64();
    figures.info(format!("idle: CPU in the first {settle:?}"), format!("{per_second:.1} ms/s"));
    println!("  with them:    {}", memory(&daemon)?);
    at_rest(&daemon, rest, figures)?;

    let scrape = cpu_of(&daemon, 20, || daemon.scrape().map(drop))?;
    let tree = cpu_of(&daemon, 5, || daemon.tree().map(drop))?;
    figures.at_most("idle: CPU of a scrape", 20.0, scrape, 0.0, "ms");
    figures.info("idle: CPU of GET /v1/tree", format!("{tree:.1} ms"));
    println!("  after scrapes and trees: {}", memory(&daemon)?);
    #[expect(clippy::cast_precision_loss, reason = "some thousand KiB")]
    let rss = daemon.memory_kib("VmRSS")? as f64 / 1024.0;
    figures.at_most("idle: RSS", 12.0, rss, 0.0, "MiB");
    figures.info("idle: of which anonymous", format!("{} KiB", daemon.memory_kib("RssAnon")?));
    drop(worker.stdin.take());
    worker.wait().context("waiting for the worker")?;
    Ok(())
}

fn processes(daemon: &BenchDaemon) -> Result<usize> {
    Ok(daemon.tree()?.sessions.iter().map(|session| session.processes.len()).sum())
}

fn memory(daemon: &BenchDaemon) -> Result<String> {
    let [rss, anon, file, shmem] = ["VmRSS", "RssAnon", "RssFile", "RssShmem"].map(|field| daemon.memory_kib(field));
    Ok(format!("RSS {} KiB: anonymous {}, file {}, shared {}", rss?, anon?, file?, shmem?))
}

/// CPU per second without requests.
fn at_rest(daemon: &BenchDaemon, rest: Duration, figures: &mut Figures) -> Result<()> {
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

/// Median CPU time of the daemon per request, in milliseconds, including its work at rest
/// meanwhile.
fn cpu_of(daemon: &BenchDaemon, times: u32, mut ask: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut spent = Vec::new();
    for _ in 0..times {
        let before = daemon.cpu()?;
        ask()?;
        spent.push((daemon.cpu()? - before).as_secs_f64() * 1e3);
        thread::sleep(Duration::from_millis(100));
    }
    Ok(median(&spent))
}
