//! `--retries`: the supervisor.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::Value;

use super::fake_daemon::{FakeDaemon, ctl, run, stream_of};
use super::{END, grant, granting, read_until, refusal, send, spawn, terminal};

/// A command that fails this many times before it succeeds.
fn failing(directory: &Path, times: u32) -> String {
    let tries = directory.join("tries").display().to_string();
    format!("echo try >> {tries}; test $(wc -l < {tries}) -gt {times} || exit 9")
}

#[test]
fn failed_command_is_relaunched() {
    let directory = tempfile::tempdir().unwrap();
    let (server, requests) = granting(grant());
    let script = failing(directory.path(), 2);
    let arguments = ["launch", "--retries", "5", "--backoff", "0s", "--", "sh", "-c", &script];
    let (code, _, err) = run(&server.socket(), &arguments);
    assert_eq!((code, requests.try_iter().count()), (0, 3), "{err}");
    assert!(err.starts_with("watchdogctl: supervising sh, 5 retries left"), "{err}");
    assert_eq!(err.matches("exited with 9; retrying in").count(), 2, "{err}");
}

#[test]
fn supervisor_exits_like_last_attempt() {
    let (server, requests) = granting(grant());
    let launch = |script: &str| {
        let arguments = ["launch", "--json", "--retries", "1", "--backoff", "0s", "--", "sh", "-c", script];
        let output = ctl(&server.socket(), &arguments).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert_eq!(requests.try_iter().count(), 2);
        output.status
    };
    assert_eq!(launch("exit 9").code(), Some(9));
    assert_eq!(launch("kill -ABRT $$").signal(), Some(libc::SIGABRT));
    assert_eq!(launch("kill -KILL $$").signal(), Some(libc::SIGKILL));
}

#[test]
fn refusal_counts_as_attempt() {
    let (sender, requests) = channel();
    let server = FakeDaemon::start(move |_, stream| {
        let answer = if sender.send(()).is_ok() { stream_of(&[&refusal()]) } else { String::new() };
        stream.write_all((answer + END).as_bytes()).unwrap();
    });
    let arguments = ["launch", "--retries", "2", "--backoff", "0s", "--no-wait", "--", "true"];
    let (code, _, err) = run(&server.socket(), &arguments);
    assert_eq!((code, requests.try_iter().count()), (75, 3), "{err}");
    assert_eq!(err.matches("true was not started; retrying in").count(), 2, "{err}");
    // --json prints one document: that of the last attempt.
    let (code, _, err) = run(&server.socket(), &[&["--json"], &arguments[..]].concat());
    assert_eq!((code, requests.try_iter().count()), (75, 3), "{err}");
    assert_eq!(serde_json::from_str::<Value>(&err).unwrap()["reason"], "quota");
}

#[test]
fn signals_are_forwarded() {
    let (server, requests) = granting(grant());
    let script = "trap 'echo usr1' USR1; echo ready; while :; do sleep 0.05; done";
    let mut child = spawn(&mut ctl(&server.socket(), &["launch", "--retries", "3", "--", "sh", "-c", script]));
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    send(&child, libc::SIGUSR1);
    assert_eq!(lines.next().unwrap().unwrap(), "usr1");
    send(&child, libc::SIGTERM);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGTERM));
    assert_eq!(requests.try_iter().count(), 1);
}

#[test]
fn sigterm_ends_the_backoff() {
    let (server, requests) = granting(grant());
    let mut child = spawn(&mut ctl(&server.socket(), &["launch", "--retries", "3", "--backoff", "1h", "--", "false"]));
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.by_ref().any(|line| line.unwrap().contains("false exited with 1; retrying in 1h")));
    send(&child, libc::SIGTERM);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    assert_eq!(requests.try_iter().count(), 1);
}

#[test]
fn terminal_signal_is_not_forwarded() {
    let (server, _requests) = granting(grant());
    let (mut master, slave) = terminal();
    let script = "trap 'echo [interrupted]' INT; echo ready; while :; do sleep 0.05; done";
    let mut command = ctl(&server.socket(), &["launch", "--retries", "3", "--", "sh", "-c", script]);
    command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
    // SAFETY: plain system calls, which are allowed between fork and exec: the terminal becomes its own.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            libc::ioctl(0, libc::TIOCSCTTY, 0);
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut keyboard = master.try_clone().unwrap();
    let mut shown = String::new();
    read_until(&mut master, &mut shown, |shown| shown.contains("ready"));
    keyboard.write_all(b"\x03").unwrap();
    read_until(&mut master, &mut shown, |shown| shown.contains("[interrupted]"));
    std::thread::sleep(Duration::from_millis(300));
    send(&child, libc::SIGTERM);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    let mut rest = Vec::new();
    // The master reads EIO after the last slave is closed.
    let _ = keyboard.read_to_end(&mut rest);
    let all = shown + std::str::from_utf8(&rest).unwrap();
    assert_eq!(all.matches("[interrupted]").count(), 1, "{all}");
}
