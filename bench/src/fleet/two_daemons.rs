//! Two real daemons of one fleet beside one without: memory, the time of a launch, and launches over the limit.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::super::daemon::BenchDaemon;
use super::super::figures::Figures;
use super::super::gate::launch_time;
use super::super::stage::{As, BenchStage};
use super::server;
use crate::quantile::{median, quantile};

const PLACES: usize = 4;
/// Of each daemon.
const AT_ONCE: usize = 20;
const GATE: &str = "[gate]\nexpected_memory = \"1MiB\"\n";
const JOINING: Duration = Duration::from_secs(30);

pub(super) fn run(stage: &BenchStage, quick: bool, figures: &mut Figures) -> Result<()> {
    let (rounds, settle) = if quick { (50, 5) } else { (500, 20) };
    let server = server()?;
    let without = BenchDaemon::configured(stage, GATE)?;
    let join = |host: &str| {
        let url = server.url();
        let fleet = format!("[fleet]\nstore = \"{url}\"\nhost = \"{host}\"\nttl = \"3s\"\nmax_sessions = {PLACES}\n");
        BenchDaemon::configured(stage, &format!("{GATE}{fleet}"))
    };
    let fleet = [join("a")?, join("b")?];
    for daemon in &fleet {
        both_are_up(daemon)?;
    }
    println!("fleet: two daemons of one fleet and one without, {rounds} launches on each, in turn");
    launches(stage, &without, &fleet[0], rounds, figures)?;
    thread::sleep(Duration::from_secs(settle));
    memory(&without, &fleet[0], figures)?;
    let most = most_at_once(&fleet)?;
    figures.holds(
        format!("fleet: most at once, {} launches, {PLACES} places", AT_ONCE * 2),
        &format!("= {PLACES}"),
        most.to_string(),
        most == PLACES,
    );
    Ok(())
}

fn both_are_up(daemon: &BenchDaemon) -> Result<()> {
    let deadline = Instant::now() + JOINING;
    loop {
        let fleet = daemon.status()?.fleet.context("the daemon belongs to no fleet")?;
        if fleet.hosts == 2 && fleet.problem.is_none() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "timeout: {fleet:?}");
        thread::sleep(Duration::from_millis(100));
    }
}

fn launches(
    stage: &BenchStage,
    without: &BenchDaemon,
    with: &BenchDaemon,
    rounds: usize,
    figures: &mut Figures,
) -> Result<()> {
    let worker = stage.worker(As::Stranger, &["moment"]);
    let launch = |daemon: &BenchDaemon| {
        let mut launcher = daemon.launcher()?;
        launcher.arg(worker.get_program());
        Ok::<f64, anyhow::Error>(launch_time(launcher)?.as_secs_f64() * 1e3)
    };
    let (mut local, mut shared) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        if round % 2 == 0 {
            local.push(launch(without)?);
            shared.push(launch(with)?);
        } else {
            shared.push(launch(with)?);
            local.push(launch(without)?);
        }
    }
    for (share, name) in [(0.5, "p50"), (0.99, "p99")] {
        let (local, shared) = (quantile(&local, share), quantile(&shared, share));
        figures.info(format!("fleet: launch without / with, {name}"), format!("{local:.2} / {shared:.2} ms"));
    }
    figures.at_most("fleet: a launch is dearer by, p50", 3.0, median(&shared) - median(&local), 0.0, "ms");
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "some thousand KiB")]
fn memory(without: &BenchDaemon, with: &BenchDaemon, figures: &mut Figures) -> Result<()> {
    for field in ["VmRSS", "RssAnon"] {
        let [off, on] = [without.memory_kib(field)?, with.memory_kib(field)?];
        figures.info(format!("fleet: {field} of the daemon, off / on"), format!("{off} / {on} KiB"));
        if field == "VmRSS" {
            figures.at_most("fleet: memory of the daemon", 1.0, (on as f64 - off as f64) / 1024.0, 0.0, "MiB more");
        }
    }
    let threads = without.cpu_by_thread()?.keys().filter(|name| name.starts_with("fleet")).count();
    figures.holds("fleet: threads of the daemon when off", "= 0", threads.to_string(), threads == 0);
    Ok(())
}

/// The most commands that ran at once, by the times that they print as their first and their last step.
fn most_at_once(fleet: &[BenchDaemon; 2]) -> Result<usize> {
    let script = "date +%s%N; sleep 0.05; date +%s%N";
    let mut running = Vec::new();
    for daemon in fleet.iter().cycle().take(AT_ONCE * 2) {
        let mut launcher: Command = daemon.launcher()?;
        launcher.args(["sh", "-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        running.push(launcher.spawn().context("starting a launch")?);
    }
    let mut changes: Vec<(u64, isize)> = Vec::new();
    for launch in running {
        let output = launch.wait_with_output().context("waiting for a launch")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let times: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        let [begun, ended] = times[..] else { anyhow::bail!("a launch printed {text:?}: {}", output.status) };
        changes.extend([(begun, 1), (ended, -1)]);
    }
    changes.sort_unstable();
    let counts = changes.iter().scan(0_isize, |now, (_, change)| {
        *now += change;
        Some(*now)
    });
    Ok(counts.max().unwrap_or(0).unsigned_abs())
}
