//! With `enforce`, orphans are terminated in time and reported; without it, no signal is ever sent.

use std::time::{Duration, Instant};

use serde_json::json;
use watchdog_api::{ActionState, DecidedBy, FindingKind};
use watchdog_tests::{
    Daemon, ProcessKey, Snapshot, Stage, in_guest, is_alive, is_stopped, living, poll, post, seconds, sent,
};

/// A process that SIGTERM ends has time to exit, also on a busy machine.
const ENFORCING: &str = "[orphans]\ngrace = \"1s\"\n[actions]\nenforce = true\nkill_after = \"4s\"\n";

/// Starts an agent whose helper counts each SIGTERM that it gets, and kills the agent.
fn left_behind(stage: &mut Stage, daemon: &Daemon) -> ProcessKey {
    let agent = stage.agent("spawn helper [ count-term terms report helper hold ] hold");
    let helper = stage.reported("helper");
    daemon.eventually(seconds(1.0), "the helper", |snapshot| snapshot.process(helper).map(drop));
    stage.kill(agent);
    helper
}

fn session_of(snapshot: &Snapshot, process: ProcessKey) -> Option<u64> {
    snapshot.session_with(process).map(|session| session.id)
}

#[test]
fn orphans_terminated_after_grace() {
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, ENFORCING);
    let agent = stage.agent(
        "spawn helper [ report npm fork [ report shell spawn helper [ report server hold ] hold ] hold ]
         fork [ fork [ setsid exec helper [ report daemon hold ] ] ]
         spawn helper [ count-term terms report stubborn hold ] hold",
    );
    let orphans = ["npm", "shell", "server", "daemon", "stubborn"].map(|name| stage.reported(name));
    let stubborn = orphans[4];
    let other = stage.agent("spawn helper [ count-term terms report other hold ] hold");
    let others = [other, stage.reported("other")];
    daemon.eventually(seconds(2.0), "both trees", |snapshot| {
        orphans.iter().chain(&others).all(|process| snapshot.process(*process).is_some()).then_some(())
    });

    let killed = Instant::now();
    stage.kill(agent);
    let first = poll(seconds(4.0), || (living(&orphans).len() < orphans.len()).then(|| killed.elapsed()));
    let last = poll(seconds(20.0), || living(&orphans).is_empty().then_some(()));

    let state = || format!("{:#?}\n{}", daemon.receipts(), daemon.describe(Some(&daemon.snapshot())));
    assert!(first.is_some_and(|first| first > Duration::from_millis(900)), "within the grace: {first:?}\n{}", state());
    assert!(last.is_some(), "{:?}\n{}", living(&orphans), state());
    assert_eq!(stage.terms(stubborn), 1);
    let receipt = daemon.only_receipt(seconds(4.0));
    assert_eq!((receipt.state, receipt.by), (ActionState::Done, DecidedBy::Policy), "{receipt:#?}");
    assert_eq!(receipt.finding_kind, Some(FindingKind::Orphan));
    assert_eq!(receipt.targets.len(), orphans.len(), "{receipt:#?}");
    for orphan in orphans {
        let expected: &[&str] = if orphan == stubborn { &["TERM", "KILL"] } else { &["TERM"] };
        assert_eq!(sent(&receipt, orphan), expected, "{orphan} in {receipt:#?}");
    }
    let place = |process: ProcessKey| receipt.targets.iter().position(|target| target.pid == process.pid);
    assert!(
        place(orphans[2]) < place(orphans[1]) && place(orphans[1]) < place(orphans[0]),
        "leaves first: {receipt:#?}"
    );
    daemon
        .eventually(seconds(3.0), "it is remembered", |_| (daemon.remembered().last() == Some(&receipt)).then_some(()));
    let finding = daemon.eventually(seconds(2.0), "the finding closes", |snapshot| {
        snapshot
            .findings_of(FindingKind::Orphan)
            .first()
            .filter(|finding| finding.closed_at.is_some())
            .copied()
            .cloned()
    });
    assert!(finding.action_taken.is_some_and(|taken| taken.starts_with("terminate (action ")));
    let metrics = daemon.metrics();
    let counted = "agent_watchdog_actions_total{action=\"terminate\",outcome=\"done\"} 1\n";
    assert!(metrics.contains(counted), "{metrics}");
    assert_eq!(living(&others), others);
    assert_eq!(stage.terms(others[1]), 0);
}

