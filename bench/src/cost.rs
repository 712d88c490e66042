//! Slowdown of work while the daemon or its programs run.

use std::path::Path;

use anyhow::{Context, Result};

use super::figures::Figures;
use super::sample::growth;
use super::stage::{As, BenchStage};
use crate::quantile::{median, quantile};

/// A workload with its goals in per cent.
pub(super) struct Load {
    pub(super) name: &'static str,
    /// The worker's arguments.
    pub(super) work: Vec<String>,
    pub(super) untracked_goal: f64,
    pub(super) tracked_goal: f64,
}

/// One turn's times, round by round, in nanoseconds.
#[derive(Default)]
struct CostTimes {
    wall: Vec<f64>,
    cpu: Vec<f64>,
}

#[derive(Default)]
struct Measured {
    off: CostTimes,
    untracked: CostTimes,
    tracked: CostTimes,
}

/// Runs every load in every round with nothing on, then untracked and tracked, while the value returned by `on` lives.
/// Alternates the order of the rounds.
pub(super) fn compare<T>(
    stage: &BenchStage,
    what: &str,
    loads: &[Load],
    rounds: u32,
    mut on: impl FnMut() -> Result<T>,
    figures: &mut Figures,
) -> Result<()> {
    let mut all: Vec<Measured> = loads.iter().map(|_| Measured::default()).collect();
    for round in 0..rounds {
        let off_first = round % 2 == 0;
        if off_first {
            measure_off(stage, loads, &mut all)?;
        }
        let watching = on()?;
        for (load, measured) in loads.iter().zip(&mut all) {
            let mut roles = [(As::Stranger, &mut measured.untracked), (As::Agent, &mut measured.tracked)];
            if !off_first {
                roles.reverse();
            }
            for (role, times) in roles {
                times.take(stage, role, &load.work)?;
            }
        }
        drop(watching);
        if !off_first {
            measure_off(stage, loads, &mut all)?;
        }
    }
    println!("{what}: {rounds} rounds; wall and CPU time of one turn in µs, median (p10); growth of the CPU time");
    println!("  {:<16} {:<10} {:>20} {:>20} {:>16} {:>8}", "", "", "wall", "cpu", "growth ± 2 s.e.", "p10");
    for (load, measured) in loads.iter().zip(&all) {
        report(what, load, measured, figures);
    }
    Ok(())
}

fn measure_off(stage: &BenchStage, loads: &[Load], all: &mut [Measured]) -> Result<()> {
    for (load, measured) in loads.iter().zip(all) {
        measured.off.take(stage, As::Stranger, &load.work)?;
    }
    Ok(())
}

impl CostTimes {
    fn take(&mut self, stage: &BenchStage, role: As, work: &[String]) -> Result<()> {
        let work: Vec<&Path> = work.iter().map(Path::new).collect();
        let line = stage.work(role, &work)?;
        let mut numbers = line.split_whitespace().map(str::parse);
        let mut next =
            || numbers.next().context("missing output of the worker")?.context("invalid output of the worker");
        self.wall.push(next()?);
        self.cpu.push(next()?);
        Ok(())
    }
}

fn report(what: &str, load: &Load, measured: &Measured, figures: &mut Figures) {
    let Measured { off, untracked, tracked } = measured;
    let micros = |times: &[f64]| format!("{:.2} ({:.2})", median(times) / 1e3, quantile(times, 0.1) / 1e3);
    println!("  {:<16} {:<10} {:>20} {:>20}", load.name, "off", micros(&off.wall), micros(&off.cpu));
    for (state, times, goal) in [("untracked", untracked, load.untracked_goal), ("tracked", tracked, load.tracked_goal)]
    {
        let cpu = growth(&off.cpu, &times.cpu);
        println!(
            "  {:<16} {:<10} {:>20} {:>20} {:>9.2} ± {:.2} % {:>6.2} %",
            "",
            state,
            micros(&times.wall),
            micros(&times.cpu),
            cpu.per_cent,
            cpu.uncertainty,
            cpu.p10_per_cent
        );
        figures.at_most(format!("{what}: {}, {state}", load.name), goal, cpu.per_cent, cpu.uncertainty, "%");
    }
}
