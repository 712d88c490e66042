//! A12: a helper leaves its cgroup, and an unrelated process sends a signal.

use std::time::Instant;

use rustix::process::Signal;
use watchdog_api::FindingKind;
use watchdog_tests::{Daemon, MIB, Stage, TestCgroup, is_alive, seconds};

use crate::guard::ScenarioGuard;
use crate::report::ScenarioReport;
use crate::watch::DeathWatch;

/// Stages it.
pub(crate) fn stage() -> ScenarioReport {
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, "[actions]\nenforce = true\n[orphans]\ngrace = \"60s\"\n");
    let watch = DeathWatch::new();
    let cgroup = TestCgroup::of("elsewhere", 256 * MIB).expect("a guest has cgroup v2 with the memory controller");
    let agent = stage.agent("spawn helper [ report mover hold ] spawn helper [ report target hold ] hold");
    let (mover, target) = (stage.reported("mover"), stage.reported("target"));
    daemon.eventually(seconds(2.0), "both helpers", |snapshot| {
        snapshot.process(mover).and(snapshot.process(target)).map(drop)
    });
    watch.follow("helper that got SIGTERM", target);
    watch.follow("agent, by the scenario", agent);
    watch.follow("helper that moved", mover);

    cgroup.take(mover);
    let now_in = std::fs::read_to_string(format!("/proc/{}/cgroup", mover.pid)).unwrap_or_default();
    let moved = now_in.contains(&cgroup.path());
    let tracked = daemon.snapshot().session_with(mover).is_some_and(|session| session.id > 0);

    stage.signal(target, Signal::TERM);
    let death = daemon.death(target.pid, seconds(5.0));
    let own = std::fs::read_to_string("/proc/self/comm").expect("our name").trim().to_owned();
    let sender = &death["sender"];
    let named =
        sender["relation"] == "stranger" && sender["pid"] == std::process::id() && sender["comm"] == own.as_str();
    let text = daemon.ctl_text(&["explain", &target.pid.to_string()]).stdout;
    let explained = text.contains(&format!("sent by {own} (pid {}", std::process::id()));

    let killed = Instant::now();
    stage.kill(agent);
    let found = daemon.eventually(seconds(1.0), "the helper that moved is found", |snapshot| {
        snapshot.open(FindingKind::Orphan).iter().any(|finding| finding.pid == mover.pid).then(|| killed.elapsed())
    });
    let mut report = ScenarioReport::new("A12", ScenarioGuard::Ours, &watch.deaths());
    report.took = format!("found {:.2} s after its agent's death", found.as_secs_f64());
    report.lives = format!("helper that moved: {}", if is_alive(mover) { "lives, in its grace" } else { "DEAD" });
    report.win = moved && tracked && named && explained && is_alive(mover);
    report.notes.push(text.lines().next().unwrap_or_default().to_owned());
    report
}
