//! A daemon that is busy, full or silent: how long a launch tolerates it, and the result.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::fake_daemon::{FakeDaemon, http, run, stream_of};
use super::{grant, waiting};

/// The response to a connection over the limit: a problem, and the refusal of a launch.
const NO_ROOM: &str = r#"{"error":"too many connections are open","granted":false,"reason":"queue_full",
"detail":"too many connections to the daemon are open","retry_after_seconds":10,"bound":"[gate] max_queue","holders":[]}"#;
const BUSY: &str = r#"{"error":"the daemon is starting"}"#;

/// A socket that accepts connections and never responds.
fn silent() -> (TempDir, PathBuf, UnixListener) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("control.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    (directory, socket, listener)
}

/// Whether one of three runs takes less than 8 s: a busy machine delays a run.
fn is_quick(run: impl Fn()) -> bool {
    (0..3).any(|_| {
        let began = Instant::now();
        run();
        began.elapsed() < Duration::from_secs(8)
    })
}

#[rstest]
#[case(&[])]
#[case(&["--no-wait"])]
#[case(&["--timeout", "1h", "--fail-open"])]
fn full_daemon_refuses(#[case] options: &[&str]) {
    let server = FakeDaemon::raw(http("503 Service Unavailable", NO_ROOM));
    let began = Instant::now();
    let arguments = [&["launch", "--json"], options, &["--", "true"]].concat();
    let (code, out, err) = run(&server.socket(), &arguments);
    assert_eq!((code, out.as_str()), (75, ""), "{err}");
    let refused: Value = serde_json::from_str(&err).unwrap();
    let parts = [&refused["granted"], &refused["reason"], &refused["retry_after_seconds"]];
    assert_eq!(parts, [&json!(false), &json!("queue_full"), &json!(10.0)]);
    let (code, _, err) = run(&server.socket(), &[&["launch"], options, &["--", "true"]].concat());
    assert_eq!(code, 75);
    assert!(err.starts_with("watchdogctl: refused: too many connections to the daemon are open\n"), "{err}");
    // A retried launch takes 30 minutes.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn busy_daemon_is_retried() {
    let (sender, requests) = channel();
    let asked = AtomicU32::new(0);
    let server = FakeDaemon::start(move |_, stream| {
        sender.send(()).unwrap();
        let is_busy = asked.fetch_add(1, Ordering::Relaxed) < 2;
        let answer = if is_busy { http("503 Service Unavailable", BUSY) } else { grant() };
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let (code, out, err) = run(&server.socket(), &["launch", "--", "echo", "started"]);
    assert_eq!((code, out.as_str()), (0, "started\n"), "{err}");
    assert_eq!((err.matches("the daemon is busy").count(), requests.try_iter().count()), (1, 3), "{err}");
}

#[test]
fn queued_launch_survives_full_daemon() {
    let asked = AtomicU32::new(0);
    let server = FakeDaemon::start(move |_, stream| {
        let answer = match asked.fetch_add(1, Ordering::Relaxed) {
            // Then disconnected, as in a restart.
            0 => stream_of(&[&waiting("quota", "2 of 2 run")]),
            1 => http("503 Service Unavailable", NO_ROOM),
            _ => grant(),
        };
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let (code, out, err) = run(&server.socket(), &["launch", "--", "echo", "started"]);
    assert_eq!((code, out.as_str()), (0, "started\n"), "{err}");
}

#[test]
fn busy_daemon_refuses_no_wait() {
    let server = FakeDaemon::raw(http("503 Service Unavailable", BUSY));
    for options in [&["--no-wait"][..], &["--no-wait", "--fail-open"]] {
        let arguments = [&["launch", "--json"], options, &["--", "true"]].concat();
        let (code, out, err) = run(&server.socket(), &arguments);
        assert_eq!((code, out.as_str()), (75, ""), "{err}");
        let refused: Value = serde_json::from_str(&err).unwrap();
        assert_eq!((&refused["granted"], &refused["reason"]), (&json!(false), &json!("timeout")));
        assert!(refused["detail"].as_str().unwrap().contains("the daemon is starting"), "{err}");
    }
    let (code, _, err) = run(&server.socket(), &["launch", "--json", "--timeout", "1s", "--", "true"]);
    let refused: Value = serde_json::from_str(&err).unwrap();
    assert_eq!((code, &refused["reason"]), (75, &json!("timeout")));
}

#[test]
fn silent_daemon_is_tolerated_until_timeout() {
    let (_directory, socket, _listener) = silent();
    assert!(is_quick(|| {
        let began = Instant::now();
        let (code, out, err) = run(&socket, &["launch", "--json", "--timeout", "1s", "--", "true"]);
        assert_eq!((code, out.as_str()), (75, ""), "{err}");
        assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
        let refused: Value = serde_json::from_str(&err).unwrap();
        assert_eq!((&refused["granted"], &refused["reason"]), (&json!(false), &json!("timeout")));
    }));
    assert!(is_quick(|| {
        let (code, out, err) = run(&socket, &["launch", "--fail-open", "--timeout", "1s", "--", "echo", "started"]);
        assert_eq!((code, out.as_str()), (0, "started\n"), "{err}");
    }));
}

#[test]
fn launch_outlasts_hung_daemon() {
    let asked = AtomicU32::new(0);
    let server = FakeDaemon::start(move |_, stream| match asked.fetch_add(1, Ordering::Relaxed) {
        // Until the client gives up.
        0 => assert_eq!(stream.read(&mut [0]).unwrap(), 0),
        _ => stream.write_all(grant().as_bytes()).unwrap(),
    });
    let (code, out, err) = run(&server.socket(), &["launch", "--", "echo", "started"]);
    assert_eq!((code, out.as_str()), (0, "started\n"), "{err}");
    assert_eq!(err.matches("the daemon does not respond; retrying").count(), 1, "{err}");
}

#[test]
fn no_wait_fail_open_starts() {
    let nowhere = Path::new("/nowhere/control.sock");
    assert!(is_quick(|| {
        let (code, out, err) = run(nowhere, &["launch", "--fail-open", "--no-wait", "--", "echo", "started"]);
        assert_eq!((code, out.as_str()), (0, "started\n"), "{err}");
        assert!(err.contains("without the gate (--fail-open)"), "{err}");
        // What a program reads is one document, or nothing.
        let (code, out, err) = run(nowhere, &["launch", "--json", "--fail-open", "--no-wait", "--", "echo", "started"]);
        assert_eq!((code, out.as_str(), err.as_str()), (0, "started\n", ""));
    }));
}
