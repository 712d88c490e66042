//! A1: agents die and leave their helpers, and then a healthy agent needs memory.

use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use watchdog_tests::{Daemon, ProcessKey, Stage, is_alive, poll};

use crate::guard::ScenarioGuard;
use crate::machine;
use crate::report::ScenarioReport;
use crate::watch::DeathWatch;

const AGENTS: usize = 4;
const HELPERS: usize = 20;
/// 20 would leave less than a tenth of a guest's 2 GiB beside the system: then memory runs out before an agent dies.
const MIB_EACH: usize = 18;
const ORPHANS: usize = AGENTS * HELPERS;

const CONFIG: &str = "[orphans]\ngrace = \"2s\"\n[actions]\nenforce = true\n";

/// From the agents' death to the demand.
const QUIET: Duration = Duration::from_secs(20);
/// How long the healthy agent may take to get its memory.
const DEMAND: Duration = Duration::from_secs(90);
/// A finding later than this is a loss.
const FOUND_WITHIN: Duration = Duration::from_secs(1);

/// Stages it.
pub(crate) fn stage(guard: ScenarioGuard) -> ScenarioReport {
    let mut stage = Stage::new();
    let guarding = guard.start(&stage, CONFIG);
    let watch = DeathWatch::new();
    let script = format!("times {HELPERS} [ spawn helper [ anon {MIB_EACH} report orphan hold ] ] hold");
    let agents: Vec<ProcessKey> = (0..AGENTS).map(|_| stage.agent(&script)).collect();
    let orphans = stage.all_reported("orphan", ORPHANS);
    let healthy = stage.agent("spawn helper [ anon 5 report kept hold ] await demand leak 40 15 report fed hold");
    let kept = stage.reported("kept");
    for process in [healthy, kept] {
        machine::set_oom_score_adj(process.pid, 200);
    }
    orphans.iter().for_each(|orphan| watch.follow("orphan", *orphan));
    watch.follow("healthy agent", healthy);
    watch.follow("healthy agent's helper", kept);
    let left = machine::MachineMemory::now().left_percent();

    let killed = Instant::now();
    kill_at_once(&agents);
    let found = guarding.ours().and_then(|daemon| found(daemon, killed));
    poll(Duration::from_secs(60), || (guard != ScenarioGuard::Ours || watch.dead("orphan") == ORPHANS).then_some(()));
    std::thread::sleep(QUIET.saturating_sub(killed.elapsed()));
    let demand = Instant::now();
    stage.mark("demand");
    let fed = poll(DEMAND, || {
        let fed = stage.reports().contains_key("fed");
        (fed || !is_alive(healthy)).then_some(fed && demand.elapsed() <= DEMAND)
    });
    // A guard that has killed once may kill again.
    std::thread::sleep(Duration::from_secs(5));

    let deaths = watch.deaths();
    let mut report = ScenarioReport::new("A1", guard, &deaths);
    let since = |from: Instant, at: Option<Instant>| at.map(|at| at.saturating_duration_since(from).as_secs_f64());
    let last_orphan = deaths.iter().rfind(|death| death.part == "orphan").map(|death| death.at);
    report.took = match (found, deaths.first()) {
        (Some(found), _) => format!(
            "found {:.2} s, all dead {:.1} s",
            found.as_secs_f64(),
            since(killed, last_orphan).unwrap_or(f64::NAN)
        ),
        (None, Some(first)) if first.at >= demand => {
            format!("{:.1} s after the demand", since(demand, Some(first.at)).unwrap_or(f64::NAN))
        }
        (None, Some(first)) => format!("{:.1} s", since(killed, Some(first.at)).unwrap_or(f64::NAN)),
        (None, None) => String::new(),
    };
    let lives = is_alive(healthy) && is_alive(kept);
    let fed = fed == Some(true);
    report.lives = match (lives, fed) {
        (true, true) => "healthy agent: lives, has its memory".to_owned(),
        (true, false) => "healthy agent: lives, waits for memory".to_owned(),
        (false, _) => "healthy agent: DEAD".to_owned(),
    };
    report.win = found.is_some_and(|found| found <= FOUND_WITHIN)
        && deaths.iter().filter(|death| death.part == "orphan").count() == ORPHANS
        && deaths.len() == ORPHANS
        && lives
        && fed;
    report.notes.push(format!(
        "{left:.0} % available when the agents died, {:.0} % at the least; {} orphans left at the end",
        watch.least_left(),
        ORPHANS - watch.dead("orphan")
    ));
    report.notes.extend(guarding.words());
    report
}

/// When findings named every orphan, after the agents' death.
fn found(daemon: &Daemon, killed: Instant) -> Option<Duration> {
    let named = || {
        let findings = daemon.get("/v1/findings?all=true");
        let orphan = |finding: &&serde_json::Value| finding["kind"] == "orphan";
        let listed = |finding: &serde_json::Value| finding["evidence"]["processes"].as_array().map_or(0, Vec::len);
        findings["findings"].as_array().map_or(0, |all| all.iter().filter(orphan).map(listed).sum::<usize>())
    };
    poll(Duration::from_secs(30), || (named() >= ORPHANS).then(|| killed.elapsed()))
}

/// SIGKILL for all of them, with as little as possible between.
fn kill_at_once(processes: &[ProcessKey]) {
    let handles: Vec<_> = processes
        .iter()
        .map(|process| {
            let pid = Pid::from_raw(i32::try_from(process.pid).unwrap()).expect("a pid");
            let handle = pidfd_open(pid, PidfdFlags::empty()).expect("it has been started");
            assert!(is_alive(*process), "{process} is dead before the scenario begins");
            handle
        })
        .collect();
    handles.iter().for_each(|handle| pidfd_send_signal(handle, Signal::KILL).expect("it lives"));
}
