//! A2 and A3: memory runs out.

use std::path::Path;
use std::time::{Duration, Instant};

use watchdog_tests::{Stage, is_alive, poll};

use crate::guard::ScenarioGuard;
use crate::machine::{self, MachineMemory};
use crate::report::ScenarioReport;
use crate::watch::DeathWatch;

const CONFIG: &str = "[actions]\nenforce = true\n";

const LEAKERS: usize = 12;
const INNOCENT_MIB: usize = 180;
/// MiB a second of each, for so many seconds: twice the memory of the machine.
const LEAK: (usize, usize) = (5, 70);
/// After the last death, so long is waited for another.
const CALM: Duration = Duration::from_secs(12);

/// A2: twelve small helpers leak, and the largest process has nothing to do with it.
pub(crate) fn many_small_ones(guard: ScenarioGuard) -> ScenarioReport {
    let mut stage = Stage::new();
    stage.install("innocent");
    let guarding = guard.start(&stage, CONFIG);
    let watch = DeathWatch::new();
    stage.start("innocent", &format!("anon {INNOCENT_MIB} report innocent hold"));
    let innocent = stage.reported("innocent");
    let (rate, seconds) = LEAK;
    let agent = stage
        .agent(&format!("times {LEAKERS} [ spawn helper [ report leaker await go leak {rate} {seconds} hold ] ] hold"));
    let leakers = stage.all_reported("leaker", LEAKERS);
    leakers.iter().for_each(|leaker| watch.follow("leaking helper", *leaker));
    watch.follow("innocent", innocent);
    watch.follow("agent", agent);
    let kills = machine::oom_kills();

    let go = Instant::now();
    stage.mark("go");
    poll(Duration::from_secs(seconds as u64 + 20), || {
        let calm = watch.deaths().last().is_some_and(|death| death.at.elapsed() >= CALM);
        let settled = calm && MachineMemory::now().left_percent() > 20.0;
        (watch.dead("leaking helper") == LEAKERS || settled).then_some(())
    });
    std::thread::sleep(Duration::from_secs(2));

    let deaths = watch.deaths();
    let mut report = ScenarioReport::new("A2", guard, &deaths);
    let from = watch.low().unwrap_or(go);
    if let (Some(first), Some(last)) = (deaths.first(), deaths.last()) {
        let since = |at: Instant| at.saturating_duration_since(from).as_secs_f64();
        report.took = format!("first {:.1} s, last {:.1} s", since(first.at), since(last.at));
    }
    let said = |lives: bool| if lives { "lives" } else { "DEAD" };
    report.lives = format!("innocent: {}, agent: {}", said(is_alive(innocent)), said(is_alive(agent)));
    report.win = is_alive(innocent) && is_alive(agent) && watch.dead("leaking helper") > 0;
    report.notes.push(format!(
        "{:.0} % available at the least; the kernel killed {} for want of memory",
        watch.least_left(),
        machine::oom_kills() - kills
    ));
    report.notes.extend(guarding.words());
    report
}

/// So much is available when the helper has what it wants, in per cent.
const LEFT: u32 = 7;
/// `kill_after` of the configuration, by default, and a second.
const GONE_WITHIN: Duration = Duration::from_secs(11);

/// A3: the one that holds the memory does not listen.
pub(crate) fn one_that_ignores_term(guard: ScenarioGuard) -> ScenarioReport {
    let mut stage = Stage::new();
    let guarding = guard.start(&stage, CONFIG);
    let watch = DeathWatch::new();
    let agent =
        stage.agent(&format!("spawn helper [ count-term terms report stubborn await go fill {LEFT} hold ] hold"));
    let stubborn = stage.reported("stubborn");
    watch.follow("helper that ignores SIGTERM", stubborn);
    watch.follow("agent", agent);
    let terms = stage.directory().join(format!("terms-{}", stubborn.pid));
    let kills = machine::oom_kills();

    stage.mark("go");
    let mut signalled: Option<Instant> = None;
    poll(Duration::from_secs(120), || {
        if signalled.is_none() && signals(&terms) > 0 {
            signalled = Some(Instant::now());
        }
        let waited = watch.low().is_some_and(|low| low.elapsed() >= Duration::from_secs(45));
        (!is_alive(stubborn) || waited).then_some(())
    });
    std::thread::sleep(Duration::from_secs(1));

    let deaths = watch.deaths();
    let mut report = ScenarioReport::new("A3", guard, &deaths);
    let death = deaths.iter().find(|death| death.part != "agent");
    let since = |from: Option<Instant>| Some(death?.at.saturating_duration_since(from?));
    let after_term = since(signalled);
    if let Some(after_low) = since(watch.low()) {
        report.took = format!("{:.1} s", after_low.as_secs_f64());
        if let Some(after_term) = after_term {
            report.took += &format!(", {:.1} s after SIGTERM", after_term.as_secs_f64());
        }
    }
    let lives = is_alive(agent);
    report.lives = if lives { "agent: lives" } else { "agent: DEAD" }.to_owned();
    report.win = lives && after_term.or(since(watch.low())).is_some_and(|after| after <= GONE_WITHIN);
    report.notes.push(format!(
        "{:.1} % available at the least; {} SIGTERM for the helper; the kernel killed {} for want of memory",
        watch.least_left(),
        signals(&terms),
        machine::oom_kills() - kills
    ));
    report.notes.extend(guarding.words());
    report
}

/// How many SIGTERM a fixture has counted.
pub(crate) fn signals(file: &Path) -> u64 {
    file.metadata().map_or(0, |metadata| metadata.len())
}
