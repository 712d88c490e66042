//! R2: idle agents hold most of the memory, and one more launch needs as much.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use watchdog_tests::{MIB, ProcessKey, Stage, poll, swapped_bytes};

use crate::guard::ScenarioGuard;
use crate::machine::{self, CompressedSwap};
use crate::report::ScenarioReport;
use crate::watch::DeathWatch;

/// The size of the machine's memory.
const SWAP_MIB: u64 = 2_048;
const AGENTS: usize = 10;
const AGENT_MIB: usize = 100;
const LAUNCH_MIB: usize = 1_000;
/// How long the agents have been idle when the launch is requested.
const REST: Duration = Duration::from_secs(20);
/// A launch that has not started after this time waits for memory.
const START: Duration = Duration::from_secs(60);
/// How long it may take to touch its memory.
const TOUCH: Duration = Duration::from_secs(180);
/// How many agents are used again afterwards; memory would not suffice for all of them.
const USED_AGAIN: usize = 3;
const ANSWER: Duration = Duration::from_secs(120);

/// Stages it; for agent-watchdog with and without reclaim.
pub(crate) fn stage(guard: ScenarioGuard) -> Vec<ScenarioReport> {
    match guard {
        ScenarioGuard::Ours => vec![launch(guard, "off"), launch(guard, "pressure")],
        ScenarioGuard::Earlyoom | ScenarioGuard::Nohang => vec![launch(guard, "")],
    }
}

fn launch(guard: ScenarioGuard, mode: &str) -> ScenarioReport {
    let _swap = CompressedSwap::new(SWAP_MIB);
    let mut stage = Stage::new();
    let guarding = guard.start(&stage, &format!("[reclaim]\nmode = \"{mode}\"\nidle = \"2s\"\n"));
    let watch = DeathWatch::new();
    let kills = machine::oom_kills();
    let agents: Vec<ProcessKey> = (0..AGENTS).map(|number| idle_agent(&mut stage, number)).collect();
    agents.iter().for_each(|agent| watch.follow("idle agent", *agent));
    let resident = answers(stage.directory(), "first");
    std::thread::sleep(REST);
    let left = machine::MachineMemory::now().left_percent();

    let script = format!("report started heap {LAUNCH_MIB} report fed hold");
    let requested = Instant::now();
    let _ = match guarding.ours() {
        Some(daemon) => stage.execute(daemon.launch(&stage, &["--memory", &format!("{LAUNCH_MIB}MiB")], &script)),
        None => stage.agent(&script),
    };
    let reported = |name: &str, within| {
        let process = poll(within, || stage.reports().remove(name)?.first().copied())?;
        Some((process, requested.elapsed()))
    };
    let started = reported("started", START);
    if let Some((process, _)) = started {
        watch.follow("launch", process);
    }
    let fed = started.and_then(|_| reported("fed", TOUCH));
    let swapped: u64 = agents.iter().filter_map(|agent| swapped_bytes(agent.pid)).sum();
    let back = answers(stage.directory(), "second");

    let deaths = watch.deaths();
    let mut report = ScenarioReport::new("R2", guard, &deaths);
    if mode == "off" {
        report.variant("reclaim off");
    }
    let after = |at: Option<(ProcessKey, Duration)>| at.map(|(_, after)| format!("{:.1} s", after.as_secs_f64()));
    report.took = match (after(started), after(fed)) {
        (None, _) => format!("not started in {} s", START.as_secs()),
        (Some(started), None) => format!("start {started}, never has its memory"),
        (Some(started), Some(fed)) => format!("start {started}, memory {fed}"),
    };
    let alive = AGENTS - watch.dead("idle agent");
    report.lives = format!("{alive} of {AGENTS} idle agents");
    report.paged_out = format!("{} MiB", swapped / MIB);
    report.answer = back.iter().max().map_or_else(String::new, |slowest| format!("{:.2} s", slowest.as_secs_f64()));
    // Without reclaim the launch waits, as configured.
    report.win = deaths.is_empty() && back.len() == USED_AGAIN && (mode == "off" || fed.is_some());
    report.notes.push(format!(
        "{} answers of {USED_AGAIN} agents that read all their memory: {}; before, while resident: {}",
        back.len(),
        in_seconds(&back),
        in_seconds(&resident)
    ));
    report.notes.push(format!(
        "{left:.0} % available when the launch was requested, {:.0} % at the least; the kernel killed {}",
        watch.least_left(),
        machine::oom_kills() - kills
    ));
    report.notes.extend(guarding.words());
    report.notes.extend(guarding.ours().map(machine::reclaimed));
    report
}

/// An agent that does nothing until it is used: twice it reads all its memory.
fn idle_agent(stage: &mut Stage, number: usize) -> ProcessKey {
    let name = format!("agent-{number}");
    let [first, second] = ["first", "second"].map(|time| {
        stage.fifo(&format!("{time}-{number}"));
        format!("await-writer {time}-{number} read mark {time}-answer-{number}")
    });
    stage.agent(&format!("heap {AGENT_MIB} report {name} {first} {second} hold"));
    stage.reported(&name)
}

/// How long each of the first agents takes to read its memory, one after another; those that answer.
fn answers(directory: &Path, time: &str) -> Vec<Duration> {
    let answer = |number| {
        let began = Instant::now();
        // Without a reader, an agent that was killed, the open fails.
        let fifo = directory.join(format!("{time}-{number}"));
        File::options().write(true).custom_flags(libc::O_NONBLOCK).open(fifo).ok()?;
        let mark = directory.join(format!("{time}-answer-{number}"));
        poll(ANSWER, || mark.exists().then(|| began.elapsed())).filter(|took| *took <= ANSWER)
    };
    (0..USED_AGAIN).filter_map(answer).collect()
}

fn in_seconds(times: &[Duration]) -> String {
    let times: Vec<String> = times.iter().map(|time| format!("{:.2}", time.as_secs_f64())).collect();
    if times.is_empty() { "none".to_owned() } else { format!("{} s", times.join(", ")) }
}