#[test]
fn without_enforce_nothing_is_signalled() {
    if in_guest() {
        eprintln!("not in a guest: what is decided is the same on every kernel");
        return;
    }
    let mut stage = Stage::new();
    let config = "[orphans]\ngrace = \"0s\"\n[actions]\norphan = \"terminate\"\ngrace = \"0s\"\nkill_after = \"1s\"
        emergency_term = \"100%\"\nemergency_kill = \"99%\"\nsettle = \"1s\"\n";
    let daemon = Daemon::configured(&stage, config);
    let helper = left_behind(&mut stage, &daemon);
    daemon.eventually(seconds(2.0), "a proposal", |snapshot| {
        snapshot.open(FindingKind::Orphan).first().filter(|finding| finding.proposed_action == "terminate").map(drop)
    });

    daemon.never(Duration::from_millis(2_500), "an action", |snapshot| {
        let taken = snapshot.findings.iter().find(|finding| finding.action_taken.is_some()).map(drop);
        taken.or_else(|| (!daemon.receipts().is_empty()).then_some(()))
    });

    assert!(is_alive(helper));
    assert_eq!(stage.terms(helper), 0);
}

#[test]
fn adoption_cancels_action_until_undone() {
    if in_guest() {
        eprintln!("not in a guest: what is decided is the same on every kernel");
        return;
    }
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, &ENFORCING.replace("grace = \"1s\"", "grace = \"6s\""));
    let helper = left_behind(&mut stage, &daemon);
    daemon.eventually(seconds(1.0), "an orphan", |snapshot| snapshot.open(FindingKind::Orphan).first().map(drop));

    let adopted = post(&daemon.socket(), "/v1/adopt", &json!({ "pid": helper.pid }));
    assert!(adopted.as_ref().is_ok_and(|answer| answer.status == 200), "{adopted:?}");

    daemon.never(Duration::from_secs(7), "an action", |_| (!daemon.receipts().is_empty()).then_some(()));
    assert!(is_alive(helper));
    assert_eq!(stage.terms(helper), 0);

    let undone = daemon.ctl(&["adopt", &format!("pid:{}", helper.pid), "--undo"]);
    assert_eq!(undone.code, 0, "{undone:?}");

    let receipt = daemon.only_receipt(seconds(20.0));
    assert_eq!(receipt.state, ActionState::Done, "{receipt:#?}");
    assert_eq!(sent(&receipt, helper), ["TERM", "KILL"]);
    assert!(!is_alive(helper));
    assert_eq!(stage.terms(helper), 1);
}

#[test]
fn frozen_orphan_stops_until_thawed() {
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, &format!("{ENFORCING}orphan = \"freeze\"\n"));
    let agent = stage.agent("spawn helper [ report npm spawn helper [ report server hold ] hold ] hold");
    let frozen = ["npm", "server"].map(|name| stage.reported(name));
    daemon.eventually(seconds(1.0), "the helpers", |snapshot| snapshot.process(frozen[1]).map(drop));
    stage.kill(agent);
    let stopped = || frozen.iter().all(|process| is_stopped(*process));
    let receipt = daemon.eventually(seconds(4.0), "both are frozen", |_| {
        daemon.receipts().pop().filter(|receipt| receipt.state == ActionState::Holding && stopped())
    });
    assert_eq!(sent(&receipt, frozen[0]), ["STOP"], "{receipt:#?}");

    let thawed = daemon.ctl(&["thaw"]);

    assert_eq!(thawed.code, 0, "{thawed:?}");
    let receipt = daemon.only_receipt(seconds(2.0));
    assert_eq!(receipt.state, ActionState::Done, "{receipt:#?}");
    assert_eq!(sent(&receipt, frozen[1]), ["STOP", "CONT"], "{receipt:#?}");
    daemon.never(Duration::from_secs(2), "what a person let go is frozen again", |_| {
        let again = daemon.receipts().len() > 1 || frozen.iter().any(|process| is_stopped(*process));
        again.then_some(())
    });
    assert_eq!(living(&frozen), frozen);
}

#[test]
fn ended_session_terminates_leaves_first() {
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, "[actions]\nkill_after = \"10s\"\n");
    let agent = stage.agent("spawn helper [ report npm spawn helper [ report server hold ] hold ] hold");
    let [npm, server] = ["npm", "server"].map(|name| stage.reported(name));
    let session = daemon.eventually(seconds(1.0), "the tree", |snapshot| session_of(snapshot, server));

    let ended = daemon.ctl(&["end", &session.to_string(), "--yes"]);

    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(living(&[agent, npm, server]), []);
    let receipt = daemon.only_receipt(seconds(1.0));
    assert_eq!((receipt.by, receipt.asked_by_uid), (DecidedBy::Person, Some(0)));
    let order: Vec<u32> = receipt.targets.iter().map(|target| target.pid).collect();
    assert_eq!(order, [server.pid, npm.pid, agent.pid]);
    for process in [server, npm, agent] {
        assert_eq!(sent(&receipt, process), ["TERM"]);
    }
    assert!(receipt.targets.iter().all(|target| target.died_at.is_some()), "{receipt:#?}");
}
