//! Start, readiness, reload and stop of the daemon, and operation without privileges.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use watchdog_api::FindingKind;
use watchdog_tests::{Daemon, DaemonOptions, NOBODY, Stage, get, limit, poll, raw_tcp, seconds};

#[test]
fn sigterm_stops_within_a_second() {
    let times = [Signal::TERM, Signal::INT].map(|signal| {
        let stage = Stage::new();
        let mut daemon = Daemon::watching(&stage);
        assert!(daemon.socket().exists());

        let asked = Instant::now();
        daemon.send(signal);

        let status = daemon.wait(seconds(10.0)).unwrap_or_else(|| panic!("it still runs\n{}", daemon.log()));
        let took = asked.elapsed();
        assert_eq!(status.code(), Some(0), "{}", daemon.log());
        assert!(!daemon.socket().exists(), "the socket is left behind");
        took
    });
    assert!(times.iter().any(|took| *took < seconds(1.0)), "{times:?}");
}

#[test]
fn sigterm_stops_despite_clients() {
    let (_stage, mut daemon) = Daemon::on_stage();
    let mut follower = daemon.follow(&["events", "--follow"]);
    let _half = std::os::unix::net::UnixStream::connect(daemon.socket()).expect("the socket");
    std::thread::sleep(Duration::from_millis(200));

    daemon.send(Signal::TERM);

    let status = daemon.wait(seconds(5.0)).unwrap_or_else(|| panic!("it still runs\n{}", daemon.log()));
    assert_eq!(status.code(), Some(0), "{}", daemon.log());
    let ended = poll(limit(Duration::from_secs(3)), || follower.try_wait().expect("our child"));
    if ended.is_none() {
        follower.kill().expect("our child");
    }
    assert!(ended.is_some(), "a follower of a stopped daemon does not wait for ever");
}

#[test]
fn second_daemon_is_refused() {
    let (_stage, daemon) = Daemon::on_stage();

    let second = daemon.second();

    assert!(second.code > 0, "{second:?}");
    assert!(
        second.stderr.contains(daemon.socket().parent().expect("a directory").to_str().expect("a path")),
        "{second:?}"
    );
    assert_eq!(get(&daemon.socket(), "/v1/status").expect("the first one continues").status, 200);
}

#[test]
fn killed_daemon_can_be_restarted() {
    let (_stage, mut daemon) = Daemon::on_stage();
    daemon.send(Signal::KILL);
    assert!(daemon.wait(seconds(2.0)).is_some());
    assert!(daemon.socket().exists(), "no daemon removed it");

    daemon.restart();

    assert_eq!(get(&daemon.socket(), "/v1/status").expect("an answer").status, 200);
}

#[test]
fn invalid_reload_keeps_old_configuration() {
    let (mut stage, daemon) = Daemon::on_stage();

    daemon.reload("[orphans]\ngrace = \"2s\"\ngrase = \"3s\"\n");

    let refused = poll(seconds(3.0), || daemon.log().contains("grase").then_some(()));
    assert!(refused.is_some(), "the log names the key that is wrong\n{}", daemon.log());
    // The profile of this stage's agent is still there.
    let agent = stage.agent("hold");
    daemon.eventually(seconds(1.0), "an agent by the old configuration", |snapshot| snapshot.session(agent).map(drop));
}

#[test]
fn valid_reload_applies_at_once() {
    let (mut stage, daemon) = Daemon::on_stage();
    let other = format!("late-{}", stage.agent_name());
    stage.install(&other);
    let old = stage.agent("hold");
    daemon.eventually(seconds(1.0), "an agent", |snapshot| snapshot.session(old).map(drop));

    daemon.reload(&format!("[[profile]]\nname = \"late\"\nexe = [\"*/{other}\"]\n"));

    let new = poll(seconds(5.0), || {
        let agent = stage.start(&other, "hold");
        poll(seconds(0.3), || daemon.snapshot().session(agent).map(|session| session.profile.clone()))
    });
    assert_eq!(new.as_deref(), Some("late"), "{}", daemon.log());
    assert!(daemon.snapshot().session(old).is_some(), "what is recognised already stays so");
}

#[test]
fn config_set_reloads_the_daemon() {
    let (_stage, daemon) = Daemon::on_stage();

    let answer = daemon.ctl(&["config", "set", "actions.enforce", "true"]);

    assert_eq!((answer.code, &answer.json()["reload"]["result"]), (0, &"accepted".into()), "{answer:?}");
    let config = daemon.status().config.expect("a daemon of this version");
    assert_eq!((config.file.as_str(), config.enforce), (daemon.config().to_str().expect("a path"), true));
    let before = std::fs::read_to_string(daemon.config()).expect("a configuration");

    let answer = daemon.ctl_text(&["config", "set", "orphans.grace", "soon"]);

    assert!(answer.code == 1 && answer.stderr.contains("grace: \"soon\" is not a duration"), "{answer:?}");
    assert_eq!(std::fs::read_to_string(daemon.config()).expect("a configuration"), before);
    assert_eq!(daemon.status().config.map(|config| config.reloads), Some(config.reloads));
}

