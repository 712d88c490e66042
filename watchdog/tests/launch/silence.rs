//! A daemon that has no time, no room, or nothing to say: how long that is borne, and what is said at the end.

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::fake_daemon::{Server, http, run, stream_of};
use super::{grant, waiting};

/// What the daemon says to a connection for which there is no room: a problem, and the refusal of a launch.
const NO_ROOM: &str = r#"{"error":"too many connections are open","granted":false,"reason":"queue_full",
"detail":"too many connections to the daemon are open","retry_after_seconds":10,"bound":"[gate] max_queue","holders":[]}"#;
const BUSY: &str = r#"{"error":"the daemon is starting"}"#;

/// A socket at which connections are taken, and nothing is ever said.
fn silent() -> (TempDir, PathBuf, UnixListener) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("control.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    (directory, socket, listener)
}

#[rstest]
#[case(&[])]
#[case(&["--no-wait"])]
#[case(&["--timeout", "1h", "--fail-open"])]
fn a_daemon_whose_door_is_full_refuses(#[case] options: &[&str]) {
    let server = Server::raw(http("503 Service Unavailable", NO_ROOM));
    let began = Instant::now();
    let arguments = [&["launch", "--json"], options, &["--", "true"]].concat();
    let (code, out, err) = run(&server.socket(), &arguments);
    assert_eq!((code, out.as_str()), (75, ""), "{err}");
    let refused: Value = serde_json::from_str(&err).unwrap();
    let told = [&refused["granted"], &refused["reason"], &refused["retry_after_seconds"]];
    assert_eq!(told, [&json!(false), &json!("queue_full"), &json!(10.0)]);
    let (code, _, err) = run(&server.socket(), &[&["launch"], options, &["--", "true"]].concat());
    assert_eq!(code, 75);
    assert!(err.starts_with("watchdogctl: not granted: too many connections to the daemon are open\n"), "{err}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn a_daemon_that_is_busy_is_asked_again_until_it_answers() {
    let (sender, requests) = channel();
    let asked = AtomicU32::new(0);
    let server = Server::start(move |_, stream| {
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
fn a_full_door_takes_no_place_in_the_queue_away() {
    let asked = AtomicU32::new(0);
    let server = Server::start(move |_, stream| {
        let answer = match asked.fetch_add(1, Ordering::Relaxed) {
            // And gone, as in a restart.
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
fn a_busy_daemon_refuses_whoever_does_not_wait() {
    let server = Server::raw(http("503 Service Unavailable", BUSY));
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
fn a_silent_daemon_is_borne_for_as_long_as_the_launch_is_willing_to_wait() {
    let (_directory, socket, _listener) = silent();
    let began = Instant::now();
    let (code, out, err) = run(&socket, &["launch", "--json", "--timeout", "1s", "--", "true"]);
    let took = began.elapsed();
    assert_eq!((code, out.as_str()), (75, ""), "{err}");
    assert!((Duration::from_secs(1)..Duration::from_secs(5)).contains(&took), "{took:?}");
    let refused: Value = serde_json::from_str(&err).unwrap();
    assert_eq!((&refused["granted"], &refused["reason"]), (&json!(false), &json!("timeout")));

    let began = Instant::now();
    let (code, out, err) = run(&socket, &["launch", "--fail-open", "--timeout", "1s", "--", "echo", "started"]);
    assert_eq!((code, out.as_str()), (0, "started\n"), "{err}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn whoever_does_not_wait_and_fails_open_starts_at_once_without_a_daemon() {
    let began = Instant::now();
    let nowhere = Path::new("/nowhere/control.sock");
    let (code, out, err) = run(nowhere, &["launch", "--fail-open", "--no-wait", "--", "echo", "started"]);
    assert_eq!((code, out.as_str()), (0, "started\n"), "{err}");
    assert!(err.contains("without the gate (--fail-open)"), "{err}");
    // What a program reads is one document, or nothing.
    let (code, out, err) = run(nowhere, &["launch", "--json", "--fail-open", "--no-wait", "--", "echo", "started"]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "started\n", ""));
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}
