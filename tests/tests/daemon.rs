//! The daemon's own life: start, readiness, reload, stop, and what it does without its privileges.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use watchdog::api::FindingKind;
use watchdog_tests::{Daemon, NOBODY, Options, Stage, get, limit, poll, raw_tcp, seconds};

#[test]
fn sigterm_ends_it_within_a_second_and_its_socket_with_it() {
    for signal in [Signal::TERM, Signal::INT] {
        let stage = Stage::new();
        let mut daemon = Daemon::watching(&stage);
        assert!(daemon.socket().exists());

        daemon.send(signal);

        let status = daemon.wait(seconds(1.0)).unwrap_or_else(|| panic!("it goes on\n{}", daemon.log()));
        assert_eq!(status.code(), Some(0), "{}", daemon.log());
        assert!(!daemon.socket().exists(), "the socket is left behind");
    }
}

#[test]
fn sigterm_ends_it_also_while_clients_hang_on() {
    let stage = Stage::new();
    let mut daemon = Daemon::watching(&stage);
    let mut follower = daemon.follow(&["events", "--follow"]);
    let _half = std::os::unix::net::UnixStream::connect(daemon.socket()).expect("the socket");
    std::thread::sleep(Duration::from_millis(200));

    daemon.send(Signal::TERM);

    let status = daemon.wait(seconds(1.0)).unwrap_or_else(|| panic!("it goes on\n{}", daemon.log()));
    assert_eq!(status.code(), Some(0), "{}", daemon.log());
    let ended = poll(limit(Duration::from_secs(3)), || follower.try_wait().expect("our child"));
    if ended.is_none() {
        follower.kill().expect("our child");
    }
    assert!(ended.is_some(), "a follower of a daemon that is gone does not wait for ever");
}

#[test]
fn a_second_one_on_the_same_runtime_directory_is_refused() {
    let stage = Stage::new();
    let daemon = Daemon::watching(&stage);

    let second = daemon.second();

    assert!(second.code > 0, "{second:?}");
    assert!(
        second.stderr.contains(daemon.socket().parent().expect("a directory").to_str().expect("a path")),
        "{second:?}"
    );
    assert_eq!(get(&daemon.socket(), "/v1/status").expect("the first one goes on").status, 200);
}

#[test]
fn one_that_was_killed_does_not_keep_the_next_from_starting() {
    let stage = Stage::new();
    let mut daemon = Daemon::watching(&stage);
    daemon.send(Signal::KILL);
    assert!(daemon.wait(seconds(2.0)).is_some());
    assert!(daemon.socket().exists(), "nobody was there to remove it");

    daemon.restart();

    assert_eq!(get(&daemon.socket(), "/v1/status").expect("an answer").status, 200);
}

#[test]
fn a_bad_configuration_is_refused_and_the_old_one_stays() {
    let mut stage = Stage::new();
    let daemon = Daemon::watching(&stage);

    daemon.reload("[orphans]\ngrace = \"2s\"\ngrase = \"3s\"\n");

    let refused = poll(seconds(3.0), || daemon.log().contains("grase").then_some(()));
    assert!(refused.is_some(), "the log names the key that is wrong\n{}", daemon.log());
    // The profile of this stage's agent is still there.
    let agent = stage.agent("hold");
    daemon.eventually(seconds(1.0), "an agent by the old configuration", |look| look.session(agent).map(drop));
}

#[test]
fn a_good_configuration_is_taken_at_once() {
    let mut stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    let other = format!("late-{}", stage.agent_name());
    stage.install(&other);
    let old = stage.agent("hold");
    daemon.eventually(seconds(1.0), "an agent", |look| look.session(old).map(drop));

    daemon.reload(&format!("[[profile]]\nname = \"late\"\nexe = [\"*/{other}\"]\n"));

    let new = poll(seconds(5.0), || {
        let agent = stage.start(&other, "hold");
        poll(seconds(0.3), || daemon.look().session(agent).map(|session| session.profile.clone()))
    });
    assert_eq!(new.as_deref(), Some("late"), "{}", daemon.log());
    assert!(daemon.look().session(old).is_some(), "what is recognised already stays so");
}

