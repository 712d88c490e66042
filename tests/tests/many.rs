//! Findings about numbers: stale, duplicate, fanout, overlimit and external. None proposes a termination.

use std::time::Duration;

use serde_json::Value;
use watchdog_api::{Finding, FindingKind, ProcessState};
use watchdog_tests::{Daemon, MIB, ProcessKey, Stage, evidence, seconds};

fn number(finding: &Finding, name: &str) -> u64 {
    evidence(finding, name)
}

/// Waits for the first open finding of a kind.
fn found(daemon: &Daemon, kind: FindingKind, within: Duration) -> Finding {
    daemon.eventually(within, kind.name(), |snapshot| snapshot.open(kind).first().map(|finding| (*finding).clone()))
}

#[test]
fn idle_superseded_helpers_are_stale() {
    let mut stage = Stage::new();
    for name in ["mcp-server-idle", "mcp-server-busy"] {
        stage.install(name);
    }
    let daemon = Daemon::configured(&stage, "[stale]\nidle = \"2s\"\n");
    let agent = stage.agent(
        "times 3 [ spawn mcp-server-idle [ report idle hold ] spawn mcp-server-busy [ report busy for 60 [ sleep 0.01 ] ] sleep 2.2 ] hold",
    );
    let (idle, busy) = (stage.all_reported("idle", 3), stage.all_reported("busy", 3));

    let finding = daemon.eventually(seconds(15.0), "two stale servers", |snapshot| {
        let open = snapshot.open(FindingKind::Stale);
        open.iter().find(|finding| number(finding, "count") == 2).map(|finding| (*finding).clone())
    });
    assert_eq!((finding.pid, finding.start_time), (idle[0].pid, idle[0].start_time), "the oldest");
    assert_eq!(number(&finding, "equals"), 3);
    assert_eq!(number(&finding, "parent_pid"), u64::from(agent.pid));
    assert_eq!(finding.proposed_action, "report");
    let snapshot = daemon.snapshot();
    let states = idle.iter().map(|server| snapshot.process(*server).map(|process| process.state));
    let (stale, running) = (Some(ProcessState::Stale), Some(ProcessState::Running));
    assert_eq!(states.collect::<Vec<_>>(), [stale, stale, running], "{}", daemon.describe(Some(&snapshot)));
    daemon.never(seconds(2.5), "a working server is stale", |snapshot| {
        let is_stale =
            |server: &ProcessKey| snapshot.process(*server).is_some_and(|process| process.state == ProcessState::Stale);
        busy.iter().any(is_stale).then_some(())
    });
    let shown = daemon.ctl_text(&["findings", "--all"]).stdout;
    assert!(shown.contains("idle mcp-server-idle"), "{shown}");

    stage.kill(idle[0]);
    stage.kill(idle[1]);
    daemon.closed(finding.id, seconds(5.0));
}

#[test]
fn server_of_two_agents_is_duplicate() {
    let mut stage = Stage::new();
    stage.install("mcp-server-notes");
    let daemon = Daemon::configured(&stage, "[duplicates]\nafter = \"1s\"\n");
    for other in ["30", "30", "31"] {
        stage.agent(&format!("spawn mcp-server-notes [ report server{other} anon {other} hold ] hold"));
    }
    let (same, _other) = (stage.all_reported("server30", 2), stage.reported("server31"));
    let oldest = same.iter().min_by_key(|server| (server.start_time, server.pid)).expect("two servers");

    let finding = daemon.eventually(seconds(10.0), "a duplicate with its memory", |snapshot| {
        let open = snapshot.open(FindingKind::Duplicate);
        open.first().filter(|finding| number(finding, "sharing_would_save_bytes") >= 29 * MIB).map(|f| (*f).clone())
    });
    assert_eq!((number(&finding, "count"), finding.pid), (2, oldest.pid), "another argument, another server");
    assert_eq!((finding.severity.name(), finding.proposed_action.as_str()), ("info", "report"));
    assert!(number(&finding, "memory_bytes") >= 59 * MIB, "{finding:?}");
}

