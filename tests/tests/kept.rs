//! Orphans that are intended to stay are never proposed for termination.
#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use watchdog_api::{FindingKind, ProcessState};
use watchdog_tests::{Daemon, NOBODY, ProcessKey, Stage, is_alive, seconds};

/// An agent that leaves one process and dies; then longer than the grace.
///
/// `script` is done by the agent and has to report `kept`; `installed` are the programs that it spawns.
fn left_behind(installed: &[&str], script: &str, config: &str) -> (Stage, Daemon, ProcessKey) {
    let mut stage = Stage::new();
    for name in installed {
        stage.install(name);
    }
    let daemon = Daemon::configured(&stage, config);
    let agent = stage.agent(&format!("{script} hold"));
    let kept = stage.reported("kept");
    daemon.eventually(seconds(1.0), "the kept process", |snapshot| snapshot.process(kept).map(drop));
    stage.kill(agent);
    (stage, daemon, kept)
}

/// Asserts that it is shown as kept, with the reason, and never proposed.
fn is_kept(stage: &Stage, daemon: &Daemon, kept: ProcessKey) {
    daemon.eventually(seconds(2.0), "kept, with a reason", |snapshot| {
        snapshot
            .process(kept)
            .filter(|process| process.state == ProcessState::Kept && process.kept_because.is_some())
            .map(drop)
    });
    nothing_is_proposed(daemon);
    assert!(is_alive(kept), "{}", stage.log());
}

/// Watches for longer than the grace of 2 s.
fn nothing_is_proposed(daemon: &Daemon) {
    daemon.never(std::time::Duration::from_millis(2_600), "a kept process is proposed for ending", |snapshot| {
        snapshot.findings.iter().find(|finding| finding.proposed_action != "report").map(drop)
    });
    let open = daemon.snapshot().open(FindingKind::Orphan).len();
    assert_eq!(open, 0, "what is kept is no orphan\n{}", daemon.describe(Some(&daemon.snapshot())));
}

fn trap(installed: &[&str], script: &str) {
    let (stage, daemon, kept) = left_behind(installed, script, "");
    is_kept(&stage, &daemon, kept);
}

#[test]
fn tmux_server_with_panes() {
    let (stage, daemon, kept) = left_behind(
        &["tmux"],
        "fork [ fork [ setsid exec tmux [ rename tmux:~server fork [ setsid exec helper [ report pane hold ] ] report kept hold ] ] ] wait",
        "",
    );
    let pane = stage.reported("pane");
    is_kept(&stage, &daemon, kept);
    let snapshot = daemon.snapshot();
    assert!(
        snapshot.process(pane).is_none_or(|process| process.state != ProcessState::Orphaned),
        "a descendant of what is kept is no orphan\n{}",
        daemon.describe(Some(&snapshot))
    );
}

#[test]
fn screen_server() {
    trap(&["SCREEN"], "fork [ fork [ setsid exec SCREEN [ rename screen report kept hold ] ] ] wait");
}

#[test]
fn helper_under_nohup() {
    // By then the agent has been looked at, and it does not ignore SIGHUP itself.
    trap(&[], "fork [ fork [ ignore-hup sleep 2 exec helper [ report kept hold ] ] ] wait");
}

#[test]
fn tcp_service_in_own_session() {
    trap(&[], "fork [ fork [ setsid exec helper [ listen-tcp report kept hold ] ] ] wait");
}

#[test]
fn unix_service_in_own_session() {
    trap(&[], "fork [ fork [ setsid exec helper [ listen-unix service.sock report kept hold ] ] ] wait");
}

#[test]
fn gradle_daemon() {
    trap(
        &["java"],
        "fork [ spawn-as java [ -Xmx512m -cp gradle-launcher.jar org.gradle.launcher.daemon.bootstrap.GradleDaemon 8.5 ] [ setsid report kept hold ] ] wait",
    );
}

