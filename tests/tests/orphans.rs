//! Orphans of a dead agent are one finding at once, and proposed for termination only after the grace.
#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use watchdog_api::{Finding, FindingKind, ProcessState, SessionState};
use watchdog_tests::{Daemon, ProcessKey, Snapshot, Stage, is_alive, poll, seconds};

/// Whether a pid stands anywhere in the evidence under the name `pid`.
fn names(evidence: &Value, process: ProcessKey) -> bool {
    match evidence {
        Value::Object(fields) => {
            fields.iter().any(|(name, value)| (name == "pid" && *value == process.pid) || names(value, process))
        }
        Value::Array(values) => values.iter().any(|value| names(value, process)),
        _ => false,
    }
}

/// The one open finding of orphans, when it names all of these.
fn one_group(snapshot: &Snapshot, survivors: &[ProcessKey]) -> Option<Finding> {
    let open = snapshot.open(FindingKind::Orphan);
    let [finding] = open.as_slice() else { return None };
    let evidence = Value::Object(finding.evidence.to_map());
    let state = |process: &ProcessKey| snapshot.process(*process).map(|process| process.state);
    let all =
        survivors.iter().all(|process| names(&evidence, *process) && state(process) == Some(ProcessState::Orphaned));
    all.then(|| (*finding).clone())
}

/// Nothing is proposed during the test.
const LONG_GRACE: &str = "[orphans]\ngrace = \"10m\"\n";

#[test]
fn dead_agent_gives_one_finding() {
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, LONG_GRACE);
    let agent = stage.agent(
        "spawn helper [ report wrapper fork [ report shell spawn helper [ report server hold ] hold ] hold ]
         fork [ setsid fork [ exec helper [ report daemon hold ] ] ] hold",
    );
    let survivors = ["wrapper", "shell", "server", "daemon"].map(|name| stage.reported(name));
    daemon.eventually(seconds(1.0), "the whole tree", |snapshot| snapshot.process(survivors[3]).map(drop));

    stage.kill(agent);

    let finding =
        daemon.eventually(seconds(1.0), "one finding with every survivor", |snapshot| one_group(snapshot, &survivors));
    assert_eq!(finding.proposed_action, "report", "inside the grace");
    assert_eq!(finding.action_taken, None);
    let snapshot = daemon.snapshot();
    let session = snapshot.session_with(survivors[0]).expect("the session is still open");
    assert_eq!(session.state, SessionState::Orphaned);
    assert_eq!(finding.session, Some(session.id));
    daemon.eventually(seconds(1.0), "that is the only open finding", |snapshot| {
        (snapshot.findings.iter().filter(|finding| finding.closed_at.is_none()).count() == 1).then_some(())
    });
    assert_eq!(daemon.status().counts.sessions_orphaned, 1);
}

#[test]
fn grace_delays_proposal() {
    let (mut stage, daemon) = Daemon::on_stage();
    let agent = stage.agent("spawn helper [ report helper hold ] hold");
    let helper = stage.reported("helper");
    daemon.eventually(seconds(1.0), "the helper", |snapshot| snapshot.process(helper).map(drop));

    let killed = Instant::now();
    stage.kill(agent);

    let finding = daemon.eventually(seconds(6.0), "a proposal", |snapshot| {
        one_group(snapshot, &[helper]).filter(|finding| finding.proposed_action != "report")
    });
    assert!(killed.elapsed() > Duration::from_millis(1_900), "after {:?}", killed.elapsed());
    assert_eq!(finding.proposed_action, "terminate");
    assert!(is_alive(helper), "without `enforce` nothing is ever done");
    assert_eq!(finding.action_taken, None);
}

#[test]
fn finding_closes_with_last_orphan() {
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, LONG_GRACE);
    let agent = stage.agent("fork [ report a hold ] fork [ report b hold ] hold");
    let [a, b] = ["a", "b"].map(|name| stage.reported(name));
    daemon.eventually(seconds(1.0), "both helpers", |snapshot| snapshot.process(b).map(drop));
    stage.kill(agent);
    let finding = daemon.eventually(seconds(1.0), "one finding", |snapshot| one_group(snapshot, &[a, b]));

    stage.kill(a);
    daemon.eventually(seconds(2.0), "the finding lists the remaining processes", |snapshot| {
        one_group(snapshot, &[b]).filter(|same| same.id == finding.id).map(drop)
    });
    stage.kill(b);

    let closed = daemon.closed(finding.id, seconds(2.0));
    assert!(closed.closed_because.is_some());
    assert_eq!(closed.proposed_action, "report");
}