#[test]
fn helper_burst_names_its_starter() {
    let mut stage = Stage::new();
    for name in ["mcp-server-notes", "make", "cc1plus"] {
        stage.install(name);
    }
    let daemon = Daemon::watching(&stage);
    let build = stage.agent("spawn make [ times 40 [ spawn cc1plus [ report compiler hold ] ] hold ] hold");
    let build_session = daemon.eventually(seconds(8.0), "the session of the build", |snapshot| {
        snapshot.session(build).map(|session| session.id)
    });
    let agent = stage.agent("times 11 [ spawn mcp-server-notes [ report server anon 4 hold ] ] hold");
    stage.all_reported("compiler", 40);
    stage.all_reported("server", 11);

    let finding = found(&daemon, FindingKind::Fanout, seconds(8.0));
    assert_eq!((finding.pid, finding.proposed_action.as_str()), (agent.pid, "report"));
    assert_eq!((number(&finding, "helpers"), number(&finding, "helpers_limit")), (11, 10));
    assert_eq!(evidence::<Value>(&finding, "started_by")[0]["pid"], agent.pid);
    daemon.never(seconds(1.5), "a build is a burst", |snapshot| {
        let of_build = |finding: &&&Finding| finding.session == Some(build_session);
        snapshot.findings_of(FindingKind::Fanout).iter().find(of_build).map(drop)
    });
}

#[test]
fn workers_of_command_form_burst() {
    let mut stage = Stage::new();
    for name in ["pytest", "worker"] {
        stage.install(name);
    }
    let daemon = Daemon::watching(&stage);
    stage.agent("spawn pytest [ report command times 32 [ spawn worker [ report worker anon 14 hold ] ] hold ] hold");
    let command = stage.reported("command");
    let workers = stage.all_reported("worker", 32);

    let finding = daemon.eventually(seconds(10.0), "a burst with its memory", |snapshot| {
        let open = snapshot.open(FindingKind::Fanout);
        open.first().filter(|finding| number(finding, "memory_bytes") >= 32 * 14 * MIB).map(|it| (*it).clone())
    });
    assert_eq!((finding.pid, finding.start_time), (command.pid, command.start_time));
    assert_eq!((number(&finding, "workers"), number(&finding, "workers_limit")), (32, 24));
    assert!(finding.summary.starts_with("32 worker workers of pytest"), "{}", finding.summary);
    let shown = daemon.ctl_text(&["explain", &workers[0].pid.to_string()]).stdout;
    assert!(shown.contains("fanout"), "{shown}");

    workers.into_iter().for_each(|worker| stage.kill(worker));
    daemon.closed(finding.id, seconds(10.0));
    let kinds = [FindingKind::Fanout, FindingKind::Leak];
    let all: usize = kinds.iter().map(|kind| daemon.snapshot().findings_of(*kind).len()).sum();
    assert_eq!(all, 1);
}

#[test]
fn protected_agent_is_reported() {
    let mut stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    let agent = stage.agent("await go spawn helper [ report helper hold ] hold");
    let file = format!("/proc/{}/oom_score_adj", agent.pid);
    if let Err(error) = std::fs::write(&file, "-700") {
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
        eprintln!("skipped: lowering oom_score_adj needs CAP_SYS_RESOURCE: {error}");
        return;
    }
    // Its first helper lets the daemon inspect it again.
    stage.mark("go");
    stage.reported("helper");
    let finding = found(&daemon, FindingKind::Protected, seconds(8.0));
    assert_eq!((finding.pid, evidence::<i32>(&finding, "oom_score_adj")), (agent.pid, -700));
    assert_eq!((finding.severity.name(), finding.proposed_action.as_str()), ("warning", "report"));

    // Others of the same user, and a helper whose agent is not protected, are part of the same finding.
    let others: Vec<ProcessKey> = (0..4).map(|_| stage.agent("oom-score -600 hold")).collect();
    let ordinary = stage.agent("spawn helper [ oom-score -900 exec helper [ report spared hold ] ] hold");
    let spared = stage.reported("spared");
    let finding = daemon.eventually(seconds(10.0), "one finding of all", |snapshot| {
        let open = snapshot.open(FindingKind::Protected);
        let all = open.len() == 1 && (number(open[0], "agents"), number(open[0], "helpers")) == (5, 1);
        all.then(|| open[0].clone())
    });
    let listed: Vec<Value> = evidence(&finding, "processes");
    let pids: Vec<u64> = listed.iter().filter_map(|process| process["pid"].as_u64()).collect();
    for process in others.iter().chain([&agent, &spared]) {
        assert!(pids.contains(&u64::from(process.pid)), "{process} is not among {listed:?}");
    }
    assert!(!pids.contains(&u64::from(ordinary.pid)), "{listed:?}");

    let user = daemon.status().users.remove(0);
    assert_eq!((user.protected, user.protected_helpers), (5, 1), "{user}");
    let snapshot = daemon.snapshot();
    let row = snapshot.process(spared).expect("it runs");
    assert_eq!(row.oom_score_adj, Some(-900));
    let tree = daemon.ctl_text(&["tree"]).stdout;
    assert_eq!(tree.matches("protected from the OOM killer (oom_score_adj").count(), 5, "{tree}");
    assert_eq!(tree.matches("(protected, oom_score_adj -900)").count(), 1, "{tree}");
    for command in ["doctor", "plan"] {
        let text = daemon.ctl_text(&[command]).stdout;
        let says = ["1 protected helper", "5 running agents and 1 helper have"].map(|says| text.contains(says));
        assert!(says.contains(&true), "{command}: {text}");
    }
}