#[test]
fn rejected_reload_is_shown_by_doctor() {
    let (_stage, daemon) = Daemon::on_stage();

    daemon.reload("[orphans]\ngrase = \"3s\"\n");

    let rejected = || daemon.status().config.filter(|config| config.problem.is_some());
    let problem = poll(seconds(3.0), rejected).and_then(|config| config.problem);
    assert!(problem.as_ref().is_some_and(|problem| problem.contains("grase")), "{problem:?}");
    let doctor = daemon.ctl_text(&["doctor"]);
    assert!(doctor.stdout.contains("watchdogctl config check"), "{doctor:?}");
}

#[test]
fn script_behind_shell_is_an_agent() {
    let stage = Stage::new();
    let script = stage.directory().join("hold-agent.sh");
    std::fs::write(&script, "read line\n").expect("a script");
    let config = format!("[[profile]]\nname = \"shell\"\nscript = [\"{}\"]\n", script.display());
    let daemon = Daemon::configured(&stage, &config);

    let mut shell = std::process::Command::new("/bin/sh");
    let mut agent = shell.arg(&script).stdin(std::process::Stdio::piped()).spawn().expect("a shell");

    let profile = poll(seconds(3.0), || {
        let tree: watchdog_api::Tree = serde_json::from_value(daemon.get("/v1/tree")).expect("a tree");
        let is_ours = |session: &&watchdog_api::Session| session.processes.iter().any(|one| one.pid == agent.id());
        tree.sessions.iter().find(is_ours).map(|session| session.profile.clone())
    });
    drop(agent.stdin.take());
    agent.wait().expect("the shell ends");
    assert_eq!(profile.as_deref(), Some("shell"), "{}", daemon.log());
}

#[test]
fn invalid_configuration_stops_start() {
    let stage = Stage::new();
    let file = stage.directory().join("bad.toml");
    std::fs::write(&file, "[orphans]\ngrace = \"soon\"\n").expect("a file");
    let daemon = Daemon::watching(&stage);

    let answer = daemon.ctl_text(&["config", "check", file.to_str().expect("a path")]);

    assert_eq!(answer.code, 1, "{answer:?}");
    for part in ["bad.toml", "2", "grace", "30s"] {
        assert!(answer.stderr.contains(part) || answer.stdout.contains(part), "no {part:?} in {answer:?}");
    }
    let good = daemon.ctl_text(&["config", "check", daemon.config().to_str().expect("a path")]);
    assert_eq!(good.code, 0, "{good:?}");
}

#[test]
fn metric_names_follow_contract() {
    let (mut stage, daemon) = Daemon::on_stage();
    let agent = stage.agent("fork [ report helper hold ] hold");
    let helper = stage.reported("helper");
    daemon.eventually(seconds(1.0), "the helper", |snapshot| snapshot.process(helper).map(drop));
    stage.kill(agent);
    daemon.eventually(seconds(1.0), "an orphan", |snapshot| snapshot.open(FindingKind::Orphan).first().map(drop));

    let health = raw_tcp(daemon.metrics_address(), "/healthz").expect("an answer");
    assert_eq!(health.status, 200);
    let expected = [
        "agent_watchdog_sessions{profile=\"test\",state=\"orphaned\"} 1",
        "agent_watchdog_processes{kind=",
        "agent_watchdog_session_memory_bytes{profile=\"test\"}",
        "agent_watchdog_orphan_memory_bytes{profile=\"test\"}",
        "agent_watchdog_agent_deaths_total{cause=\"killed\"} 1",
        "agent_watchdog_host_memory_total_bytes ",
        "agent_watchdog_gate_sessions_limit inf",
        "agent_watchdog_config_last_reload_successful 1",
        "process_resident_memory_bytes ",
        "agent_watchdog_findings{kind=\"orphan\"} 1",
        "agent_watchdog_findings_total{kind=\"orphan\"} 1",
        "agent_watchdog_events_total{type=\"fork\"}",
        "agent_watchdog_lost_events_total 0",
        "agent_watchdog_detection_latency_seconds_count 1",
        "agent_watchdog_host_memory_available_bytes ",
        "agent_watchdog_oom_kills_total ",
        "agent_watchdog_breaker_open 0",
        "agent_watchdog_build_info{",
    ];
    let shown = poll(seconds(10.0), || {
        let metrics = daemon.metrics();
        expected.iter().all(|line| metrics.contains(line)).then_some(())
    });
    let metrics = daemon.metrics();
    let missing: Vec<_> = expected.iter().filter(|line| !metrics.contains(**line)).collect();
    assert!(shown.is_some(), "no {missing:?} in\n{metrics}");
    assert!(!metrics.contains(&helper.pid.to_string()) || !metrics.contains("pid="), "a pid is no label");

    daemon.reload("[gate]\nmax_sessions = -1\n");
    let refused = || daemon.metrics().contains("agent_watchdog_config_last_reload_successful 0\n").then_some(());
    assert!(poll(seconds(3.0), refused).is_some(), "{}", daemon.metrics());
}