#[test]
fn exiting_helpers_are_never_proposed() {
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, LONG_GRACE);
    let agent = stage.agent("times 4 [ fork [ report helper await-new-parent await leave ] ] report all hold");
    let helpers = stage.all_reported("helper", 4);
    stage.reported("all");
    daemon.eventually(seconds(1.0), "all helpers", |snapshot| {
        helpers.iter().all(|helper| snapshot.process(*helper).is_some()).then_some(())
    });

    stage.kill(agent);

    let finding = daemon.eventually(seconds(2.0), "a finding", |snapshot| one_group(snapshot, &helpers));
    stage.mark("leave");
    let finding = daemon.closed(finding.id, seconds(2.0));
    assert_eq!((finding.proposed_action.as_str(), finding.action_taken), ("report", None));
    assert_eq!(daemon.snapshot().findings_of(FindingKind::Orphan).len(), 1);
}

#[test]
fn subreaper_does_not_hide_orphans() {
    let (mut stage, daemon) = Daemon::on_stage();
    let agent = stage.agent("spawn helper [ subreaper report reaper fork [ fork [ report ward hold ] ] hold ] hold");
    let [reaper, ward] = ["reaper", "ward"].map(|name| stage.reported(name));
    daemon.eventually(seconds(1.0), "the ward", |snapshot| snapshot.process(ward).map(drop));

    stage.kill(agent);

    daemon.eventually(seconds(1.0), "both are orphans of one group", |snapshot| one_group(snapshot, &[reaper, ward]));
}

#[test]
fn inner_agents_orphans_are_separate() {
    let mut stage = Stage::new();
    let other = format!("other-{}", stage.agent_name());
    stage.install(&other);
    let profile = format!("[[profile]]\nname = \"other\"\nexe = [\"*/{other}\"]\n");
    let daemon = Daemon::configured(&stage, &profile);
    let outer = stage.agent(&format!(
        "fork [ report outer-helper hold ] spawn {other} [ report inner fork [ report leaf hold ] hold ] hold"
    ));
    let [helper, inner, leaf] = ["outer-helper", "inner", "leaf"].map(|name| stage.reported(name));
    daemon.eventually(seconds(1.0), "both sessions", |snapshot| {
        snapshot.session(inner).and(snapshot.process(leaf)).map(drop)
    });

    stage.kill(inner);

    let finding = daemon.eventually(seconds(1.0), "the leaf is an orphan", |snapshot| one_group(snapshot, &[leaf]));
    let snapshot = daemon.snapshot();
    assert_eq!(snapshot.process(helper).map(|process| process.state), Some(ProcessState::Running));
    assert_eq!(snapshot.session(outer).map(|session| session.state), Some(SessionState::Running));
    assert_ne!(finding.session, snapshot.session(outer).map(|session| session.id));
}

#[test]
fn parentless_helper_is_detached() {
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, "[orphans]\ndetached_after = \"2s\"\ndetached_memory = \"0B\"\n");
    stage.agent("spawn helper [ report parent spawn helper [ report child hold ] await go ] hold");
    let child = stage.reported("child");
    daemon.eventually(seconds(1.0), "the child", |snapshot| snapshot.process(child).map(drop));

    stage.mark("go");

    let finding = daemon.eventually(seconds(5.0), "a detached helper", |snapshot| {
        let state = snapshot.process(child)?.state;
        let open = snapshot.open(FindingKind::Detached);
        let found = open
            .iter()
            .find(|finding| finding.pid == child.pid || names(&Value::Object(finding.evidence.to_map()), child))?;
        (state == ProcessState::Detached).then(|| (*found).clone())
    });
    assert_eq!(finding.proposed_action, "report");
    assert_eq!(daemon.snapshot().findings_of(FindingKind::Orphan).len(), 0);
}

