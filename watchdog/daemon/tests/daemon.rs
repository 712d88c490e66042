//! The life of the real daemon: how it starts, what it refuses, how it ends. Each test has a runtime directory of its own.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, and not what they share")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A daemon that says `ready` or fails must do so in this time, also on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);

fn watchdogd(runtime_dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_watchdogd"));
    command.arg("--runtime-dir").arg(runtime_dir).args(["--listen", "127.0.0.1:0"]);
    command.arg("--state-dir").arg(runtime_dir.join("state"));
    command
        .env_remove("RUST_LOG")
        .env_remove("NOTIFY_SOCKET")
        .env_remove("WATCHDOG_USEC")
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Runs a daemon that is expected to fail.
fn refused(command: &mut Command) -> (ExitStatus, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status, String::from_utf8_lossy(&stderr).into_owned())
}

struct RunningDaemon {
    child: Child,
    log: mpsc::Receiver<String>,
    said: Vec<String>,
}

impl RunningDaemon {
    /// Starts a daemon and waits until it is ready.
    fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (line, log) = mpsc::channel();
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|text| line.send(text)));
        let mut daemon = Self { child, log, said: Vec::new() };
        daemon.wait_for("ready");
        daemon
    }

    /// The next line of the log that holds this text.
    fn wait_for(&mut self, text: &str) -> String {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.log.recv_timeout(left) else {
                panic!("the daemon never said {text:?}; it said {:#?}", self.said)
            };
            self.said.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    /// The first line of the log that holds this text, also before `ready`.
    fn logged(&mut self, text: &str) -> String {
        let line = self.said.iter().find(|line| line.contains(text)).cloned();
        line.unwrap_or_else(|| self.wait_for(text))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn metrics_address(&self) -> String {
        let line = self.said.iter().find(|line| line.contains("ready")).unwrap();
        let (_, rest) = line.split_once("http://").unwrap();
        rest.split_once('/').unwrap().0.to_owned()
    }

    /// Waits for the end; how it ended, and how long that took.
    fn end(mut self) -> (ExitStatus, Duration) {
        let began = Instant::now();
        let status = self.child.wait().unwrap();
        (status, began.elapsed())
    }
}

impl Drop for RunningDaemon {
    fn drop(&mut self) {
        // A test that failed leaves no daemon behind; one that ended is past killing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A service manager's socket, which waits for messages.
fn notify_socket(dir: &Path) -> (UnixDatagram, PathBuf) {
    let path = dir.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    (socket, path)
}

/// The next message.
fn notified(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 256];
    let length = socket.recv(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..length]).trim_end().to_owned()
}

fn http(mut stream: impl Read + Write, request: &str) -> (u16, String) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

fn get(stream: impl Read + Write, path: &str) -> (u16, String) {
    http(stream, &format!("GET {path} HTTP/1.0\r\n\r\n"))
}

fn status(runtime_dir: &Path) -> Value {
    let stream = UnixStream::connect(runtime_dir.join("control.sock")).unwrap();
    let (code, body) = get(stream, "/v1/status");
    assert_eq!(code, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[test]
fn watchdog_beats_until_daemon_stops() {
    let dir = tempfile::tempdir().unwrap();
    let (socket, path) = notify_socket(dir.path());
    let mut command = watchdogd(dir.path());
    let daemon = RunningDaemon::start(command.env("NOTIFY_SOCKET", path).env("WATCHDOG_USEC", "1000000"));
    while notified(&socket) != "READY=1" {}

    // Nothing happens, and the loop beats twice in the time that it has. Earlier beats may wait in the socket.
    let began = Instant::now();
    socket.set_nonblocking(true).unwrap();
    while socket.recv(&mut [0; 256]).is_ok() {}
    socket.set_nonblocking(false).unwrap();
    assert_eq!([notified(&socket), notified(&socket), notified(&socket)], ["WATCHDOG=1"; 3]);
    assert!(
        began.elapsed() >= Duration::from_millis(900),
        "{:?}: it beats no more often than it must",
        began.elapsed()
    );

    daemon.signal(Signal::STOP);
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    // Beats that were under way when the signal came.
    while socket.recv(&mut [0; 256]).is_ok_and(|_| began.elapsed() < TIMEOUT) {}
    assert!(socket.recv(&mut [0; 256]).is_err(), "a stopped daemon does not beat");
    daemon.signal(Signal::CONT);
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    assert_eq!(notified(&socket), "WATCHDOG=1");
}

#[test]
fn unwatched_daemon_sends_no_beat() {
    let dir = tempfile::tempdir().unwrap();
    let (socket, path) = notify_socket(dir.path());
    let daemon = RunningDaemon::start(watchdogd(dir.path()).env("NOTIFY_SOCKET", path));
    assert_eq!(notified(&socket), "READY=1");
    daemon.signal(Signal::TERM);
    assert_eq!(notified(&socket), "STOPPING=1");
}

#[test]
fn serves_when_ready_stops_on_signals() {
    for signal in [Signal::TERM, Signal::INT] {
        let dir = tempfile::tempdir().unwrap();
        let daemon = RunningDaemon::start(&mut watchdogd(dir.path()));
        assert_eq!(status(dir.path())["pid"], daemon.child.id());
        let scraper = || TcpStream::connect(daemon.metrics_address()).unwrap();
        assert_eq!(get(scraper(), "/healthz").0, 200);
        let (code, metrics) = get(scraper(), "/metrics");
        assert_eq!(code, 200);
        assert!(metrics.contains("\nagent_watchdog_breaker_open 0\n"), "{metrics}");
        daemon.signal(signal);
        let (ended, took) = daemon.end();
        assert_eq!(ended.code(), Some(0));
        assert!(took < Duration::from_secs(15), "stopping took {took:?}");
        assert!(!dir.path().join("control.sock").exists());
    }
}

#[test]
fn open_connections_delay_no_stop() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = RunningDaemon::start(&mut watchdogd(dir.path()));
    let mut follower = UnixStream::connect(dir.path().join("control.sock")).unwrap();
    follower.write_all(b"GET /v1/events?follow=true HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut first = [0; 8];
    follower.read_exact(&mut first).unwrap();
    let mut half = UnixStream::connect(dir.path().join("control.sock")).unwrap();
    half.write_all(b"GET /v1/tr").unwrap();
    daemon.signal(Signal::TERM);
    let (ended, took) = daemon.end();
    assert_eq!(ended.code(), Some(0));
    assert!(took < Duration::from_secs(15), "stopping took {took:?}");
}

#[test]
fn second_daemon_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = RunningDaemon::start(&mut watchdogd(dir.path()));
    let (status_of_second, message) = refused(&mut watchdogd(dir.path()));
    assert_eq!(status_of_second.code(), Some(1), "{message}");
    assert!(message.contains(&format!("pid {}", daemon.child.id())), "{message}");
    assert_eq!(status(dir.path())["pid"], daemon.child.id());
}

#[test]
fn killed_daemon_can_be_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let killed = RunningDaemon::start(&mut watchdogd(dir.path()));
    killed.signal(Signal::KILL);
    killed.end();
    assert!(dir.path().join("control.sock").exists(), "there is nothing to clean up");
    let daemon = RunningDaemon::start(&mut watchdogd(dir.path()));
    assert_eq!(status(dir.path())["pid"], daemon.child.id());
}

#[test]
fn used_address_error_names_options() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_watchdogd"));
    let (status, message) = refused(command.arg("--runtime-dir").arg(dir.path()).args(["--listen", &address]));
    assert_eq!(status.code(), Some(1), "{message}");
    assert!(message.contains(&address) && message.contains("--listen off"), "{message}");
}

