//! `watchdogctl` against valid, invalid and missing responses: output and exit code.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, and not what they share")]

mod fake_daemon;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rstest::rstest;

use fake_daemon::{FakeDaemon, ctl, http, parts, run, stream_of};

const STATUS: &str = r#"{"version":"0.1.0","pid":812,"started_at":"2026-01-02T09:55:00.000Z","degraded":false,
"tracking":{"kernel_events":true,"close_watch":false},"capabilities":[],
"counts":{"sessions_running":1,"sessions_orphaned":0,"processes":2,"zombies":0,"findings_open":0,"memory_bytes":1048576},
"host":{"memory_total_bytes":17179869184,"memory_available_bytes":8589934592,"swap_total_bytes":0,"swap_free_bytes":0,
"shmem_bytes":0,"pressure_some_avg10":0.5,"pressure_full_avg10":0.0},
"breaker_open":false,"lost_events":0,"reconciles":0,"of_a_newer_daemon":[1]}"#;

const TREE: &str = r#"{"sessions":[{"id":3,"profile":"claude-code","state":"running","gated":false,"user":"u","uid":1000,
"started_at":"2026-01-02T09:55:00Z","memory_bytes":1048576,"parent_session":null,"zombies":0,"processes":[
{"pid":3,"start_time":1,"ppid":1,"parent_pid":1,"depth":0,"kind":"agent","comm":"claude","argv":["claude"],
"state":"running","rss_bytes":1,"anon_bytes":1,"shmem_bytes":0,"swap_bytes":0,"peak_bytes":1}]}]}"#;

const EVENT: &str =
    r#"{"seq":1,"at":"2026-01-02T11:59:58.250Z","type":"fork","pid":7,"start_time":1,"session":3,"parent_pid":3}"#;