#[test]
fn doctor_reports_every_capability() {
    let (_stage, daemon) = Daemon::on_stage();

    let text = daemon.ctl_text(&["doctor"]);
    let json = daemon.ctl(&["doctor"]).json();

    assert!([0, 1].contains(&text.code), "{text:?}");
    let capabilities = json["capabilities"].as_array().unwrap_or_else(|| panic!("no capabilities in {json}"));
    for name in ["btf", "ring_buffer", "psi", "cgroup_v2"] {
        let found = capabilities.iter().find(|capability| capability["name"] == name);
        let found = found.unwrap_or_else(|| panic!("doctor has no row {name}: {json}"));
        assert!(found["on"].is_boolean() && found["why"].is_string(), "{found}");
        assert!(text.stdout.contains(name), "{text:?}");
    }
    let status = daemon.status();
    assert!(!status.degraded && status.tracking.kernel_events, "{status:?}");
}

#[test]
fn without_root_it_polls_proc() {
    let mut stage = Stage::new();
    let daemon = Daemon::with(&stage, &DaemonOptions { uid: Some(NOBODY), ..DaemonOptions::default() });

    let status = daemon.status();
    assert!(status.degraded && !status.tracking.kernel_events, "{status:?}");
    let missing = status.capabilities.iter().filter(|capability| !capability.on);
    assert!(missing.clone().any(|capability| capability.remedy.is_some()), "{status:?}");
    let log = daemon.log();
    assert!(log.contains("degraded"), "{log}");

    stage.start("helper", "uid 65534 exec AGENT [ report agent spawn helper [ report helper hold ] hold ]");
    let (agent, helper) = (stage.reported("agent"), stage.reported("helper"));
    daemon.eventually(seconds(5.0), "a tree from /proc", |snapshot| {
        snapshot.session(agent).filter(|session| session.processes.iter().any(|p| p.pid == helper.pid)).map(drop)
    });
    stage.kill(agent);
    daemon.eventually(seconds(5.0), "an orphan, seen by a look at /proc", |snapshot| {
        snapshot.open(FindingKind::Orphan).first().map(drop)
    });
}

#[test]
fn unreachable_daemon_differs_from_refusal() {
    let (_stage, mut daemon) = Daemon::on_stage();
    daemon.send(Signal::TERM);
    assert!(daemon.wait(seconds(2.0)).is_some());

    let answer = daemon.ctl(&["status"]);

    assert_eq!(answer.code, 69, "{answer:?}");
    assert!(answer.stderr.contains("control.sock"), "it says where it looked: {answer:?}");
    assert_eq!(daemon.ctl(&["no-such-command"]).code, 2);
}

#[test]
fn follower_receives_events_live() {
    let (mut stage, daemon) = Daemon::on_stage();
    let mut follower = daemon.follow(&["events", "--follow"]);
    let output = BufReader::new(follower.stdout.take().expect("a piped output"));
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    // What happens before the client has connected is not sent.
    let connected = poll(seconds(10.0), || {
        stage.agent("sleep 0.1");
        receive.recv_timeout(Duration::from_millis(100)).ok()
    });
    connected.expect("an event");

    let agent = stage.agent("spawn helper [ report helper hold ] hold");
    let helper = stage.reported("helper");

    let end = Instant::now() + seconds(10.0);
    let mut heard = Vec::new();
    while let Ok(line) = receive.recv_timeout(end.saturating_duration_since(Instant::now())) {
        let event: serde_json::Value = serde_json::from_str(&line).expect("one JSON object a line");
        let done = event["type"] == "exec" && event["pid"] == helper.pid;
        heard.push(event);
        if done {
            break;
        }
    }
    follower.kill().expect("our child");
    follower.wait().expect("our child");
    let started = |event: &serde_json::Value| event["type"] == "session_started" && event["pid"] == agent.pid;
    assert!(heard.iter().any(started), "{heard:?}");
    assert!(heard.iter().any(|event| event["type"] == "exec" && event["pid"] == helper.pid), "{heard:?}");
}