#[test]
fn named_configuration_must_exist() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("missing.toml");
    let (status, message) = refused(watchdogd(dir.path()).arg("--config").arg(&file));
    assert_eq!(status.code(), Some(1), "{message}");
    assert!(message.contains("missing.toml"), "{message}");
}

#[test]
fn reload_refuses_invalid_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    fs::write(&file, "").unwrap();
    let mut daemon = RunningDaemon::start(watchdogd(dir.path()).arg("--config").arg(&file));
    daemon.signal(Signal::HUP);
    daemon.wait_for("reloaded the configuration");
    fs::write(&file, "[tracking]\nclose_wotch = \"auto\"\n").unwrap();
    daemon.signal(Signal::HUP);
    let refusal = daemon.wait_for("was not reloaded");
    assert!(refusal.contains("config.toml") && refusal.contains("close_wotch"), "{refusal}");
    assert_eq!(status(dir.path())["pid"], daemon.child.id());
}

#[test]
fn json_log_is_json_throughout() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = watchdogd(dir.path());
    let mut daemon = RunningDaemon::start(command.args(["--foreground-log", "json"]).env("RUST_LOG", "error"));
    daemon.signal(Signal::TERM);
    daemon.child.wait().unwrap();
    daemon.said.extend(daemon.log.iter());
    let lines: Vec<Value> = daemon.said.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ready = |line: &&Value| line["message"].as_str().is_some_and(|message| message.starts_with("ready: "));
    assert_eq!(lines.iter().filter(ready).count(), 1, "{lines:#?}");
}