#[test]
fn json_keeps_unknown_members() {
    let server = FakeDaemon::raw(http("200 OK", STATUS));
    let (code, out, err) = run(&server.socket(), &["status", "--json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let given: serde_json::Value = serde_json::from_str(STATUS).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&out).unwrap(), given);
}

#[test]
fn pipe_has_no_colours() {
    let server = FakeDaemon::raw(http("200 OK", STATUS));
    let (code, out, _) = run(&server.socket(), &["status"]);
    assert_eq!(code, 0);
    assert!(out.contains("agents       1 running") && !out.contains('\x1b'), "{out}");
}

#[test]
fn starting_daemon_is_retried() {
    let asked = std::sync::atomic::AtomicU32::new(0);
    let server = FakeDaemon::start(move |_, stream| {
        let early = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2;
        let starting = http("503 Service Unavailable", r#"{"error":"it is starting","starting":true}"#);
        let answer = if early { starting } else { http("200 OK", STATUS) };
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let (code, out, err) = run(&server.socket(), &["status", "--json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("\"pid\":812"), "{out}");
}

#[test]
fn environment_names_the_socket() {
    let server = FakeDaemon::raw(http("200 OK", STATUS));
    let mut command = Command::new(env!("CARGO_BIN_EXE_watchdogctl"));
    let (code, ..) = parts(command.arg("status").env("WATCHDOG_SOCKET", server.socket()).output().unwrap());
    assert_eq!(code, 0);
}

#[rstest]
#[case("403 Forbidden", r#"{"error":"that is not yours"}"#, 77, "not permitted: that is not yours")]
#[case("404 Not Found", r#"{"error":"no such session: see `watchdogctl tree`"}"#, 1, "no such session: see")]
#[case("429 Too Many Requests", r#"{"error":"quota"}"#, 75, "refused for now: quota")]
#[case("503 Service Unavailable", r#"{"error":"stopping"}"#, 75, "refused for now: stopping")]
#[case("500 Internal Server Error", "<html>\u{1b}[2J", 1, "500 Internal Server Error and no reason")]
fn refusal_has_reason_and_code(
    #[case] status: &'static str,
    #[case] body: &'static str,
    #[case] expected: i32,
    #[case] reason: &str,
) {
    let server = FakeDaemon::raw(http(status, body));
    for arguments in [["status"].as_slice(), &["events", "--follow"], &["adopt", "pid:7"], &["explain", "pid:7"]] {
        let (code, out, err) = run(&server.socket(), arguments);
        assert_eq!((code, out.as_str()), (expected, ""), "{err}");
        assert!(err.starts_with("watchdogctl: ") && err.contains(reason) && !err.contains('\x1b'), "{err}");
    }
}

#[rstest]
#[case::busy("503 Service Unavailable", 75)]
#[case::exempt("409 Conflict", 1)]
#[case::other_user("403 Forbidden", 77)]
fn failure_precedes_consent(#[case] status: &'static str, #[case] expected: i32) {
    let server = FakeDaemon::raw(http(status, r#"{"error":"why not"}"#));
    for arguments in [&["end", "3"][..], &["reap"]] {
        let (code, out, err) = run(&server.socket(), arguments);
        assert!((code, out.as_str()) == (expected, "") && err.contains("why not"), "{code} {err}");
        let (code, _, err) = run(Path::new("/nowhere"), arguments);
        assert!(code == 69 && err.contains("cannot reach the daemon"), "{code} {err}");
    }
}

#[rstest]
#[case(&["findings", "leak"])]
#[case(&["actions", "-"])]
fn id_is_a_whole_number(#[case] arguments: &[&str]) {
    let (code, _, err) = run(Path::new("/nowhere"), arguments);
    assert!(code == 2 && err.contains("a whole number such as 12"), "{code} {err}");
}

#[rstest]
#[case("403 Forbidden", true)]
#[case("503 Service Unavailable", false)]
fn doctor_starts_no_daemon_that_answers(#[case] status: &'static str, #[case] names_sudo: bool) {
    let server = FakeDaemon::raw(http(status, r#"{"error":"why not"}"#));
    let (_, out, _) = run(&server.socket(), &["doctor"]);
    assert!(out.contains("why not") && !out.contains("systemctl start watchdogd"), "{out}");
    assert_eq!(out.contains("sudo watchdogctl doctor"), names_sudo, "{out}");
}

#[rstest]
#[case("", "the response is incomplete")]
#[case("HTTP/1.1 200 OK\r\ncontent-le", "the response is incomplete")]
#[case("HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{\"version\":", "the response is incomplete")]
#[case("SSH-2.0-OpenSSH_9.2\r\n\r\n", "the response is not HTTP")]
fn incomplete_response_is_an_error(#[case] bytes: &'static str, #[case] why: &str) {
    let server = FakeDaemon::raw(bytes);
    let (code, out, err) = run(&server.socket(), &["status"]);
    assert_eq!((code, out.as_str()), (69, ""), "{err}");
    assert!(err.contains(why), "{err}");
}

#[rstest]
#[case("{\"sessions\":", "EOF while parsing")]
#[case("{\"findings\":[]}", "missing field")]
#[case("hello", "expected value")]
fn unexpected_document_is_an_error(#[case] body: &'static str, #[case] why: &str) {
    let server = FakeDaemon::raw(http("200 OK", body));
    let (code, out, err) = run(&server.socket(), &["tree"]);
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(err.contains("GET /v1/tree") && err.contains(why), "{err}");
}

#[test]
fn oversized_response_is_refused() {
    let server = FakeDaemon::start(|_, stream| {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let chunk = format!("100000\r\n{}\r\n", " ".repeat(1 << 20));
        let mut sent = stream.write_all(head.as_bytes());
        while sent.is_ok() {
            sent = stream.write_all(chunk.as_bytes());
        }
    });
    let (code, _, err) = run(&server.socket(), &["tree"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("larger than 64 MiB"), "{err}");
}

#[test]
fn json_error_is_one_document() {
    let directory = tempfile::tempdir().unwrap();
    let (code, out, err) = run(&directory.path().join("none.sock"), &["--json", "tree"]);
    assert_eq!(code, 69);
    let problem: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(problem["error"].as_str().unwrap().contains("no such file"), "{out}");
    assert!(err.contains("no such file"), "{err}");
}

#[test]
fn unreachable_daemon_has_path_and_hint() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("none.sock");
    let (code, _, err) = run(&missing, &["status"]);
    assert_eq!(code, 69);
    for part in [missing.to_str().unwrap(), "no such file", "sudo watchdogd", "WATCHDOG_SOCKET"] {
        assert!(err.contains(part), "{part} in {err}");
    }

    let left_behind = directory.path().join("left.sock");
    drop(UnixListener::bind(&left_behind).unwrap());
    let (code, _, err) = run(&left_behind, &["status"]);
    assert_eq!(code, 69);
    assert!(err.contains("no daemon is listening"), "{err}");

    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let (code, _, err) = run(&file, &["status"]);
    assert_eq!(code, 69);
    assert!(err.contains("not a socket"), "{err}");
}

#[test]
fn stream_is_printed_until_it_ends() {
    let follow = |ending: &'static str| {
        FakeDaemon::start(move |request, stream| {
            assert_eq!(request, "GET /v1/events?since=30s&follow=true HTTP/1.1");
            stream.write_all((stream_of(&[EVENT, EVENT]) + ending).as_bytes()).unwrap();
        })
    };
    for (ending, why) in
        [("0\r\n\r\n", "ended the stream"), ("", "is incomplete"), ("20\r\n{\"seq\":", "is incomplete")]
    {
        let server = follow(ending);
        let (code, out, err) = run(&server.socket(), &["events", "--follow", "--since", "30s", "--json"]);
        assert_eq!(code, 69, "{err}");
        assert_eq!(out, format!("{EVENT}\n{EVENT}\n"));
        assert!(err.contains(why), "{err}");
    }
    let server = follow("");
    let (_, out, _) = run(&server.socket(), &["events", "--follow", "--since", "30s"]);
    let line = "2026-01-02 11:59:58.250  fork             session 3          7  forked by 3\n";
    assert_eq!(out, line.repeat(2));
}

const OOM: &str = r#"{"at":"2026-01-02T11:59:58.25Z","run":"2026-01-02T00:00:00Z","owner_uid":0,"type":"oom","pid":9,"start_time":1,"session":3,"comm":"node"}"#;

#[test]
fn history_lines_become_one_document() {
    let server = FakeDaemon::start(|request, stream| {
        assert_eq!(request, "GET /v1/history?since=60s&session=3 HTTP/1.1");
        stream.write_all((stream_of(&[OOM, OOM]) + "0\r\n\r\n").as_bytes()).unwrap();
    });
    let wanted = ["history", "--since", "1m", "--session", "3"];
    let (code, out, err) = run(&server.socket(), &[&wanted[..], &["--json"]].concat());
    assert_eq!((code, err.as_str()), (0, ""));
    let document: serde_json::Value = serde_json::from_str(&out).unwrap();
    let given: serde_json::Value = serde_json::from_str(OOM).unwrap();
    assert_eq!(document, serde_json::json!({ "records": [given, given] }));
    let (code, out, _) = run(&server.socket(), &wanted);
    let line = "2026-01-02 11:59:58.250  oom              session 3    the OOM killer killed node (pid 9)\n";
    assert_eq!((code, out), (0, line.repeat(2)));
}

#[test]
fn interrupted_history_is_one_document() {
    let server = FakeDaemon::raw(stream_of(&[OOM]));
    let (code, out, err) = run(&server.socket(), &["history", "--json"]);
    assert_eq!(code, 69, "{err}");
    let document: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(document["records"].as_array().unwrap().len(), 1);
    assert!(err.contains("the response is incomplete"), "{err}");
}

#[test]
fn history_falls_back_to_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let state_dir = directory.path().to_str().unwrap();
    let (mut store, _) = watchdog_history::Store::open(directory.path()).unwrap();
    store.append(&watchdog_history::codec::encode(&serde_json::from_str(OOM).unwrap())).unwrap();
    let missing = directory.path().join("none.sock");
    let (code, out, err) = run(&missing, &["history", "--state-dir", state_dir]);
    assert!(code == 0 && err.contains("history.log without a daemon: cannot reach"), "{code} {err}");
    assert!(out.contains("the OOM killer killed node"), "{out}");
    let (code, out, err) = run(&missing, &["postmortem", "--state-dir", state_dir, "--json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let postmortem: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(postmortem["killed"][0]["comm"], "node");

    let nothing = directory.path().join("nothing");
    for command in ["history", "postmortem"] {
        let (code, _, err) = run(&missing, &[command, "--state-dir", nothing.to_str().unwrap()]);
        assert_eq!(code, 69, "{err}");
        assert!(
            err.contains("none.sock") && err.contains("nothing/history.log") && err.contains("--state-dir"),
            "{err}"
        );
    }
}

#[test]
fn future_boot_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (code, _, err) = run(&directory.path().join("none.sock"), &["postmortem", "--boot", "1"]);
    assert_eq!(code, 2, "{err}");
}

#[test]
fn endless_line_is_refused() {
    let server = FakeDaemon::raw(stream_of(&[EVENT, &"x".repeat(2 << 20)]));
    let (code, out, err) = run(&server.socket(), &["events", "--follow", "--json"]);
    assert_eq!((code, out.lines().count()), (1, 1), "{err}");
    assert!(err.contains("longer than 1 MiB"), "{err}");
}

#[test]
fn closed_pipe_is_success() {
    let server = FakeDaemon::start(|_, stream| {
        let event = stream_of(&[EVENT]);
        let mut sent = stream.write_all(event.as_bytes());
        let chunk = event.split_once("\r\n\r\n").unwrap().1;
        while sent.is_ok() {
            sent = stream.write_all(chunk.as_bytes());
        }
    });
    let mut child =
        ctl(&server.socket(), &["events", "--follow"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.contains("forked by 3"), "{line}");
    drop(reader);
    let (code, _, err) = parts(child.wait_with_output().unwrap());
    assert_eq!((code, err.as_str()), (0, ""));
}

#[test]
fn interrupt_ends_follow() {
    let server = FakeDaemon::start(|_, stream| {
        stream.write_all(stream_of(&[EVENT]).as_bytes()).unwrap();
        // The stream stays open until the client disconnects.
        let _ = stream.read(&mut [0]);
    });
    let mut child = ctl(&server.socket(), &["events", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("forked by 3"), "{line}");
    // SAFETY: plain system call; the child has not been waited for.
    assert_eq!(unsafe { libc::kill(i32::try_from(child.id()).unwrap(), libc::SIGINT) }, 0);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGINT));
}

#[test]
fn adopt_resolves_plain_numbers() {
    let server = FakeDaemon::start(|request, stream| {
        let answer = match request {
            "GET /v1/tree HTTP/1.1" => http("200 OK", TREE),
            r#"POST /v1/adopt HTTP/1.1 {"pid":3}"# => http("200 OK", r#"{"pids":[3]}"#),
            r#"POST /v1/adopt HTTP/1.1 {"session":3}"# => http("200 OK", r#"{"pids":[3,4]}"#),
            other => http("400 Bad Request", &format!(r#"{{"error":{other:?}}}"#)),
        };
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let (code, out, err) = run(&server.socket(), &["adopt", "3"]);
    assert_eq!((code, out.as_str()), (0, "adopted process 3: 1 process will be kept (3)\n"), "{err}");
    assert!(err.contains("Use session:3 for the session"), "{err}");
    let (code, out, err) = run(&server.socket(), &["adopt", "session:3", "--json"]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "{\"pids\":[3,4]}\n", ""));
}

#[test]
fn explain_resolves_plain_numbers() {
    const EXPLANATION: &str = r#"{"summary":"WHO","process":null,"session":null,"deaths":[],"findings":[]}"#;
    let server = FakeDaemon::start(|request, stream| {
        let answer = match request {
            "GET /v1/explain?pid=3 HTTP/1.1" => http("200 OK", &EXPLANATION.replace("WHO", "process 3")),
            "GET /v1/explain?session=3 HTTP/1.1" => http("200 OK", &EXPLANATION.replace("WHO", "session 3")),
            "GET /v1/explain?session=4 HTTP/1.1" => http("200 OK", &EXPLANATION.replace("WHO", "session 4")),
            _ => http("404 Not Found", r#"{"error":"nothing is known"}"#),
        };
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let (code, out, err) = run(&server.socket(), &["explain", "3"]);
    assert_eq!((code, out.as_str()), (0, "process 3\n"));
    assert!(err.contains("Use session:3 for the session"), "{err}");
    for (target, expected) in [("session:3", "session 3\n"), ("4", "session 4\n")] {
        let (code, out, err) = run(&server.socket(), &["explain", target]);
        assert_eq!((code, out.as_str(), err.as_str()), (0, expected, ""));
    }
    let (code, out, err) = run(&server.socket(), &["explain", "5"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("no record of a process 5: it was never tracked"), "{err}");
}

#[test]
fn unknown_session_is_an_error() {
    let server = FakeDaemon::raw(http("200 OK", r#"{"sessions":[]}"#));
    let (code, out, err) = run(&server.socket(), &["tree", "9"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("no session 9"), "{err}");
}

#[test]
fn invalid_argument_exits_with_2() {
    let (code, out, err) = run(Path::new("/nowhere"), &["tree", "x"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("session:3"), "{err}");
}

#[test]
fn config_check_needs_no_daemon() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.toml");
    std::fs::write(&file, "[orphans]\ngrace = \"30s\"\n").unwrap();
    let file = file.to_str().unwrap();
    let (code, out, _) = run(Path::new("/nowhere"), &["config", "check", file]);
    assert_eq!((code, out), (0, format!("{file}: valid\n")));
    let (code, out, _) = run(Path::new("/nowhere"), &["config", "check", file, "--json"]);
    assert_eq!((code, out.as_str()), (0, "{\"valid\":true,\"errors\":[],\"warnings\":[]}\n"));

    std::fs::write(file, "[[profile]]\nname = \"a\"\n[[profile.way]]\ncomm = [\"a\"]\n").unwrap();
    let (code, out, err) = run(Path::new("/nowhere"), &["config", "check", file]);
    assert_eq!((code, out), (0, format!("{file}: valid\n")));
    assert!(err.contains(&format!("warning: {file}:3:11: way: deprecated in [[profile]]")), "{err}");

    let missing = format!("{file}.missing");
    let (code, out, err) = run(Path::new("/nowhere"), &["config", "check", &missing]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains(&missing) && err.contains("No such file"), "{err}");
    let (code, out, err) = run(Path::new("/nowhere"), &["config", "check", &missing, "--json"]);
    assert_eq!((code, err.as_str()), (1, ""));
    let verdict: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(verdict["valid"], false);
    assert!(verdict["errors"][0].as_str().unwrap().contains(&missing), "{out}");
}

#[test]
fn config_check_lists_all_errors() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.toml");
    std::fs::write(&file, "[orphans]\ngrace = \"soon\"\nkeeep = []\n").unwrap();
    let file = file.to_str().unwrap();
    let (code, out, err) = run(Path::new("/nowhere"), &["config", "check", file]);
    assert_eq!((code, out.as_str(), err.lines().count()), (1, "", 2), "{err}");
    assert!(err.contains(&format!("{file}:2:")) && err.contains(&format!("{file}:3:")), "{err}");
    let (code, out, _) = run(Path::new("/nowhere"), &["config", "check", file, "--json"]);
    let verdict: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &verdict["valid"]), (1, &serde_json::Value::Bool(false)));
    assert_eq!(verdict["errors"].as_array().unwrap().len(), 2, "{out}");
}

#[test]
fn replay_is_reproducible() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/recordings/orphan-group.rec");
    for arguments in [&["replay", file][..], &["replay", file, "--json"]] {
        let (code, out, err) = run(Path::new("/nowhere"), arguments);
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(out.contains("orphan") && out.contains("closed"), "{out}");
        assert_eq!(run(Path::new("/nowhere"), arguments), (code, out, err));
    }
}

#[test]
fn unreadable_recording_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join("other");
    std::fs::write(&other, "{\"agent_watchdog_recording\":9,\"written_by\":\"7.0.0\"}\n").unwrap();
    let missing = directory.path().join("missing");
    for (file, reason) in [(&other, "version 9"), (&missing, "No such file")] {
        let file = file.to_str().unwrap();
        let (code, out, err) = run(Path::new("/nowhere"), &["replay", file]);
        assert_eq!((code, out.as_str()), (1, ""));
        assert!(err.contains(file) && err.contains(reason), "{err}");
        let (code, out, _) = run(Path::new("/nowhere"), &["replay", file, "--json"]);
        let problem: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert!(code == 1 && problem["error"].as_str().unwrap().contains(reason), "{out}");
    }
}

#[test]
fn missing_target_is_named_without_terminal() {
    let missing = r#"{"error":"session 999 has no running process"}"#;
    let server = FakeDaemon::start(move |request, stream| {
        let answer = match request.starts_with("GET /v1/tree") {
            true => http("200 OK", r#"{"sessions":[]}"#),
            false => http("404 Not Found", missing),
        };
        stream.write_all(answer.as_bytes()).unwrap();
    });
    for command in [&["end", "999"][..], &["end", "--kept", "999"], &["reap", "999"], &["reap", "session:999"]] {
        let (code, out, err) = run(&server.socket(), command);
        assert_eq!((code, out.as_str()), (1, ""), "{command:?}");
        assert!(err.contains("session 999 has no running process") && !err.contains("--yes"), "{err}");
    }
    let (code, _, err) = run(&server.socket(), &["explain", "999"]);
    assert!(code == 1 && err.contains("no session 999, and no record of a process 999"), "{err}");
}