#[test]
fn bazel_server() {
    trap(
        &["bazel(project)"],
        "fork [ spawn-as bazel(project) [ -Xms1g -jar A-server.jar --max_idle_secs=10800 ] [ setsid report kept hold ] ] wait",
    );
}

#[test]
fn sccache_server() {
    trap(&["sccache"], "fork [ spawn-as sccache [ ] [ setsid report kept hold ] ] wait");
}

#[test]
fn msbuild_node() {
    trap(
        &["dotnet"],
        "fork [ spawn-as dotnet [ /usr/share/dotnet/sdk/8.0.100/MSBuild.dll /nologo /nodemode:1 /nodeReuse:true ] [ report kept hold ] ] wait",
    );
}

#[test]
fn ssh_agent() {
    trap(&["ssh-agent"], "fork [ fork [ setsid exec ssh-agent [ listen-unix agent.sock report kept hold ] ] ] wait");
}

/// It watches over a program and ends when that does, but for a moment in which it sends its report.
#[test]
fn crashpad_handler_within_grace() {
    let (stage, daemon, handler) = left_behind(
        &["chrome_crashpad_handler"],
        "fork [ spawn-as chrome_crashpad_handler [ --monitor-self --database=/tmp/crashes ] [ report kept hold ] ] wait",
        "[orphans]\ngrace = \"60s\"\n",
    );
    nothing_is_proposed(&daemon);
    assert!(is_alive(handler), "{}", stage.log());
}

#[test]
fn configured_program() {
    let config = "[orphans]\ngrace = \"2s\"\nkeep = [\"*/my-own-service\"]\n";
    let (stage, daemon, kept) = left_behind(&["my-own-service"], "spawn my-own-service [ report kept hold ]", config);
    is_kept(&stage, &daemon, kept);
}

#[test]
fn adopted_before_agent_dies() {
    let (mut stage, daemon) = Daemon::on_stage();
    let agent = stage.agent("spawn helper [ report kept hold ] hold");
    let kept = stage.reported("kept");
    daemon.eventually(seconds(1.0), "the helper", |snapshot| snapshot.process(kept).map(drop));

    let answer = daemon.ctl(&["adopt", &kept.pid.to_string()]);
    assert_eq!(answer.code, 0, "{answer:?}");
    stage.kill(agent);

    is_kept(&stage, &daemon, kept);
}

#[test]
fn adopted_after_agent_died() {
    let (stage, daemon, kept) = left_behind(&[], "spawn helper [ report kept hold ]", "");
    let finding = daemon
        .eventually(seconds(1.0), "an orphan", |snapshot| snapshot.open(FindingKind::Orphan).first().map(|f| f.id));

    let answer = daemon.ctl(&["adopt", &kept.pid.to_string()]);

    assert_eq!(answer.code, 0, "{answer:?}");
    daemon.closed(finding, seconds(1.0));
    is_kept(&stage, &daemon, kept);
}

#[test]
fn adopted_session() {
    let (mut stage, daemon) = Daemon::on_stage();
    let agent = stage.agent("fork [ report a hold ] fork [ report kept hold ] hold");
    let (a, kept) = (stage.reported("a"), stage.reported("kept"));
    let session = daemon.eventually(seconds(1.0), "both helpers", |snapshot| {
        snapshot.session(agent).filter(|s| s.processes.len() == 3).map(|s| s.id)
    });

    let answer = daemon.ctl(&["adopt", &format!("session:{session}")]);
    assert_eq!(answer.code, 0, "{answer:?}");
    stage.kill(agent);

    is_kept(&stage, &daemon, a);
    is_kept(&stage, &daemon, kept);
}

/// The other side: evidence that proves nothing keeps nothing.
#[test]
fn new_session_alone_is_not_kept() {
    let (_stage, daemon, left) = left_behind(&[], "fork [ fork [ setsid exec helper [ report kept hold ] ] ] wait", "");
    daemon.eventually(seconds(1.0), "an orphan", |snapshot| {
        snapshot.process(left).filter(|process| process.state == ProcessState::Orphaned).map(drop)
    });
}