/// An agent in a terminal, started by a shell that dies with the window.
fn agent_in_a_terminal(stage: &mut Stage, daemon: &Daemon, hangup: &str) -> (std::fs::File, ProcessKey) {
    let (master, terminal) = open_terminal();
    stage.start("helper", &format!("terminal {terminal} {hangup} spawn AGENT [ {hangup} report agent hold ] hold"));
    let agent = stage.reported("agent");
    daemon.eventually(seconds(1.0), "the agent", |snapshot| snapshot.session(agent).map(drop));
    let findings = |snapshot: &Snapshot| snapshot.findings_of(FindingKind::Abandoned).first().map(|_| ());
    // Meanwhile the agent is inspected.
    daemon.never(seconds(0.8), "abandoned while its terminal is there", findings);
    (master, agent)
}

#[test]
fn agent_without_terminal_is_abandoned() {
    let (mut stage, daemon) = Daemon::on_stage();
    // As agents do that want to save their state before they end, and then don't.
    let (master, agent) = agent_in_a_terminal(&mut stage, &daemon, "catch-hup");

    drop(master);

    let finding = daemon.eventually(seconds(5.0), "an abandoned agent", |snapshot| {
        snapshot.open(FindingKind::Abandoned).first().map(|finding| (*finding).clone())
    });
    assert_eq!((finding.pid, finding.start_time), (agent.pid, agent.start_time));
    assert_eq!(finding.proposed_action, "report", "an agent without a terminal may be wanted");
    assert!(is_alive(agent));
}

#[test]
fn nohup_agent_is_not_abandoned() {
    let (mut stage, daemon) = Daemon::on_stage();
    let (master, agent) = agent_in_a_terminal(&mut stage, &daemon, "ignore-hup");

    drop(master);

    daemon.never(Duration::from_secs(3), "nohup says that it should continue", |snapshot| {
        snapshot.open(FindingKind::Abandoned).first().map(drop)
    });
    assert!(is_alive(agent));
}

/// A pseudo-terminal: its master, and the path of its other end.
fn open_terminal() -> (std::fs::File, String) {
    use std::os::fd::FromRawFd;
    // SAFETY: plain system calls on a descriptor that is new; the File is its only owner.
    unsafe {
        let master = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
        assert_ne!(master, -1, "posix_openpt: {}", std::io::Error::last_os_error());
        assert_eq!(libc::grantpt(master) + libc::unlockpt(master), 0);
        let mut name = [0; 64];
        assert_eq!(libc::ptsname_r(master, name.as_mut_ptr(), name.len()), 0);
        let name = std::ffi::CStr::from_ptr(name.as_ptr()).to_str().expect("a path").to_owned();
        (std::fs::File::from_raw_fd(master), name)
    }
}

#[test]
fn stopped_orphan_stays_orphan() {
    let (mut stage, daemon) = Daemon::on_stage();
    let agent = stage.agent("fork [ report helper hold ] hold");
    let helper = stage.reported("helper");
    daemon.eventually(seconds(1.0), "the helper", |snapshot| snapshot.process(helper).map(drop));
    stage.kill(agent);
    let finding = daemon.eventually(seconds(1.0), "an orphan", |snapshot| one_group(snapshot, &[helper]));

    stage.signal(helper, Signal::STOP);

    daemon.never(Duration::from_millis(1_500), "closed without a reason", |snapshot| {
        snapshot.findings.iter().find(|f| f.id == finding.id && f.closed_at.is_some()).map(drop)
    });
}

#[test]
fn late_daemon_proposes_nothing() {
    let mut stage = Stage::new();
    let agent = stage.agent("spawn helper [ report helper hold ] hold");
    let helper = stage.reported("helper");
    stage.kill(agent);
    poll(seconds(5.0), || (!is_alive(agent)).then_some(())).expect("it exits");

    let daemon = Daemon::watching(&stage);

    daemon.never(seconds(1.0), "a verdict on a process of unknown lineage", |snapshot| {
        snapshot.process(helper).map(drop)
    });
    assert!(is_alive(helper));
}
