//! After lost events and full maps, the table soon agrees with /proc again.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Signal;
use watchdog_api::ProcessState;
use watchdog_tests::{
    Daemon, ProcessKey, Snapshot, Stage, descendants, forks_that_fill_ring, in_guest, is_stopped, poll, seconds,
};

/// Waits until the daemon's living processes are exactly those below the stage, twice in a row.
fn table_equals_proc(daemon: &Daemon, stage: &Stage, within: Duration) -> usize {
    let mut before = None;
    let mut last = (BTreeSet::new(), BTreeSet::new());
    let equal = poll(within, || {
        let tree = daemon.snapshot().tree;
        let living = tree.sessions.iter().flat_map(|session| &session.processes);
        let shown: BTreeSet<_> = living
            .filter(|process| process.state != ProcessState::Zombie)
            .map(|process| ProcessKey { pid: process.pid, start_time: process.start_time })
            .collect();
        let truth = descendants(stage.pid());
        last = (shown.clone(), truth.clone());
        let stable = shown == truth && before.replace(shown) == Some(truth);
        stable.then_some(last.0.len())
    });
    let status = daemon.status();
    let skipped = status.tracking.missed_runs;
    eprintln!("{} lost events, {skipped} of them skipped runs, {} reconciles", status.lost_events, status.reconciles);
    equal.unwrap_or_else(|| {
        let (shown, truth) = &last;
        let missing: Vec<_> = truth.difference(shown).collect();
        let too_many: Vec<_> = shown.difference(truth).collect();
        panic!(
            "{} processes shown, {} in /proc; missing {missing:?}, too many {too_many:?}; {:?}\n{}",
            shown.len(),
            truth.len(),
            daemon.status(),
            daemon.log()
        )
    })
}

/// Stops the daemon, and waits until it is stopped.
fn stop(daemon: &Daemon) {
    daemon.send(Signal::STOP);
    let stopped = || ProcessKey::now(daemon.pid()).is_some_and(is_stopped).then_some(());
    assert!(poll(seconds(5.0), stopped).is_some(), "the daemon does not stop");
}

/// A helper that forks as fast as it can for a while, and leaves a living child every hundred forks.
const STORM: &str = "spawn helper [ bury for 5 [ times 100 [ fork [ exit ] ] fork [ report survivor hold ] sleep 0.01 ]
     report over hold ]";

#[test]
fn table_matches_proc_after_fork_storm() {
    let (mut stage, daemon) = Daemon::on_stage();

    stage.agent(&format!("{STORM} {STORM} hold"));
    stage.all_reported("over", 2);

    let count = table_equals_proc(&daemon, &stage, seconds(5.0));
    // The last survivor may report later than its parent.
    let survivors = || stage.reports().remove("survivor").unwrap_or_default().len();
    let equal = poll(seconds(5.0), || (count == survivors() + 3).then_some(()));
    assert!(equal.is_some(), "{count} are an agent, two helpers, and the {} that they left", survivors());
}

#[test]
fn losses_are_counted_and_repaired() {
    let (mut stage, daemon) = Daemon::on_stage();
    // It does not read while it is stopped, so the ring fills up.
    stop(&daemon);

    let storms = format!("{STORM} ").repeat(if in_guest() { 1 } else { 2 });
    stage.agent(&format!("{storms} hold"));
    let storms = if in_guest() { 1 } else { 2 };
    stage.all_reported("over", storms);
    daemon.send(Signal::CONT);

    table_equals_proc(&daemon, &stage, seconds(6.0));
    let status = daemon.status();
    if status.lost_events > 0 {
        assert!(status.reconciles > 0, "{} lost events, and no reconcile", status.lost_events);
        let metric = format!("agent_watchdog_lost_events_total {}", status.lost_events);
        let metrics = daemon.metrics();
        assert!(metrics.contains(&metric), "no {metric:?} in\n{metrics}");
    } else {
        eprintln!("the ring held all of it");
    }
}

#[test]
fn lost_exec_is_repaired() {
    let mut stage = Stage::new();
    stage.install("replacement");
    let daemon = Daemon::watching(&stage);
    stage.agent("spawn helper [ report helper await go exec replacement [ report executed hold ] ] hold");
    let helper = stage.reported("helper");
    let program = |look: &Snapshot| look.process(helper).and_then(|helper| helper.argv.first().cloned());
    let shows = |name: &'static str| move |look: &Snapshot| program(look).filter(|path| path.ends_with(name));
    daemon.eventually(seconds(5.0), "the helper", shows("helper"));

    // A stopped daemon does not read: once the ring is full, every record is lost.
    stop(&daemon);
    stage.agent(&format!("bury times {} [ fork [ exit ] ] report over hold", forks_that_fill_ring()));
    stage.reported("over");
    stage.mark("go");
    assert_eq!(stage.reported("executed"), helper);
    daemon.send(Signal::CONT);

    daemon.eventually(seconds(1.0), "the program that the helper executed", shows("replacement"));
    let status = daemon.status();
    assert!(status.lost_events > 0 && status.reconciles > 0, "{status:?}");
}

#[test]
fn full_map_hides_no_process() {
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, "[tracking]\nmax_processes = 256\n");

    let agent = stage.agent("times 400 [ fork [ report child hold ] ] hold");
    stage.all_reported("child", 400);

    table_equals_proc(&daemon, &stage, seconds(5.0));
    // The counters are read once a second; the scan that filled the table may have come before.
    let counted = poll(seconds(3.0), || (daemon.status().lost_events > 0).then_some(()));
    counted.expect("what had no room in the map is counted as lost");

    // And what the kernel never tracked is still an orphan when its agent dies.
    stage.kill(agent);
    daemon.eventually(seconds(5.0), "400 orphans", |snapshot| {
        let orphans = snapshot.tree.sessions.iter().flat_map(|session| &session.processes);
        (orphans.filter(|process| process.state == ProcessState::Orphaned).count() == 400).then_some(())
    });
}

#[test]
fn full_map_degrades_status() {
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, "[tracking]\nmax_processes = 256\n");
    assert!(!daemon.status().degraded);
    let agent = stage.agent("times 300 [ fork [ report child hold ] ] hold");
    stage.all_reported("child", 300);

    let untracked = |wanted: fn(u64) -> bool| {
        let reported = poll(seconds(5.0), || {
            let status = daemon.status();
            (status.degraded == (status.tracking.untracked > 0) && wanted(status.tracking.untracked)).then_some(status)
        });
        reported.unwrap_or_else(|| panic!("{:?}\n{}", daemon.status(), daemon.log()))
    };
    // The map holds the agent and 255 of its children, or fewer where the daemon watches a process besides.
    untracked(|processes| (45..50).contains(&processes));
    let same = poll(seconds(5.0), || {
        let metric = format!("\nagent_watchdog_untracked_processes {}\n", daemon.status().tracking.untracked);
        daemon.metrics().contains(&metric).then_some(())
    });
    assert!(same.is_some(), "{:?}\n{}", daemon.status(), daemon.metrics());

    stage.reports().remove("child").unwrap_or_default().into_iter().for_each(|child| stage.kill(child));
    untracked(|processes| processes == 0);
    stage.kill(agent);
}
