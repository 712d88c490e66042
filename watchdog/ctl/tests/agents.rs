//! `hook`, `statusline`, `queue` and `plan` against a daemon that answers, refuses or is silent.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, and not what they share")]

mod fake_daemon;

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rstest::rstest;
use serde_json::{Value, json};

use fake_daemon::{FakeDaemon, ctl, http, parts, run};

/// The exit code, standard output and standard error.
type Outcome = (i32, String, String);

/// What a run says when the daemon's answer was late: the hook waits 200 ms for it, `statusline` 100 ms.
const LATE: [&str; 3] = ["the gate was not asked", "watchdog: off", "watchdog: no response"];

/// The first run with an answer of the daemon, or the last run after 30 s.
fn answered(mut run: impl FnMut() -> Outcome) -> Outcome {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let outcome = run();
        let is_late = LATE.iter().any(|text| outcome.1.contains(text) || outcome.2.contains(text));
        if !is_late || Instant::now() > end {
            return outcome;
        }
    }
}

/// Runs the hook with this event.
fn hook(socket: &Path, agent: &str, event: &str) -> Outcome {
    let mut command = ctl(socket, &["hook", agent]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The hook may exit before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(event.as_bytes());
    parts(child.wait_with_output().unwrap())
}

/// A gate that allows or denies, and the calls that it received.
fn gate(allowed: bool) -> (FakeDaemon, Receiver<Value>) {
    let (sender, calls) = channel();
    let server = FakeDaemon::start(move |request, stream| {
        let body = request.strip_prefix("POST /v1/subagent HTTP/1.1 ").unwrap();
        // The client may have given up.
        let _ = sender.send(serde_json::from_str(body).unwrap());
        let answer = json!({
            "allowed": allowed, "reason": if allowed { Value::Null } else { json!("quota") },
            "detail": "3 of 3 subagents running, 1.2 GiB free", "running": 3, "max_subagents": 3,
            "retry_after_seconds": if allowed { Value::Null } else { json!(39.5) }, "session": 1,
        });
        let _ = stream.write_all(http("200 OK", &answer.to_string()).as_bytes());
    });
    (server, calls)
}

/// Runs the hook with a gate of its own that answers in time, and returns the calls that this gate received.
fn hook_with_gate(allowed: bool, agent: &str, event: &str) -> (Outcome, Vec<Value>) {
    let mut calls = Vec::new();
    let outcome = answered(|| {
        let (server, received) = gate(allowed);
        let outcome = hook(&server.socket(), agent, event);
        calls = received.try_iter().collect();
        outcome
    });
    (outcome, calls)
}

const STARTS: &str = r#"{"session_id":"s","hook_event_name":"PreToolUse","tool_name":"Agent","tool_use_id":"toolu_1",
"tool_input":{"prompt":"look","subagent_type":"Explore"}}"#;

#[test]
fn refused_subagent_is_denied() {
    let ((code, out, err), calls) = hook_with_gate(false, "claude-code", STARTS);
    assert_eq!((code, err.as_str()), (0, ""));
    let expected = json!({"hookSpecificOutput": {
        "hookEventName": "PreToolUse", "permissionDecision": "deny",
        "permissionDecisionReason": "3 of 3 subagents running, 1.2 GiB free, try again in 40 s",
    }});
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), expected);
    assert_eq!(calls, [json!({"event": "start", "call": "toolu_1"})]);

    let ((code, out, err), _) = hook_with_gate(false, "gemini-cli", r#"{"hook_event_name":"BeforeTool"}"#);
    assert_eq!((code, err.as_str()), (0, ""));
    let expected = json!({"decision": "deny", "reason": "3 of 3 subagents running, 1.2 GiB free, try again in 40 s"});
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), expected);
}

#[test]
fn allowed_subagent_has_no_output() {
    assert_eq!(hook_with_gate(true, "claude-code", STARTS).0, (0, String::new(), String::new()));
}

