//! Memory and CPU of the daemon over a long time: an agent with helpers starts 50 short processes a second.
//!
//! CPU time of all threads of the daemon, per started process. CPU time at rest is measured first and printed, not
//! subtracted.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::daemon::BenchDaemon;
use super::figures::Figures;
use super::stage::BenchStage;
use super::storm::Storm;

const PER_SECOND: u32 = 50;
const HELPERS: u32 = 10;
/// Duration of the measurement at rest.
const REST: Duration = Duration::from_secs(20);
/// Rows of memory between the first and the last.
const ROWS: u32 = 30;

pub(super) fn run(stage: &BenchStage, minutes: u32, figures: &mut Figures) -> Result<()> {
    let daemon = BenchDaemon::start(stage)?;
    println!("soak: {PER_SECOND} short processes a second for {minutes} min below an agent with {HELPERS} helpers");
    println!("  at rest: {:.0} µs of CPU a second", at_rest(&daemon)?);
    row(&daemon, 0)?;
    let seconds = minutes * 60;
    let began = Instant::now();
    let work = ["storm", &PER_SECOND.to_string(), &seconds.to_string(), "--helpers", &HELPERS.to_string()];
    let storm = Storm::begin(stage, &daemon, &work)?;
    let every = minutes.div_ceil(ROWS);
    for minute in (every..minutes).step_by(every as usize) {
        thread::sleep(Duration::from_secs(60 * u64::from(minute)).saturating_sub(began.elapsed()));
        row(&daemon, minute)?;
    }
    let outcome = storm.end(0)?;
    row(&daemon, minutes)?;
    println!("  {outcome}");
    figures.at_most(format!("soak: RSS after {minutes} min"), 16.0, mebibytes(&daemon, "VmRSS")?, 0.0, "MiB");
    figures.info("soak: of which anonymous", format!("{:.1} MiB", mebibytes(&daemon, "RssAnon")?));
    figures.at_most("soak: daemon's CPU for each process, with rest", 100.0, outcome.micros_per_process(), 0.0, "µs");
    figures.holds("soak: lost", "0", outcome.lost.to_string(), outcome.lost == 0);
    outcome.judge_events("soak", figures);
    Ok(())
}

/// Microseconds of CPU time per second without load.
fn at_rest(daemon: &BenchDaemon) -> Result<f64> {
    let (before, began) = (daemon.cpu()?, Instant::now());
    thread::sleep(REST);
    let spent = daemon.cpu()?.saturating_sub(before);
    Ok(spent.as_secs_f64() * 1e6 / began.elapsed().as_secs_f64())
}

fn row(daemon: &BenchDaemon, minute: u32) -> Result<()> {
    let threads = daemon.cpu_by_thread()?;
    let millis = |(name, cpu): (&String, &Duration)| format!("{name} {}", cpu.as_millis());
    let threads: Vec<String> = threads.iter().map(millis).collect();
    let [rss, anon] = ["VmRSS", "RssAnon"].map(|field| mebibytes(daemon, field));
    println!("  {minute:>4} min: RSS {:.1} MiB, anonymous {:.1}; ms of CPU: {}", rss?, anon?, threads.join(", "));
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "some thousand KiB")]
fn mebibytes(daemon: &BenchDaemon, field: &str) -> Result<f64> {
    Ok(daemon.memory_kib(field)? as f64 / 1024.0)
}
