//! Processes that fork and exit while no daemon runs are known to the next daemon.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use watchdog_api::{FindingKind, ProcessState};
use watchdog_tests::{
    Daemon, DaemonOptions, GrantedCapabilities, ProcessKey, Snapshot, Stage, evidence, forks_that_fill_ring, is_alive,
    limit, poll, seconds,
};

/// An agent whose helper detaches a grandchild, named `late`, as soon as `go` is marked.
const DETACHES: &str = "bury report agent fork [ await go fork [ setsid exec helper [ report late hold ] ] ] hold";
/// An agent with three helpers.
const THREE: &str = "times 3 [ spawn helper [ report helper hold ] ] report agent hold";

fn pids(snapshot: &Snapshot, agent: ProcessKey) -> Vec<u32> {
    snapshot.session_with(agent).iter().flat_map(|session| &session.processes).map(|process| process.pid).collect()
}

/// Asserts that the daemon shows one orphan finding of these processes within a second.
fn one_orphan_finding(daemon: &Daemon, helpers: &[ProcessKey]) {
    let finding = daemon.eventually(seconds(1.0), "an orphan finding", |snapshot| {
        snapshot.open(FindingKind::Orphan).first().map(|finding| (*finding).clone())
    });
    let processes: Vec<serde_json::Value> = evidence(&finding, "processes");
    let found: BTreeSet<u64> = processes.iter().filter_map(|process| process["pid"].as_u64()).collect();
    assert_eq!(found, helpers.iter().map(|helper| u64::from(helper.pid)).collect(), "{finding:#?}");
    assert_eq!(daemon.snapshot().open(FindingKind::Orphan).len(), 1, "{}", daemon.describe(Some(&daemon.snapshot())));
}

#[test]
fn helper_detached_meanwhile_is_member() {
    let (mut stage, mut daemon) = Daemon::on_stage();
    let agent = stage.agent(DETACHES);
    daemon.eventually(seconds(2.0), "the session", |snapshot| snapshot.session(agent).map(drop));
    daemon.end(Signal::TERM);
    stage.mark("go");
    let late = stage.reported("late");
    daemon.restart();

    let snapshot = daemon.snapshot();
    assert_eq!(pids(&snapshot, agent), [agent.pid, late.pid], "{}", daemon.describe(Some(&snapshot)));
    let shown = snapshot.process(late).unwrap();
    assert_ne!(shown.ppid, agent.pid, "it detached");
    assert_eq!(shown.depth, 2, "{}", daemon.describe(Some(&snapshot)));
}

#[test]
fn agent_killed_meanwhile_leaves_orphans() {
    let (mut stage, mut daemon) = Daemon::on_stage();
    let before = Instant::now();
    let agent = stage.agent(THREE);
    let began = Instant::now();
    let helpers = stage.all_reported("helper", 3);
    daemon.eventually(seconds(2.0), "four processes", |snapshot| (pids(snapshot, agent).len() == 4).then_some(()));
    daemon.end(Signal::KILL);
    let at_least = began.elapsed().as_secs_f64();
    stage.kill(agent);
    poll(seconds(5.0), || (!is_alive(agent)).then_some(())).expect("it exits");
    let at_most = before.elapsed().as_secs_f64();
    // Longer than the grace.
    std::thread::sleep(Duration::from_millis(2_500));
    daemon.restart();

    one_orphan_finding(&daemon, &helpers);
    let death = daemon.death(agent.pid, seconds(3.0));
    assert_eq!(death["signal"], 9, "{death:#}");
    let age = death["age_seconds"].as_f64().unwrap();
    // Start times are in ticks of 10 ms. The exit is recorded shortly after it shows in /proc.
    assert!((at_least - 0.1..at_most + 0.5).contains(&age), "{age} s, not {at_least} to {at_most}: {death:#}");
}

#[test]
fn lease_of_dead_agent_ends() {
    let mut stage = Stage::new();
    let mut daemon = Daemon::configured(&stage, "[gate]\nmax_sessions = 1\n");
    let words = daemon.launch(&stage, &[], "report granted hold");
    stage.execute(words);
    let agent = stage.reported("granted");
    assert_eq!(daemon.queue().leases.len(), 1);
    daemon.end(Signal::KILL);
    stage.kill(agent);
    poll(seconds(2.0), || (!is_alive(agent)).then_some(())).expect("it ends");
    daemon.restart();

    assert!(daemon.queue().leases.is_empty(), "{:#?}", daemon.queue());
    let death = daemon.death(agent.pid, seconds(3.0));
    assert_eq!(death["signal"], 9, "{death:#}");
}

