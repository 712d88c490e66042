//! Slowdown of ordinary work by the kernel programs alone and by the whole daemon, without close watch.

use anyhow::Result;

use super::cost::{Load, compare};
use super::daemon::BenchDaemon;
use super::figures::Figures;
use super::stage::BenchStage;
use super::watch::AttachedPrograms;

pub(super) fn run(stage: &BenchStage, quick: bool, figures: &mut Figures) -> Result<()> {
    let (program_rounds, daemon_rounds) = if quick { (4, 2) } else { (60, 30) };
    let loads = loads();
    println!("overhead: CPU time of the worker and its children, each round off and on, in turns first and last");
    compare(stage, "programs", &loads, program_rounds, || AttachedPrograms::load(stage), figures)?;
    compare(stage, "daemon", &loads, daemon_rounds, || BenchDaemon::start(stage), figures)
}

fn loads() -> Vec<Load> {
    let load = |name, work: &[&str], tracked_goal| Load {
        name,
        work: work.iter().map(|word| (*word).to_owned()).collect(),
        untracked_goal: 1.0,
        tracked_goal,
    };
    vec![
        load("fault", &["faults", "10"], 1.0),
        load("fork+wait", &["forks", "300"], 1.0),
        load("fork+exec+wait", &["spawns", "100", "/bin/true"], 3.0),
        load("node -e 1", &["spawns", "2", "node", "-e", "1"], 1.0),
        load("gcc -O2 -c", &["spawns", "2", "gcc", "-O2", "-c", "small.c", "-o", "/dev/null"], 1.0),
    ]
}
