//! Overhead of a launch: start of a launched command against one that is run directly.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::super::daemon::BenchDaemon;
use super::super::figures::Figures;
use super::super::stage::{As, BenchStage};
use super::super::worker::monotonic;
use super::launches::began;
use super::{millis, with_places};
use crate::quantile::{median, quantile};

/// Runs the command both ways in every round, in alternating order.
pub(super) fn run(stage: &BenchStage, quick: bool, figures: &mut Figures) -> Result<()> {
    let rounds = if quick { 50 } else { 1_000 };
    let daemon = BenchDaemon::configured(stage, &with_places(10))?;
    println!("gate: launch overhead, {rounds} rounds: fork to main of a command, direct and launched");
    let worker = stage.worker(As::Stranger, &["moment"]);
    let (mut alone, mut launched) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut run = || time(Command::new(worker.get_program())).map(|time| alone.push(millis(time)));
        let mut launch = || {
            let mut launcher = daemon.launcher()?;
            launcher.arg(worker.get_program());
            time(launcher).map(|time| launched.push(millis(time)))
        };
        if round % 2 == 0 {
            run()?;
            launch()?;
        } else {
            launch()?;
            run()?;
        }
    }
    for (share, name, goal) in [(0.5, "p50", 3.0), (0.99, "p99", 10.0)] {
        let (alone, launched) = (quantile(&alone, share), quantile(&launched, share));
        figures.info(format!("gate: direct / launched, {name}"), format!("{alone:.2} / {launched:.2} ms"));
        figures.at_most(format!("gate: launch overhead, {name}"), goal, launched - alone, 0.0, "ms");
    }
    let more: Vec<f64> = alone.iter().zip(&launched).map(|(alone, launched)| launched - alone).collect();
    println!("  overhead within a round: {:.2} ms (p99 {:.2})", median(&more), quantile(&more, 0.99));
    Ok(())
}

/// Time from here to the first instruction of the command's main.
pub(in super::super) fn time(mut command: Command) -> Result<Duration> {
    command.args(["worker", "moment"]).stdin(Stdio::null()).stderr(Stdio::piped());
    let before = monotonic();
    let output = command.output().context("running the worker")?;
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    let line = String::from_utf8_lossy(&output.stdout);
    let (_, at) = began(line.trim()).with_context(|| format!("unexpected output of the worker: {line:?}"))?;
    Ok(at.saturating_sub(before))
}