#[test]
fn unit_capabilities_suffice_for_takeover() {
    let mut stage = Stage::new();
    let mut daemon =
        Daemon::with(&stage, &DaemonOptions { capabilities: GrantedCapabilities::Unit, ..DaemonOptions::default() });
    let agent = stage.agent(DETACHES);
    daemon.eventually(seconds(2.0), "the session", |snapshot| snapshot.session(agent).map(drop));
    daemon.end(Signal::KILL);
    stage.mark("go");
    let late = stage.reported("late");
    daemon.restart();

    let log = daemon.log();
    assert!(log.contains("took over"), "{log}");
    assert!(!log.contains("importing their maps") && !log.contains("cannot open"), "{log}");
    let snapshot = daemon.snapshot();
    assert_eq!(pids(&snapshot, agent), [agent.pid, late.pid], "{}", daemon.describe(Some(&snapshot)));
}

#[test]
fn another_layout_takes_over_without_gap() {
    let (mut stage, mut daemon) = Daemon::on_stage();
    let agent = stage.agent(
        "spawn helper [ bury for 6 [ fork [ fork [ setsid exec helper [ report survivor hold ] ] ] sleep 0.02 ] \
         report over hold ] report agent hold",
    );
    stage.reported("survivor");
    // Kernels that preempt programs skip some, and count them: the child of parents that have exited is lost then.
    let skipped = |daemon: &Daemon| daemon.status().tracking.missed_runs;
    let mut skipped_before = 0;
    for max_processes in [2_000, 3_000] {
        skipped_before += skipped(&daemon);
        daemon.end(Signal::KILL);
        daemon.configure(&stage, &format!("[tracking]\nmax_processes = {max_processes}\n"));
        daemon.restart();
    }
    let helper = stage.reported("over");

    let (mut expected, mut found) = (BTreeSet::new(), BTreeSet::new());
    let equal = poll(seconds(2.0), || {
        // The last one may report later than the helper.
        let survivors = stage.reports().remove("survivor").unwrap();
        expected = survivors.iter().chain([&agent, &helper]).map(|process| process.pid).collect();
        found = pids(&daemon.snapshot(), agent).into_iter().collect();
        (found == expected).then_some(())
    });
    let missing: Vec<_> = expected.difference(&found).collect();
    let others: Vec<_> = found.difference(&expected).collect();
    let skipped = skipped_before + skipped(&daemon);
    assert!(
        equal.is_some() || (others.is_empty() && missing.len() as u64 <= skipped),
        "missing {missing:?}, others {others:?}, skipped {skipped}\n{}",
        daemon.log()
    );
    let unpinned = {
        daemon.end(Signal::TERM);
        daemon.unpin().stdout
    };
    assert_eq!(unpinned.lines().count(), 1, "the pins of earlier layouts are removed: {unpinned}");
}

#[test]
fn full_ring_is_counted_and_repaired() {
    let (mut stage, mut daemon) = Daemon::on_stage();
    let agent = stage.agent(&format!(
        "spawn helper [ bury await go times {} [ fork [ exit ] ] fork [ fork [ setsid report late hold ] ] \
         report over hold ] report agent hold",
        forks_that_fill_ring()
    ));
    daemon.eventually(seconds(2.0), "the session", |snapshot| (pids(snapshot, agent).len() == 2).then_some(()));
    daemon.end(Signal::KILL);
    stage.mark("go");
    let helper = stage.reported("over");
    let late = stage.reported("late");
    daemon.restart();

    daemon.eventually(seconds(3.0), "the survivors and no other", |snapshot| {
        let expected = [agent.pid, helper.pid, late.pid].into();
        (pids(snapshot, agent).into_iter().collect::<BTreeSet<_>>() == expected).then_some(())
    });
    let status = poll(seconds(3.0), || Some(daemon.status()).filter(|status| status.reconciles > 0));
    assert!(status.is_some_and(|status| status.lost_events > 0), "{:#?}\n{}", daemon.status(), daemon.log());
}

#[test]
fn killed_starts_lose_nothing() {
    let (mut stage, mut daemon) = Daemon::on_stage();
    let agent = stage.agent(DETACHES);
    daemon.eventually(seconds(2.0), "the session", |snapshot| snapshot.session(agent).map(drop));
    daemon.end(Signal::KILL);
    for nth in 1..=8_u64 {
        if nth == 4 {
            stage.mark("go");
        }
        // Two layouts in turn, so that imports are cut short too.
        daemon.configure(&stage, &format!("[tracking]\nmax_processes = {}\n", 2_000 + nth / 3 * 1_000));
        daemon.relaunch();
        std::thread::sleep(limit(Duration::from_millis(nth * 53 % 240)));
        daemon.end(Signal::KILL);
    }
    let late = stage.reported("late");
    daemon.restart();

    let snapshot = daemon.snapshot();
    assert_eq!(pids(&snapshot, agent), [agent.pid, late.pid], "{}", daemon.describe(Some(&snapshot)));
}