#[test]
fn ends_are_reported() {
    for (event, calls) in [
        (
            r#"{"hook_event_name":"PostToolUse","tool_name":"Task","tool_use_id":"t"}"#,
            vec![json!({"event":"stop","call":"t"})],
        ),
        (
            r#"{"hook_event_name":"PostToolUse","tool_name":"Agent","tool_use_id":"t",
                "tool_response":{"status":"async_launched","agentId":"a"}}"#,
            vec![json!({"event":"stop","call":"t"}), json!({"event":"background","call":"a"})],
        ),
        (
            r#"{"hook_event_name":"PermissionDenied","tool_name":"Agent","tool_use_id":"t","reason":"too broad"}"#,
            vec![json!({"event":"stop","call":"t"})],
        ),
        (r#"{"hook_event_name":"SubagentStop","agent_id":"a"}"#, vec![json!({"event":"stop","call":"a"})]),
        (r#"{"hook_event_name":"Stop"}"#, vec![json!({"event":"turn_end","call":null})]),
        (r#"{"hook_event_name":"SessionEnd","reason":"other"}"#, vec![json!({"event":"session_end","call":null})]),
        (r#"{"hook_event_name":"PreToolUse","tool_name":"Bash"}"#, vec![]),
    ] {
        let nothing = (0, String::new(), String::new());
        assert_eq!(hook_with_gate(true, "claude-code", event), (nothing, calls), "{event}");
    }
}

#[test]
fn large_answer_is_reported() {
    let event = json!({
        "hook_event_name": "PostToolUse", "tool_name": "Agent",
        "tool_response": {"status": "completed", "content": "x".repeat(5 << 20)}, "tool_use_id": "t",
    });
    let nothing = (0, String::new(), String::new());
    let calls = vec![json!({"event": "stop", "call": "t"})];
    assert_eq!(hook_with_gate(true, "claude-code", &event.to_string()), (nothing, calls));
}

#[test]
fn unreachable_daemon_does_not_stop_agent() {
    let directory = tempfile::tempdir().unwrap();
    let silent = directory.path().join("control.sock");
    let _listener = UnixListener::bind(&silent).unwrap();
    for socket in [silent.as_path(), Path::new("/nowhere")] {
        let runs = [(); 3].map(|()| {
            let began = Instant::now();
            (hook(socket, "claude-code", STARTS), began.elapsed())
        });
        // A busy machine delays a run. Other commands wait 10 s for a silent daemon.
        assert!(runs.iter().any(|(_, took)| *took < Duration::from_secs(5)), "{runs:?}");
        let [((code, out, err), _), ..] = runs;
        assert_eq!((code, err.lines().count()), (0, 1), "{err}");
        assert!(err.contains("the gate was not asked") && err.contains("the agent continues"), "{err}");
        let output: Value = serde_json::from_str(&out).unwrap();
        assert!(output["systemMessage"].as_str().unwrap().contains("the gate was not asked"), "{out}");
        assert_eq!(output.as_object().unwrap().len(), 1, "{out}");
    }
    let (code, out, err) = hook(Path::new("/nowhere"), "claude-code", r#"{"hook_event_name":"SessionEnd"}"#);
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(err.contains("the agent continues"), "{err}");
}

#[rstest]
#[case("")]
#[case("{")]
#[case("\u{1b}[2J")]
#[case("[1]")]
fn invalid_event_does_not_stop_agent(#[case] event: &str) {
    let (server, received) = gate(false);
    let (code, out, err) = hook(&server.socket(), "claude-code", event);
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(event == "[1]" || err.contains("not JSON"), "{err}");
    assert!(received.try_recv().is_err());
}

#[rstest]
#[case("claude-code", "PreToolUse")]
#[case("gemini-cli", "BeforeTool")]
fn print_settings_prints_only_settings(#[case] agent: &str, #[case] event: &str) {
    let (code, out, err) = run(Path::new("/nowhere"), &["hook", agent, "--print-settings"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let settings: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(settings["hooks"][event][0]["hooks"][0]["command"], format!("watchdogctl hook {agent}"));
}

#[test]
fn statusline_is_one_line() {
    const STATUS: &str = r#"{"version":"0.1.0","pid":812,"started_at":"2026-01-02T09:55:00.000Z","degraded":false,
    "tracking":{"kernel_events":true,"close_watch":false},"capabilities":[],
    "counts":{"sessions_running":1,"sessions_orphaned":0,"processes":2,"zombies":0,"findings_open":2,"memory_bytes":1048576},
    "host":{"memory_total_bytes":17179869184,"memory_available_bytes":8589934592,"swap_total_bytes":0,"swap_free_bytes":0,
    "shmem_bytes":0,"pressure_some_avg10":0.5,"pressure_full_avg10":0.0},"breaker_open":true,"lost_events":0,"reconciles":0}"#;
    let server = FakeDaemon::raw(http("200 OK", STATUS));
    let (code, out, err) = answered(|| run(&server.socket(), &["statusline"]));
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out, "1 agent 1.0 MiB | 8.0 GiB free | 2 findings | breaker open\n");
    let (code, out, err) = run(Path::new("/nowhere"), &["statusline"]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "watchdog: off\n", ""));
    let (code, out, _) = run(Path::new("/nowhere"), &["statusline", "--json"]);
    assert!(code == 0 && serde_json::from_str::<Value>(&out).unwrap()["error"].is_string(), "{out}");
}

#[rstest]
#[case::no_access("403 Forbidden", "watchdog: not permitted\n")]
#[case::starting("503 Service Unavailable", "watchdog: busy\n")]
#[case::broken("500 Internal Server Error", "watchdog: error\n")]
fn statusline_is_off_without_daemon_only(#[case] status: &'static str, #[case] line: &str) {
    let server = FakeDaemon::raw(http(status, r#"{"error":"why"}"#));
    let (code, out, err) = answered(|| run(&server.socket(), &["statusline"]));
    assert_eq!((code, out.as_str(), err.as_str()), (0, line, ""));
}

#[test]
fn waiting_launch_is_cancelled() {
    let server = FakeDaemon::start(|request, stream| {
        let answer = match request {
            r#"POST /v1/queue/cancel HTTP/1.1 {"pid":7}"# => http("200 OK", r#"{"pid":7}"#),
            _ => http("404 Not Found", r#"{"error":"no launch of this process waits"}"#),
        };
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let (code, out, err) = run(&server.socket(), &["queue", "--cancel", "7"]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "cancelled the launch of process 7\n", ""));
    let (code, out, err) = run(&server.socket(), &["queue", "--cancel", "8"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("no launch of this process waits"), "{err}");
}

#[test]
fn queue_json_keeps_unknown_members() {
    const QUEUE: &str = r#"{"waiting":[],"leases":[],"refused":[],"breaker":{"open":false,"since":null,"detail":""},
    "room":{"available_bytes":4294967296,"reserve_bytes":1073741824,"promised_bytes":0,"free_bytes":3221225472},
    "profiles":[],"of_a_newer_daemon":[1]}"#;
    let server = FakeDaemon::raw(http("200 OK", QUEUE));
    let (code, out, err) = run(&server.socket(), &["queue", "--json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let given: Value = serde_json::from_str(QUEUE).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), given);
    let (_, out, _) = run(&server.socket(), &["queue"]);
    assert!(out.contains("free: 3.0 GiB (4.0 GiB available"), "{out}");
}

#[test]
fn plan_needs_no_daemon() {
    let nowhere = Path::new("/nowhere");
    let (code, out, err) = run(nowhere, &["plan", "--json", "--agents", "1", "--memory", "1MiB", "--leak", "1MiB/m"]);
    assert_eq!(code, 0, "{out}");
    assert!(err.contains("planning without a daemon"), "{err}");
    let plan: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&plan["source"], &plan["agents"]), (&json!("proc"), &json!(1)));
    assert!(plan["hosts"][0]["leak"]["one_leaks_seconds"].as_f64().unwrap() > 0.0, "{out}");
    let about: Vec<&str> = plan["advice"].as_array().unwrap().iter().map(|a| a["about"].as_str().unwrap()).collect();
    assert_eq!(about, ["/dev/shm", "swap", "overcommit", "heap"]);

    let (code, out, _) = run(nowhere, &["plan", "--agents", "9", "--memory", "2GiB", "--hosts", "4GiB,4GiB"]);
    assert_eq!(code, 1);
    assert!(out.starts_with("no: 2 agents fit of 9"), "{out}");
}