#[test]
fn service_manager_is_notified() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(TIMEOUT)).unwrap();
    let hear = || {
        let mut message = [0; 256];
        let length = manager.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    let daemon = RunningDaemon::start(watchdogd(dir.path()).env("NOTIFY_SOCKET", &path));
    assert_eq!(hear().trim(), "READY=1");
    daemon.signal(Signal::HUP);
    let reloading = hear();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(hear().trim(), "READY=1");
    daemon.signal(Signal::TERM);
    assert_eq!(hear().trim(), "STOPPING=1");
}

#[test]
fn unwritable_history_delays_no_start() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("state"), "in the way").unwrap();
    let mut daemon = RunningDaemon::start(&mut watchdogd(dir.path()));
    daemon.logged("cannot write the history");
    let stated = &status(dir.path())["history"];
    assert!(stated["problem"].as_str().is_some_and(|problem| problem.contains("/state")), "{stated}");
    let metrics = || get(TcpStream::connect(daemon.metrics_address()).unwrap(), "/metrics").1;
    assert!(metrics().contains("\nagent_watchdog_history_failing 1\n"));

    fs::remove_file(dir.path().join("state")).unwrap();

    daemon.wait_for("writing the history again");
    assert_eq!(status(dir.path())["history"]["problem"], Value::Null);
    assert!(fs::metadata(dir.path().join("state/history.log")).unwrap().len() > 100);
}

#[test]
fn invalid_history_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    fs::create_dir(&state).unwrap();
    fs::write(state.join("history.log"), vec![0x5a; 1 << 20]).unwrap();
    let mut daemon = RunningDaemon::start(&mut watchdogd(dir.path()));
    let warning = daemon.logged("history.log.set-aside-1");
    assert!(warning.contains("WARN"), "{warning}");
    assert_eq!(fs::metadata(state.join("history.log.set-aside-1")).unwrap().len(), 1 << 20);
    assert_eq!(status(dir.path())["history"]["problem"], Value::Null);
}

/// The daemon where a user without any privilege can run it.
fn for_everybody(dir: &Path) -> PathBuf {
    let program = dir.join("watchdogd");
    fs::copy(env!("CARGO_BIN_EXE_watchdogd"), &program).unwrap();
    program
}

#[test]
fn unprivileged_daemon_runs_degraded() {
    const NOBODY: u32 = 65_534;
    let dir = tempfile::tempdir().unwrap();
    let runtime_dir = dir.path().join("run");
    fs::create_dir(&runtime_dir).unwrap();
    let mut command = Command::new(for_everybody(dir.path()));
    command.arg("--runtime-dir").arg(&runtime_dir).arg("--state-dir").arg(runtime_dir.join("state"));
    command.args(["--listen", "127.0.0.1:0"]).stderr(Stdio::piped());
    if rustix::process::geteuid().is_root() {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(&runtime_dir, Some(NOBODY), None).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
    let daemon = RunningDaemon::start(&mut command);
    let warning = daemon.said.iter().find(|line| line.contains("degraded")).expect("it says so");
    assert!(warning.contains("/proc every second"), "{warning}");
    let status = status(&runtime_dir);
    assert_eq!(status["degraded"], true);
    assert_eq!(status["tracking"]["kernel_events"], false);
}

#[test]
fn occupied_metrics_address_delays_metrics_only() {
    let dir = tempfile::tempdir().unwrap();
    let occupied = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = occupied.local_addr().unwrap();
    let config = dir.path().join("config.toml");
    fs::write(&config, format!("[daemon]\nlisten = \"{address}\"\n[tracking]\nbuilt_in_profiles = false\n")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_watchdogd"));
    command.arg("--config").arg(&config).arg("--runtime-dir").arg(dir.path());
    command.arg("--state-dir").arg(dir.path().join("state")).env_remove("RUST_LOG").stderr(Stdio::piped());
    let mut daemon = RunningDaemon::start(&mut command);
    assert!(daemon.said.iter().any(|line| line.contains(&address.to_string())), "{:#?}", daemon.said);
    drop(occupied);
    daemon.wait_for(&format!("metrics on http://{address}/metrics"));
    TcpStream::connect(address).unwrap();
}

#[test]
fn file_size_limit_ends_no_daemon() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let dir = tempfile::tempdir().unwrap();
    let mut command = watchdogd(dir.path());
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    // SAFETY: one system call after the fork, no allocation.
    unsafe { command.pre_exec(move || Ok(setrlimit(Resource::Fsize, none)?)) };
    let mut daemon = RunningDaemon::start(&mut command);
    daemon.logged("cannot write the history");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().0.code(), Some(0));
}

