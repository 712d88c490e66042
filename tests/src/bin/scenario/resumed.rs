//! A11: the daemon is killed during an action, and resumes it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use rustix::process::Signal;
use watchdog_tests::{Daemon, DaemonOptions, ProcessKey, Stage, poll, seconds};

use crate::guard::ScenarioGuard;
use crate::out_of_memory::signals;
use crate::report::ScenarioReport;
use crate::watch::DeathWatch;

const MEEK: usize = 3;
const STUBBORN: usize = 3;
const CONFIG: &str = "[orphans]\ngrace = \"2s\"\n[actions]\nenforce = true\nkill_after = \"5s\"\n";

/// Stages it three times.
pub(crate) fn stage() -> Vec<ScenarioReport> {
    let plain = once("A11", None);
    let read_only = with_read_only_state();
    mount_remount("/proc", MountFlags::empty(), "hidepid=2").expect("root remounts /proc");
    let hidden = once("A11 hidepid=2", None);
    mount_remount("/proc", MountFlags::empty(), "hidepid=0").expect("root remounts /proc");
    vec![plain, read_only, hidden]
}

fn with_read_only_state() -> ScenarioReport {
    let state = PathBuf::from("/run/read-only-state");
    std::fs::create_dir_all(&state).expect("a directory");
    mount("tmpfs", &state, "tmpfs", MountFlags::RDONLY, None).expect("root mounts");
    let report = once("A11 read-only", Some(&state));
    unmount(&state, UnmountFlags::DETACH).expect("it was mounted");
    report
}

fn once(name: &str, state: Option<&Path>) -> ScenarioReport {
    let mut stage = Stage::new();
    let mut daemon = Daemon::with(&stage, &DaemonOptions { config: CONFIG, state, ..DaemonOptions::default() });
    let watch = DeathWatch::new();
    let agent = stage.agent(&format!(
        "times {STUBBORN} [ spawn helper [ count-term terms report stubborn hold ] ] \
         times {MEEK} [ spawn helper [ report meek hold ] ] hold"
    ));
    let stubborn = stage.all_reported("stubborn", STUBBORN);
    let meek = stage.all_reported("meek", MEEK);
    stubborn.iter().for_each(|process| watch.follow("orphan that ignores SIGTERM", *process));
    meek.iter().for_each(|process| watch.follow("orphan", *process));
    let all: Vec<ProcessKey> = stubborn.iter().chain(&meek).copied().collect();
    daemon.eventually(seconds(2.0), "all helpers", |snapshot| {
        all.iter().all(|process| snapshot.process(*process).is_some()).then_some(())
    });
    let counted = |process: &ProcessKey| signals(&stage.directory().join(format!("terms-{}", process.pid)));

    stage.kill(agent);
    let first = poll(Duration::from_secs(30), || stubborn.iter().any(|it| counted(it) > 0).then(Instant::now));
    daemon.send(Signal::KILL);
    let killed = daemon.wait(Duration::from_secs(5)).expect("SIGKILL ends it");
    let so_far: u64 = stubborn.iter().map(counted).sum();
    daemon.restart();
    let gone = poll(Duration::from_secs(60), || (watch.deaths().len() == all.len()).then_some(()));
    let receipts = poll(seconds(1.0), || Some(receipts(&daemon, &all)).filter(|all| all.iter().all(is_over)));
    let receipts = receipts.unwrap_or_else(|| self::receipts(&daemon, &all));

    let deaths = watch.deaths();
    let mut report = ScenarioReport::new(name, ScenarioGuard::Ours, &deaths);
    if let (Some(first), Some(last)) = (first, deaths.last()) {
        report.took =
            format!("{:.1} s after the first SIGTERM", last.at.saturating_duration_since(first).as_secs_f64());
    }
    let most = stubborn.iter().map(counted).max().unwrap_or(0);
    let reached = stubborn.iter().filter(|process| counted(process) > 0).count();
    report.win = first.is_some() && gone.is_some() && most == 1 && receipts.len() == 1 && receipts.iter().all(is_over);
    report.notes.push(format!(
        "the daemon ended by {killed} after {so_far} of {STUBBORN} SIGTERM; in the end {reached} had one, and none more than \
         {most}; {} receipt(s)",
        receipts.len()
    ));
    report.notes.extend(receipts.iter().map(|receipt| format!("receipt {}: {}", receipt["id"], receipt["result"])));
    if !report.win {
        println!("{}", daemon.log());
    }
    report
}

fn is_over(receipt: &serde_json::Value) -> bool {
    receipt["ended_at"].is_string()
}

/// The receipts about these processes.
fn receipts(daemon: &Daemon, processes: &[ProcessKey]) -> Vec<serde_json::Value> {
    let actions = daemon.get("/v1/actions");
    let actions = actions["actions"].as_array().cloned().unwrap_or_default();
    let about = |receipt: &serde_json::Value| {
        let targets = receipt["targets"].as_array().cloned().unwrap_or_default();
        targets.iter().any(|target| processes.iter().any(|process| target["pid"] == process.pid))
    };
    actions.into_iter().filter(about).collect()
}
