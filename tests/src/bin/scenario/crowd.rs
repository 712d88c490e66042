//! R1: how many idle agents a small machine holds with compressed swap.

use std::time::{Duration, Instant};

use watchdog_tests::{Daemon, ProcessKey, Stage, poll};

use crate::guard::ScenarioGuard;
use crate::machine::{self, CompressedSwap};
use crate::report::ScenarioReport;
use crate::watch::{DeathWatch, ObservedDeath};

/// The machine has 2 GiB, and swap of this size.
const SWAP_MIB: u64 = 3_072;
/// What an idle agent holds: as much as `claude mcp serve`, and as compressible as the heap of node.
const AGENT_MIB: usize = 100;
const MOST: usize = 45;
/// An agent that has not started after this time waits for memory.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two agents.
const PAUSE: Duration = Duration::from_millis(1_500);

const GATE: &str = "[gate]\nexpected_memory = \"100MiB\"\n[actions]\nenforce = true\n";

/// What a crowd came to.
struct CrowdSize {
    /// Agents that started before one had to wait, or died.
    started: usize,
    /// The longest time that one of them took to start.
    slowest: Duration,
    deaths: Vec<ObservedDeath>,
    words: Vec<String>,
    /// Free memory at the least, in per cent.
    least_left: f64,
    oom_kills: u64,
}

/// Stages it.
pub(crate) fn stage(guard: ScenarioGuard) -> ScenarioReport {
    let without = (guard == ScenarioGuard::Ours).then(|| gather(guard, "off"));
    let with = gather(guard, "pressure");
    let mut report = ScenarioReport::new("R1", guard, &with.deaths);
    report.took = format!("slowest start {:.1} s", with.slowest.as_secs_f64());
    report.lives = match &without {
        Some(without) => format!("{} idle agents; {} without", with.started, without.started),
        None => format!("{} idle agents", with.started),
    };
    report.win =
        without.as_ref().is_none_or(|without| with.started >= 2 * without.started && without.deaths.is_empty())
            && with.deaths.is_empty();
    for (mode, crowd) in without.iter().map(|crowd| ("without reclaim: ", crowd)).chain([("", &with)]) {
        report.notes.push(format!(
            "{mode}{} agents of {AGENT_MIB} MiB, {:.0} % available at the least; {} died; the kernel killed {}",
            crowd.started,
            crowd.least_left,
            crowd.deaths.len(),
            crowd.oom_kills
        ));
    }
    report.notes.extend(with.words);
    report
}

/// Starts idle agents one after another, until one has to wait or dies.
fn gather(guard: ScenarioGuard, mode: &str) -> CrowdSize {
    let _swap = CompressedSwap::new(SWAP_MIB);
    let mut stage = Stage::new();
    let guarding = guard.start(&stage, &format!("{GATE}[reclaim]\nmode = \"{mode}\"\nidle = \"2s\"\n"));
    let watch = DeathWatch::new();
    let kills = machine::oom_kills();
    let (mut started, mut slowest) = (0, Duration::ZERO);
    while started < MOST && watch.deaths().is_empty() {
        let name = format!("agent-{started}");
        let script = format!("heap {AGENT_MIB} report {name} hold");
        let began = Instant::now();
        let Some(agent) = start(&mut stage, guarding.ours(), &name, &script) else { break };
        slowest = slowest.max(began.elapsed());
        watch.follow("idle agent", agent);
        started += 1;
        std::thread::sleep(PAUSE);
    }
    // One that was killed makes room for nothing.
    let deaths = watch.deaths();
    let mut words = guarding.words();
    words.extend(guarding.ours().map(machine::reclaimed));
    CrowdSize {
        started: started - deaths.len().min(started),
        slowest,
        deaths,
        words,
        least_left: watch.least_left(),
        oom_kills: machine::oom_kills() - kills,
    }
}

/// `None` when it has to wait.
fn start(stage: &mut Stage, daemon: Option<&Daemon>, name: &str, script: &str) -> Option<ProcessKey> {
    match daemon {
        Some(daemon) => drop(stage.execute(daemon.launch(stage, &[], script))),
        None => drop(stage.agent(script)),
    }
    poll(PATIENCE, || stage.reports().remove(name)?.first().copied())
}