#[test]
fn overlimit_reported_once_after_delay() {
    let mut stage = Stage::new();
    let name = format!("limited-{}", stage.agent_name());
    stage.install(&name);
    let daemon = Daemon::configured(
        &stage,
        &format!(
            "[[profile]]\nname = \"limited\"\nexe = [\"*/{name}\"]\nmax_process_memory = \"60MiB\"\nmax_memory = \"100MiB\"\n"
        ),
    );
    let agent = stage.start(
        &name,
        "spawn helper [ report burst anon 90 sleep 0.3 release hold ] spawn helper [ report large await go anon 80 hold ] hold",
    );
    let (burst, large) = (stage.reported("burst"), stage.reported("large"));
    daemon.never(Duration::from_secs(4), "a short burst is over a limit", |snapshot| {
        snapshot.findings_of(FindingKind::Overlimit).first().map(drop)
    });

    stage.mark("go");

    let finding = found(&daemon, FindingKind::Overlimit, seconds(10.0));
    assert_eq!((finding.pid, number(&finding, "limit_bytes")), (large.pid, 60 * MIB));
    assert!(number(&finding, "value_bytes") >= 80 * MIB, "{finding:?}");
    let session = daemon.snapshot().session(agent).map(|session| session.id);
    assert_eq!(finding.session, session);

    stage.kill(large);
    daemon.eventually(seconds(5.0), "it closes with its subject", |snapshot| {
        snapshot.findings_of(FindingKind::Overlimit).iter().all(|finding| finding.closed_at.is_some()).then_some(())
    });
    assert_eq!(daemon.snapshot().findings_of(FindingKind::Overlimit).len(), 1, "never the burst of {burst}");
}

#[test]
fn file_in_memory_is_named() {
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, "[external]\ntmpfs_growth = \"300MiB\"\n");
    let agent = stage.agent("hold");
    daemon.eventually(seconds(1.0), "the agent", |snapshot| snapshot.session(agent).map(drop));
    // The host's memory is looked at every second: what was there before has to be known.
    std::thread::sleep(seconds(2.5));
    let file = tempfile::Builder::new().prefix("watchdog-test-").tempfile_in("/dev/shm").expect("a tmpfs at /dev/shm");
    std::fs::write(file.path(), vec![1; 400 << 20]).expect("room");

    let finding = found(&daemon, FindingKind::External, seconds(8.0));
    assert_eq!((finding.session, finding.pid), (None, 0));
    assert!(number(&finding, "growth_bytes") >= 300 * MIB, "{finding:?}");
    assert_eq!(evidence::<Value>(&finding, "largest_file")["path"].as_str(), file.path().to_str());
    let session = daemon.snapshot().session(agent).map(|session| session.memory_bytes);
    assert!(session.is_some_and(|bytes| bytes < 100 * MIB), "{session:?}");

    drop(file);
    daemon.closed(finding.id, seconds(5.0));
}