#[test]
fn shared_state_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _first = RunningDaemon::start(&mut watchdogd(dir.path()));
    let state_dir = dir.path().join("state");
    let mut second = Command::new(env!("CARGO_BIN_EXE_watchdogd"));
    second.arg("--runtime-dir").arg(dir.path().join("second")).arg("--state-dir").arg(&state_dir);
    let (status, said) = refused(second.args(["--listen", "off"]));
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains(state_dir.to_str().unwrap()) && said.contains("--state-dir"), "{said}");
}

#[test]
fn starting_daemon_survives_sighup() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("watchdogd.pid");
    for _ in 0..5 {
        let mut child = watchdogd(dir.path()).spawn().unwrap();
        let pid = format!("{}\n", child.id());
        let deadline = Instant::now() + TIMEOUT;
        while fs::read_to_string(&file).unwrap_or_default() != pid {
            assert!(child.try_wait().unwrap().is_none() && Instant::now() < deadline);
        }
        for signal in [Signal::HUP, Signal::TERM] {
            kill_process(Pid::from_child(&child), signal).unwrap();
        }
        assert_eq!(child.wait().unwrap().code(), Some(0), "it stops cleanly");
    }
}

/// A directory of another user, as root makes one for a test.
fn of_stranger(path: &Path) {
    fs::create_dir(path).unwrap();
    std::os::unix::fs::chown(path, Some(54_321), None).unwrap();
}

#[test]
fn other_users_directories_are_refused() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (strange, shared, good) = (dir.path().join("strange"), dir.path().join("shared"), dir.path().join("good"));
    of_stranger(&strange);
    fs::create_dir(strange.join("below")).unwrap();
    fs::create_dir(&good).unwrap();
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    symlink(&good, strange.join("link")).unwrap();
    for bad in [&strange, &strange.join("below"), &strange.join("new"), &strange.join("link"), &shared] {
        let victims =
            [("runtime", bad.clone(), dir.path().join("state")), ("state", dir.path().join("run"), bad.clone())];
        for (which, runtime_dir, state_dir) in victims {
            let mut command = Command::new(env!("CARGO_BIN_EXE_watchdogd"));
            command.arg("--runtime-dir").arg(runtime_dir).arg("--state-dir").arg(state_dir).args(["--listen", "off"]);
            let (status, said) = refused(&mut command);
            assert_eq!(status.code(), Some(1), "{}: {said}", bad.display());
            let culprit = if *bad == shared { "mode 1777" } else { "uid 54321" };
            assert!(said.contains(which) && said.contains(culprit) && said.contains("ch"), "{}: {said}", bad.display());
        }
        assert!(fs::read_dir(&good).unwrap().next().is_none(), "nothing is written through {}", bad.display());
    }
}

#[test]
fn writable_configuration_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.toml");
    let mode = |mode: u32| fs::set_permissions(&config, fs::Permissions::from_mode(mode)).unwrap();
    let text = |grace: &str| format!("[tracking]\nbuilt_in_profiles = false\n[orphans]\ngrace = \"{grace}\"\n");
    fs::write(&config, text("2s")).unwrap();
    let command = || {
        let mut command = watchdogd(dir.path());
        command.arg("--config").arg(&config);
        command
    };
    mode(0o666);
    let (status, said) = refused(&mut command());
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("config.toml") && said.contains("mode 0666") && said.contains("chmod go-w"), "{said}");

    mode(0o644);
    let mut daemon = RunningDaemon::start(&mut command());
    mode(0o622);
    fs::write(&config, text("3s")).unwrap();
    daemon.signal(Signal::HUP);
    let line = daemon.wait_for("the configuration was not reloaded");
    assert!(line.contains("mode 0622"), "{line}");
    mode(0o600);
    daemon.signal(Signal::HUP);
    daemon.wait_for("reloaded the configuration");
}
