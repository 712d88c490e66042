//! A9: one session thrashes below its own limit while the host has free memory.

use std::time::{Duration, Instant};

use watchdog_api::FindingKind;
use watchdog_tests::{MIB, Stage, TestCgroup, is_alive};

use crate::guard::ScenarioGuard;
use crate::machine;
use crate::report::ScenarioReport;
use crate::watch::DeathWatch;

const CONFIG: &str = "[actions]\nenforce = true\n";
const HIGH: u64 = 96 * MIB;
const HELPERS: usize = 3;
/// nohang acts on pressure that has lasted for 30 s.
const LASTS: Duration = Duration::from_secs(60);

/// Stages it.
pub(crate) fn stage(guard: ScenarioGuard) -> ScenarioReport {
    let mut stage = Stage::new();
    let guarding = guard.start_with_pressure(&stage, CONFIG);
    let watch = DeathWatch::new();
    let cgroup = TestCgroup::of("thrash", 8 * HIGH).expect("a guest has cgroup v2 with the memory controller");
    cgroup.slow_down_above(HIGH);
    let agent =
        stage.agent(&format!("await go times {HELPERS} [ spawn helper [ report thrasher leak 8 90 hold ] ] hold"));
    cgroup.take(agent);
    stage.mark("go");
    let thrashers = stage.all_reported("thrasher", HELPERS);
    thrashers.iter().for_each(|thrasher| watch.follow("thrashing helper", *thrasher));
    watch.follow("agent", agent);

    let began = Instant::now();
    let (mut pressure, mut high_for) = (0.0_f64, Duration::ZERO);
    while began.elapsed() < LASTS {
        let now = machine::pressure();
        pressure = pressure.max(now);
        let step = Duration::from_millis(500);
        std::thread::sleep(step);
        if now >= 40.0 {
            high_for += step;
        }
    }

    let deaths = watch.deaths();
    let mut report = ScenarioReport::new("A9", guard, &deaths);
    if let Some(first) = deaths.first() {
        report.took = format!("{:.0} s", first.at.saturating_duration_since(began).as_secs_f64());
    }
    let alive = thrashers.iter().filter(|thrasher| is_alive(**thrasher)).count();
    report.lives = format!("{alive} of {HELPERS} helpers live");
    report.win = deaths.is_empty();
    report.notes.push(format!(
        "full pressure {pressure:.0} % over 10 s at the most, above 40 % for {:.0} s; {:.0} % available at the least",
        high_for.as_secs_f64(),
        watch.least_left()
    ));
    if let Some(daemon) = guarding.ours() {
        let findings = daemon.snapshot().findings;
        // That it was started past the gate has nothing to do with memory.
        let findings = findings.iter().filter(|finding| finding.kind != FindingKind::Ungated);
        report.notes.extend(findings.map(|finding| {
            let limit =
                finding.evidence.to_map().get("limit_cgroup").map(|cgroup| format!(", towards the limit of {cgroup}"));
            format!("finding {} of pid {}{}", finding.kind.name(), finding.pid, limit.unwrap_or_default())
        }));
    }
    report.notes.extend(guarding.words());
    report
}