/// Kills a daemon several times after it has opened the ring that holds the begin of a session, and before its table is built.
fn kill_while_building(layouts: u64) {
    let (mut stage, mut daemon) = Daemon::on_stage();
    daemon.end(Signal::KILL);
    let agent = stage.agent("spawn helper [ report late hold ] report agent hold");
    let late = stage.reported("late");
    stage.reported("agent");
    stage.kill(agent);
    for nth in 0..6_u64 {
        daemon.configure(&stage, &format!("[tracking]\nmax_processes = {}\n", 65_536 + nth % layouts * 1_000));
        daemon.relaunch();
        let took_over = poll(limit(seconds(10.0)), || daemon.log().contains("took over").then_some(()));
        assert!(took_over.is_some(), "{}", daemon.log());
        std::thread::sleep(Duration::from_millis(nth));
        daemon.end(Signal::KILL);
    }
    daemon.restart();

    let snapshot = daemon.snapshot();
    assert!(snapshot.session_with(late).is_some(), "{}", daemon.describe(Some(&snapshot)));
}

#[test]
fn killed_starts_keep_new_session() {
    kill_while_building(1);
}

#[test]
fn killed_imports_keep_new_session() {
    kill_while_building(2);
}

#[test]
fn unpin_removes_everything() {
    let (_stage, mut daemon) = Daemon::on_stage();
    let doctor = daemon.ctl(&["doctor"]).json();
    let capabilities = doctor["capabilities"].as_array().unwrap();
    let bpffs = capabilities.iter().find(|capability| capability["name"] == "bpffs").unwrap();
    let why = bpffs["why"].as_str().unwrap();
    let runtime_dir = daemon.socket().parent().unwrap().display().to_string();
    assert!(bpffs["on"] == true && why.contains("pinned since") && why.contains(&runtime_dir), "{why}");
    let refused = daemon.unpin();
    assert!(refused.code == 1 && refused.stderr.contains("in use"), "{refused:?}");

    daemon.end(Signal::TERM);
    let removed = daemon.unpin();
    let path = removed.stdout.trim().strip_prefix("removed ").unwrap_or_else(|| panic!("{removed:?}")).to_owned();
    assert!(path.starts_with("/sys/fs/bpf/agent-watchdog/"), "{path}");
    assert!(!std::path::Path::new(&path).parent().unwrap().exists());
    let again = daemon.unpin();
    assert!(again.code == 0 && again.stdout.contains("nothing is pinned"), "{again:?}");
}

#[test]
fn pins_of_removed_directories_are_swept() {
    let stage = Stage::new();
    let mut first = Daemon::watching(&stage);
    first.end(Signal::KILL);
    let pinned = || {
        let base = std::fs::read_dir("/sys/fs/bpf/agent-watchdog").into_iter().flatten().flatten();
        let of = |entry: &std::fs::DirEntry| std::fs::read_link(entry.path().join("runtime-dir")).ok();
        base.filter_map(|entry| of(&entry)).any(|dir| first.socket().starts_with(dir))
    };
    assert!(pinned());
    std::fs::remove_dir_all(first.socket().parent().unwrap()).unwrap();
    let _second = Daemon::watching(&stage);
    assert!(!pinned());
}

#[test]
fn orphans_are_known_without_bpffs() {
    let mut stage = Stage::new();
    let mut daemon = Daemon::with(&stage, &DaemonOptions { without_bpffs: true, ..DaemonOptions::default() });
    assert!(daemon.log().contains("While no daemon runs, processes are not tracked"), "{}", daemon.log());
    let agent = stage.agent(THREE);
    let helpers = stage.all_reported("helper", 3);
    daemon.eventually(seconds(2.0), "four processes", |snapshot| (pids(snapshot, agent).len() == 4).then_some(()));
    let members = daemon.socket().with_file_name("members.json");
    let written = poll(seconds(5.0), || {
        let members = std::fs::read_to_string(&members).ok()?;
        helpers.iter().all(|helper| members.contains(&helper.pid.to_string())).then_some(())
    });
    assert!(written.is_some(), "{}", daemon.log());
    daemon.end(Signal::KILL);
    stage.kill(agent);
    std::thread::sleep(Duration::from_millis(2_500));
    daemon.restart();

    daemon.eventually(seconds(3.0), "three orphans", |snapshot| {
        let orphans = helpers
            .iter()
            .filter(|helper| snapshot.process(**helper).is_some_and(|process| process.state == ProcessState::Orphaned));
        (orphans.count() == 3).then_some(())
    });
    let doctor = daemon.ctl(&["doctor"]).json();
    let capabilities = doctor["capabilities"].as_array().unwrap();
    let bpffs = capabilities.iter().find(|capability| capability["name"] == "bpffs").unwrap();
    assert!(bpffs["on"] == false && bpffs["cost"].as_str().unwrap().contains("not tracked"), "{bpffs:#}");
}
