//! Run time of each kernel program, as counted by the kernel.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use watchdog_kernel::Tracer;

use super::figures::Figures;
use super::stage::{As, BenchStage};
use super::watch::AttachedPrograms;

const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// Runs the same work untracked and tracked, and prints nanoseconds per run. The programs run for all processes of the host,
/// so other activity is included.
pub(super) fn run(stage: &BenchStage, quick: bool, figures: &mut Figures) -> Result<()> {
    let _counting = Counting::on()?;
    let mut programs = AttachedPrograms::load(stage)?;
    programs.tracer.set_close_watch(true)?;
    let spawns = if quick { "200" } else { "2000" };
    println!("programs: nanoseconds per run by kernel.bpf_stats_enabled, which adds about 20 ns");
    println!(
        "  {:<16} {:>12} {:>12} {:>12} {:>12} {:>9} {:>13}",
        "", "untracked", "runs", "tracked", "runs", "missed", "instructions"
    );
    let mut spent = Vec::new();
    for role in [As::Stranger, As::Agent] {
        let before = counts(&programs.tracer);
        stage.work(role, &["spawns", spawns, "/bin/true"])?;
        stage.work(role, &["forks", spawns])?;
        stage.work(role, &["faults", "20"])?;
        for _ in 0..100 {
            programs.tracer.sample()?;
        }
        spent.push(since(before, counts(&programs.tracer)));
    }
    for stats in programs.tracer.program_stats() {
        let [untracked, tracked] =
            [0, 1].map(|phase| spent.get(phase).and_then(|phase| phase.get(&stats.name)).copied());
        let [untracked, tracked] = [untracked, tracked].map(Option::unwrap_or_default);
        if untracked.runs + tracked.runs == 0 {
            continue;
        }
        println!(
            "  {:<16} {:>12.0} {:>12} {:>12.0} {:>12} {:>9} {:>13}",
            stats.name,
            untracked.of_one(),
            untracked.runs,
            tracked.of_one(),
            tracked.runs,
            stats.missed,
            stats.verified_instructions
        );
        let ns = format!("{:.0} / {:.0} ns", untracked.of_one(), tracked.of_one());
        figures.info(format!("program {}: a run, untracked / tracked", stats.name), ns);
    }
    Ok(())
}

#[derive(Clone, Copy, Default)]
struct Spent {
    runs: u64,
    nanos: u64,
}

impl Spent {
    #[expect(clippy::cast_precision_loss, reason = "a figure for display")]
    fn of_one(self) -> f64 {
        self.nanos as f64 / self.runs.max(1) as f64
    }
}

fn counts(tracer: &Tracer) -> BTreeMap<String, Spent> {
    let stats = tracer.program_stats().into_iter();
    stats.map(|stats| (stats.name, Spent { runs: stats.run_count, nanos: stats.run_time_ns })).collect()
}

fn since(before: BTreeMap<String, Spent>, mut after: BTreeMap<String, Spent>) -> BTreeMap<String, Spent> {
    for (name, before) in before {
        if let Some(after) = after.get_mut(&name) {
            *after = Spent { runs: after.runs - before.runs, nanos: after.nanos - before.nanos };
        }
    }
    after
}

/// Enables the kernel's counters until dropped.
struct Counting {
    before: String,
}

impl Counting {
    fn on() -> Result<Self> {
        let before = fs::read_to_string(SWITCH).with_context(|| format!("reading {SWITCH}"))?;
        fs::write(SWITCH, "1").with_context(|| format!("writing {SWITCH}"))?;
        Ok(Self { before })
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        if let Err(error) = fs::write(SWITCH, self.before.trim()) {
            eprintln!("{SWITCH} could not be set back to {}: {error}", self.before.trim());
        }
    }
}
