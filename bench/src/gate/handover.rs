//! Time from the end of a session to the start of the next queued launch.

use std::process::Stdio;

use anyhow::{Result, bail};

use super::super::daemon::BenchDaemon;
use super::super::figures::Figures;
use super::super::stage::BenchStage;
use super::launches::{Launches, Said};
use super::{millis, with_places};
use crate::quantile::{median, quantile};

const WAITING: usize = 5;

/// Kills the running session in each round.
pub(super) fn run(stage: &BenchStage, quick: bool, figures: &mut Figures) -> Result<()> {
    let rounds = if quick { 20 } else { 300 };
    println!(
        "gate: handover, {rounds} rounds with {WAITING} queued launches: kill of the running session to start of the next"
    );
    let daemon = BenchDaemon::configured(stage, &with_places(1))?;
    let mut launches = Launches::new(stage, &daemon)?;
    let mut runs = settled(&mut launches, WAITING + 1)?;
    let mut times = Vec::new();
    for _ in 0..rounds {
        let killed = launches.kill(runs)?;
        let (began, next) = loop {
            match launches.next()? {
                (at, Said::Began(pid)) => break (at, pid),
                (_, Said::Waits) => {}
                (_, Said::Ready) => bail!("the next launch did not start"),
            }
        };
        times.push(millis(began.saturating_sub(killed)));
        runs = next;
        settled(&mut launches, 1)?;
    }
    let (p50, p99, most) = (median(&times), quantile(&times, 0.99), quantile(&times, 1.0));
    figures.info("gate: handover (kill to next main), p50", format!("{p50:.2} ms"));
    figures.at_most("gate: handover (kill to next main), p99", 50.0, p99, 0.0, "ms");
    figures.info("gate: handover (kill to next main), max", format!("{most:.2} ms"));
    Ok(())
}

/// Starts launches one after the other, and waits until each runs or is queued. Returns the last running pid, or 0.
fn settled(launches: &mut Launches<'_>, count: usize) -> Result<u32> {
    let mut runs = 0;
    for _ in 0..count {
        launches.start(Stdio::null())?;
        loop {
            match launches.next()?.1 {
                Said::Ready => {}
                Said::Waits => break,
                Said::Began(pid) => {
                    runs = pid;
                    break;
                }
            }
        }
    }
    Ok(runs)
}