/// SIGHUP that the agent ignored itself is inherited by all: it says nothing about the helper.
#[test]
fn inherited_ignored_signal_is_not_kept() {
    let (_stage, daemon, left) = left_behind(&[], "ignore-hup spawn helper [ report kept hold ]", "");
    daemon.eventually(seconds(1.0), "an orphan", |snapshot| {
        snapshot.process(left).filter(|process| process.state == ProcessState::Orphaned).map(drop)
    });
}

#[test]
fn dev_server_reported_never_proposed() {
    let (_stage, daemon, left) = left_behind(&[], "spawn helper [ listen-tcp report kept hold ]", "");
    daemon.eventually(seconds(1.0), "an orphan", |snapshot| {
        snapshot.process(left).filter(|process| process.state == ProcessState::Orphaned).map(drop)
    });
    daemon.never(
        std::time::Duration::from_millis(2_600),
        "evidence that does not decide proposes nothing",
        |snapshot| snapshot.findings.iter().find(|finding| finding.proposed_action != "report").map(drop),
    );
}

/// What an agent of an unprivileged user left behind, which executes a file of that user's.
fn forged(name: &str, script: &str) -> (Stage, Daemon, ProcessKey) {
    let mut stage = Stage::new();
    let own = stage.copy(name);
    std::os::unix::fs::chown(&own, Some(NOBODY), Some(NOBODY)).expect("another owner");
    let daemon = Daemon::configured(&stage, "[orphans]\nkept_memory_limit = \"100MiB\"\ngrace = \"2s\"\n");
    let agent = stage.start(
        "helper",
        &format!("uid 65534 exec AGENT [ report agent fork [ fork [ setsid exec {name} [ {script} report forger hold ] ] ] hold ]"),
    );
    let forger = stage.reported("forger");
    daemon.eventually(seconds(2.0), "the forger", |snapshot| snapshot.process(forger).map(drop));
    stage.kill(agent);
    (stage, daemon, forger)
}

fn is_in_doubt(daemon: &Daemon, process: ProcessKey) {
    daemon.eventually(seconds(5.0), "an orphan in doubt", |snapshot| {
        let orphaned = snapshot.process(process).is_some_and(|seen| seen.state == ProcessState::Orphaned);
        let finding = snapshot.open(FindingKind::Orphan).into_iter().next()?;
        (orphaned && finding.evidence.to_map()["processes"][0]["verdict"] == "unknown").then_some(())
    });
}

#[test]
fn forged_ssh_agent_is_in_doubt() {
    let (_stage, daemon, forger) = forged("ssh-agent", "");
    is_in_doubt(&daemon, forger);
}

#[test]
fn forged_comm_keeps_nothing() {
    let (_stage, daemon, forger) = forged("grow", "rename tmux:~server");
    daemon.eventually(seconds(8.0), "a proposal to end it", |snapshot| {
        let finding = snapshot.open(FindingKind::Orphan).into_iter().next()?;
        (finding.pid == forger.pid && finding.proposed_action == "terminate").then_some(())
    });
}

#[test]
fn large_service_is_finding_until_ended() {
    let (_stage, daemon, forger) = forged("service", "listen-tcp anon 150");

    daemon.eventually(seconds(15.0), "a finding about its memory", |snapshot| {
        let found = snapshot.open(FindingKind::Overlimit).into_iter().find(|finding| finding.pid == forger.pid)?;
        (found.evidence.to_map()["scope"] == "kept").then_some(())
    });
    is_in_doubt(&daemon, forger);
    let refused = daemon.ctl(&["end", &format!("pid:{}", forger.pid), "--yes"]);
    assert_eq!(refused.code, 2, "a pid needs --kept: {refused:?}");
    let ended = daemon.ctl(&["end", "--kept", &format!("pid:{}", forger.pid), "--yes"]);
    assert!(ended.code == 0 && !is_alive(forger), "{ended:?}");
}
