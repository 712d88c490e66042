//! Given many helpers of a kind, each of them as it should be: what was forgotten, what could be shared, what came at once,
//! and what is too much is told, with its numbers, and nothing is proposed.

use std::time::Duration;

use serde_json::Value;
use watchdog::api::{Finding, FindingKind, ProcessState};
use watchdog_tests::{Daemon, MIB, ProcessId, Stage, evidence, seconds};

fn number(finding: &Finding, name: &str) -> u64 {
    evidence(finding, name)
}

/// Waits for the first open finding of a kind.
fn found(daemon: &Daemon, kind: FindingKind, within: Duration) -> Finding {
    daemon.eventually(within, kind.name(), |look| look.open(kind).first().map(|finding| (*finding).clone()))
}

#[test]
fn idle_helpers_of_older_generations_are_stale_and_working_ones_are_not() {
    let mut stage = Stage::new();
    for name in ["mcp-server-idle", "mcp-server-busy"] {
        stage.install(name);
    }
    let daemon = Daemon::configured(&stage, "[stale]\nidle = \"2s\"\n");
    let agent = stage.agent(
        "times 3 [ spawn mcp-server-idle [ report idle hold ] spawn mcp-server-busy [ report busy for 60 [ sleep 0.01 ] ] sleep 2.2 ] hold",
    );
    let (idle, busy) = (stage.all_reported("idle", 3), stage.all_reported("busy", 3));

    let finding = daemon.eventually(seconds(15.0), "two stale servers", |look| {
        let open = look.open(FindingKind::Stale);
        open.iter().find(|finding| number(finding, "count") == 2).map(|finding| (*finding).clone())
    });
    assert_eq!((finding.pid, finding.start_time), (idle[0].pid, idle[0].start_time), "the oldest");
    assert_eq!(number(&finding, "equals"), 3);
    assert_eq!(number(&finding, "parent_pid"), u64::from(agent.pid));
    assert_eq!(finding.proposed_action, "report");
    let look = daemon.look();
    let states = idle.iter().map(|server| look.process(*server).map(|process| process.state));
    let (stale, running) = (Some(ProcessState::Stale), Some(ProcessState::Running));
    assert_eq!(states.collect::<Vec<_>>(), [stale, stale, running], "{}", daemon.describe(Some(&look)));
    daemon.never(seconds(2.5), "a working server is stale", |look| {
        let is_stale =
            |server: &ProcessId| look.process(*server).is_some_and(|process| process.state == ProcessState::Stale);
        busy.iter().any(is_stale).then_some(())
    });
    let shown = daemon.ctl_text(&["findings"]).stdout;
    assert!(shown.contains("idle mcp-server-idle"), "{shown}");

    stage.kill(idle[0]);
    stage.kill(idle[1]);
    daemon.closed(finding.id, seconds(5.0));
}

#[test]
fn the_same_server_for_two_agents_is_a_duplicate() {
    let mut stage = Stage::new();
    stage.install("mcp-server-notes");
    let daemon = Daemon::configured(&stage, "[duplicates]\nafter = \"1s\"\n");
    for other in ["30", "30", "31"] {
        stage.agent(&format!("spawn mcp-server-notes [ report server{other} anon {other} hold ] hold"));
    }
    let (same, _other) = (stage.all_reported("server30", 2), stage.reported("server31"));
    let oldest = same.iter().min_by_key(|server| (server.start_time, server.pid)).expect("two servers");

    let finding = daemon.eventually(seconds(10.0), "a duplicate with its memory", |look| {
        let open = look.open(FindingKind::Duplicate);
        open.first().filter(|finding| number(finding, "sharing_would_save_bytes") >= 29 * MIB).map(|f| (*f).clone())
    });
    assert_eq!((number(&finding, "count"), finding.pid), (2, oldest.pid), "another argument, another server");
    assert_eq!((finding.severity.name(), finding.proposed_action.as_str()), ("info", "report"));
    assert!(number(&finding, "memory_bytes") >= 59 * MIB, "{finding:?}");
}

#[test]
fn a_burst_of_helpers_is_told_with_who_started_it_and_a_build_is_none() {
    let mut stage = Stage::new();
    stage.install("mcp-server-notes");
    let daemon = Daemon::watching(&stage);
    let build = stage.agent("spawn helper [ times 40 [ spawn helper [ report compiler hold ] ] hold ] hold");
    let agent = stage.agent("times 11 [ spawn mcp-server-notes [ report server anon 4 hold ] ] hold");
    stage.all_reported("compiler", 40);
    stage.all_reported("server", 11);

    let finding = found(&daemon, FindingKind::Fanout, seconds(8.0));
    assert_eq!((finding.pid, finding.proposed_action.as_str()), (agent.pid, "report"));
    assert_eq!((number(&finding, "helpers"), number(&finding, "helpers_limit")), (11, 10));
    assert_eq!(evidence::<Value>(&finding, "started_by")[0]["pid"], agent.pid);
    daemon.never(seconds(1.5), "a build is a burst", |look| {
        look.findings_of(FindingKind::Fanout).iter().find(|finding| finding.pid == build.pid).map(drop)
    });
}

#[test]
fn what_is_over_its_limit_is_told_once_and_only_after_a_while() {
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
        "spawn helper [ report burst anon 90 sleep 1 release hold ] spawn helper [ report large await go anon 80 hold ] hold",
    );
    let (burst, large) = (stage.reported("burst"), stage.reported("large"));
    daemon.never(Duration::from_secs(4), "a burst of a second is over a limit", |look| {
        look.findings_of(FindingKind::Overlimit).first().map(drop)
    });

    stage.mark("go");

    let finding = found(&daemon, FindingKind::Overlimit, seconds(10.0));
    assert_eq!((finding.pid, number(&finding, "limit_bytes")), (large.pid, 60 * MIB));
    assert!(number(&finding, "value_bytes") >= 80 * MIB, "{finding:?}");
    let session = daemon.look().session(agent).map(|session| session.id);
    assert_eq!(finding.session, session);

    stage.kill(large);
    daemon.eventually(seconds(5.0), "it closes with its subject", |look| {
        look.findings_of(FindingKind::Overlimit).iter().all(|finding| finding.closed_at.is_some()).then_some(())
    });
    assert_eq!(daemon.look().findings_of(FindingKind::Overlimit).len(), 1, "never the burst of {burst}");
}

#[test]
fn a_file_in_memory_is_nobodys_and_named() {
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, "[external]\ntmpfs_growth = \"300MiB\"\n");
    let agent = stage.agent("hold");
    daemon.eventually(seconds(1.0), "the agent", |look| look.session(agent).map(drop));
    // The host's memory is looked at every second: what was there before has to be known.
    std::thread::sleep(seconds(2.5));
    let file = tempfile::Builder::new().prefix("watchdog-test-").tempfile_in("/dev/shm").expect("a tmpfs at /dev/shm");
    std::fs::write(file.path(), vec![1; 400 << 20]).expect("room");

    let finding = found(&daemon, FindingKind::External, seconds(8.0));
    assert_eq!((finding.session, finding.pid), (None, 0));
    assert!(number(&finding, "growth_bytes") >= 300 * MIB, "{finding:?}");
    assert_eq!(evidence::<Value>(&finding, "largest_file")["path"].as_str(), file.path().to_str());
    let session = daemon.look().session(agent).map(|session| session.memory_bytes);
    assert!(session.is_some_and(|bytes| bytes < 100 * MIB), "{session:?}");

    drop(file);
    daemon.closed(finding.id, seconds(5.0));
}