#[test]
fn a_bad_configuration_file_stops_the_start_and_says_where() {
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
fn metrics_have_the_names_of_the_contract() {
    let mut stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    let agent = stage.agent("fork [ report helper hold ] hold");
    let helper = stage.reported("helper");
    daemon.eventually(seconds(1.0), "the helper", |look| look.process(helper).map(drop));
    stage.kill(agent);
    daemon.eventually(seconds(1.0), "an orphan", |look| look.open(FindingKind::Orphan).first().map(drop));

    let health = raw_tcp(daemon.metrics_address(), "/healthz").expect("an answer");
    assert_eq!(health.status, 200);
    let expected = [
        "agent_watchdog_sessions{profile=\"test\",state=\"orphaned\"} 1",
        "agent_watchdog_processes{kind=",
        "agent_watchdog_session_memory_bytes{profile=\"test\"}",
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
    let shown = poll(seconds(3.0), || {
        let metrics = daemon.metrics();
        expected.iter().all(|line| metrics.contains(line)).then_some(())
    });
    let metrics = daemon.metrics();
    let missing: Vec<_> = expected.iter().filter(|line| !metrics.contains(**line)).collect();
    assert!(shown.is_some(), "no {missing:?} in\n{metrics}");
    assert!(!metrics.contains(&helper.pid.to_string()) || !metrics.contains("pid="), "a pid is no label");
}

#[test]
fn doctor_says_of_each_capability_whether_it_is_there() {
    let stage = Stage::new();
    let daemon = Daemon::watching(&stage);

    let text = daemon.ctl_text(&["doctor"]);
    let json = daemon.ctl(&["doctor"]).json();

    assert!([0, 1].contains(&text.code), "{text:?}");
    let capabilities = json["capabilities"].as_array().unwrap_or_else(|| panic!("no capabilities in {json}"));
    for name in ["btf", "ring_buffer", "psi", "cgroup_v2"] {
        let found = capabilities.iter().find(|capability| capability["name"] == name);
        let found = found.unwrap_or_else(|| panic!("doctor does not tell of {name}: {json}"));
        assert!(found["on"].is_boolean() && found["why"].is_string(), "{found}");
        assert!(text.stdout.contains(name), "{text:?}");
    }
    let status = daemon.status();
    assert!(!status.degraded && status.tracking.kernel_events, "{status:?}");
}

#[test]
fn without_root_it_says_what_is_missing_and_looks_at_proc() {
    let mut stage = Stage::new();
    let daemon = Daemon::with(&stage, &Options { uid: Some(NOBODY), ..Options::default() });

    let status = daemon.status();
    assert!(status.degraded && !status.tracking.kernel_events, "{status:?}");
    let missing = status.capabilities.iter().filter(|capability| !capability.on);
    assert!(missing.clone().any(|capability| capability.remedy.is_some()), "{status:?}");
    let log = daemon.log();
    assert!(log.contains("degraded"), "{log}");

    stage.start("helper", "uid 65534 exec AGENT [ report agent spawn helper [ report helper hold ] hold ]");
    let (agent, helper) = (stage.reported("agent"), stage.reported("helper"));
    daemon.eventually(seconds(5.0), "a tree from /proc", |look| {
        look.session(agent).filter(|session| session.processes.iter().any(|p| p.pid == helper.pid)).map(drop)
    });
    stage.kill(agent);
    daemon.eventually(seconds(5.0), "an orphan, seen by a look at /proc", |look| {
        look.open(FindingKind::Orphan).first().map(drop)
    });
}

#[test]
fn a_daemon_that_is_not_there_is_told_apart_from_a_refusal() {
    let stage = Stage::new();
    let mut daemon = Daemon::watching(&stage);
    daemon.send(Signal::TERM);
    assert!(daemon.wait(seconds(2.0)).is_some());

    let answer = daemon.ctl(&["status"]);

    assert_eq!(answer.code, 69, "{answer:?}");
    assert!(answer.stderr.contains("control.sock"), "it says where it looked: {answer:?}");
    assert_eq!(daemon.ctl(&["no-such-command"]).code, 2);
}

#[test]
fn a_follower_hears_of_events_as_they_happen() {
    let mut stage = Stage::new();
    let daemon = Daemon::watching(&stage);
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
    std::thread::sleep(seconds(0.3));

    stage.agent("spawn helper [ report helper hold ] hold");
    let helper = stage.reported("helper");

    let end = Instant::now() + seconds(2.0);
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
    assert!(heard.iter().any(|event| event["type"] == "session_started"), "{heard:?}");
    assert!(heard.iter().any(|event| event["type"] == "exec" && event["pid"] == helper.pid), "{heard:?}");
}
