//! How much later a command begins that is launched, than one that is just run.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::super::daemon::Daemon;
use super::super::figures::Figures;
use super::super::stage::{As, Stage};
use super::super::worker::monotonic;
use super::launches::began;
use super::{millis, with_places};
use crate::quantile::{median, quantile};

/// Runs the same command both ways in every round, every other round the other way round.
pub(super) fn run(stage: &Stage, quick: bool, figures: &mut Figures) -> Result<()> {
    let rounds = if quick { 50 } else { 1_000 };
    let daemon = Daemon::configured(stage, &with_places(10))?;
    println!("gate: {rounds} rounds of a command that is run, and launched: from the fork to its main");
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
        figures.told(format!("gate: run / launched, {name}"), format!("{alone:.2} / {launched:.2} ms"));
        figures.at_most(format!("gate: a launch begins later by, {name}"), goal, launched - alone, 0.0, "ms");
    }
    let more: Vec<f64> = alone.iter().zip(&launched).map(|(alone, launched)| launched - alone).collect();
    println!("  of the same round: later by {:.2} ms (p99 {:.2})", median(&more), quantile(&more, 0.99));
    Ok(())
}

/// From here to the first thing that the command does.
fn time(mut command: Command) -> Result<Duration> {
    command.args(["bench-worker", "moment"]).stdin(Stdio::null()).stderr(Stdio::piped());
    let before = monotonic();
    let output = command.output().context("running the worker")?;
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    let line = String::from_utf8_lossy(&output.stdout);
    let (_, at) = began(line.trim()).with_context(|| format!("the worker said {line:?}"))?;
    Ok(at.saturating_sub(before))
}
