//! `watchdogctl launch` against a daemon that grants, refuses, queues or disconnects: what CMD inherits, the output, and
//! the exit code.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, and not what they share")]

#[path = "../fake_daemon/mod.rs"]
mod fake_daemon;
mod retries;
mod silence;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rstest::rstest;
use serde_json::{Value, json};

use fake_daemon::{FakeDaemon, ctl, http, parts, run, stream_of};

const END: &str = "0\r\n\r\n";

fn grant_with(environment: &Value, oom_score_adj: i32) -> String {
    json!({
        "type": "granted", "granted": true, "session": 3, "profile": "claude-code", "memory_bytes": 1 << 29,
        "waited_seconds": 0.0, "environment": environment, "oom_score_adj": oom_score_adj,
        "limits": {"max_memory_bytes": null, "max_helpers": null, "max_depth": 4, "cgroup": null, "cgroup_problem": null},
    })
    .to_string()
}

fn grant() -> String {
    stream_of(&[&grant_with(&json!({}), 0)]) + END
}

fn waiting(reason: &str, detail: &str) -> String {
    json!({"type": "waiting", "position": 3, "reason": reason, "detail": detail, "estimate_seconds": 40.0}).to_string()
}

fn refusal() -> String {
    json!({
        "type": "refused", "granted": false, "reason": "quota", "detail": "2 of 2 sessions run",
        "retry_after_seconds": 12.5, "bound": "[gate] max_sessions",
        "holders": [{"session": 1, "pid": 77, "profile": "claude-code", "user": "ada", "memory_bytes": 1 << 30}],
    })
    .to_string()
}

/// A daemon that sends `answer` to all launches, and the requests that it received.
fn granting(answer: String) -> (FakeDaemon, Receiver<Value>) {
    let (sender, requests) = channel();
    let server = FakeDaemon::start(move |request, stream| {
        let body = request.strip_prefix("POST /v1/launch HTTP/1.1 ").unwrap();
        sender.send(serde_json::from_str(body).unwrap()).unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
    });
    (server, requests)
}

/// A daemon whose connections the test answers. Their requests are already read.
fn manual() -> (FakeDaemon, Receiver<UnixStream>) {
    let (sender, connections) = channel();
    let server = FakeDaemon::start(move |_, stream| sender.send(stream.try_clone().unwrap()).unwrap());
    (server, connections)
}

/// The output of a command when run directly, and when launched.
fn with_and_without(setup: &str, command: &[&str]) -> (String, String) {
    with_and_without_options(setup, &[], command)
}

fn with_and_without_options(setup: &str, options: &[&str], command: &[&str]) -> (String, String) {
    let (server, _requests) = granting(grant());
    let script = format!("{setup}\nexec \"$@\"");
    let run = |launcher: &[&str]| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, "sh"]).args(launcher).args(command);
        shell.env_remove("WATCHDOG_SOCKET").stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{setup}: {command:?}: {}", output.status);
        String::from_utf8(output.stdout).unwrap()
    };
    let socket = server.socket();
    let ctl = env!("CARGO_BIN_EXE_watchdogctl");
    let launcher = [&[ctl, "--socket", socket.to_str().unwrap(), "launch"], options, &["--"]].concat();
    (run(&[]), run(&launcher))
}

fn spawn(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn send(child: &Child, signal: i32) {
    // SAFETY: plain system call; the child has not been waited for.
    assert_eq!(unsafe { libc::kill(i32::try_from(child.id()).unwrap(), signal) }, 0);
}

#[test]
fn launcher_executes_the_command() {
    let (server, requests) = granting(grant());
    let arguments = ["launch", "--profile", "p", "--priority", "-5", "--memory", "2MiB", "--timeout", "90s", "--"];
    let mut command = ctl(&server.socket(), &[&arguments[..], &["sh", "-c", "echo $$; exit 7"]].concat());
    let child = spawn(&mut command);
    let pid = child.id();
    let (code, out, err) = parts(child.wait_with_output().unwrap());
    assert_eq!((code, out, err.as_str()), (7, format!("{pid}\n"), ""));
    let request = requests.recv().unwrap();
    assert!(request["path"].as_str().unwrap().starts_with('/'), "{request}");
    assert!(request["path"].as_str().unwrap().ends_with("/sh"), "{request}");
    assert_eq!(request["argv"], json!(["sh", "-c", "echo $$; exit 7"]));
    assert_eq!(request["profile"], "p");
    assert_eq!((&request["priority"], &request["memory_bytes"]), (&json!(-5), &json!(2 << 20)));
    let timeout = request["timeout_seconds"].as_f64().unwrap();
    assert!((80.0..=90.0).contains(&timeout), "{request}");
    assert_eq!((&request["pid"], &request["no_wait"]), (&Value::Null, &json!(false)));
}

#[rstest]
#[case("exec 7</dev/null 8>/dev/null")]
#[case("exec <&-")]
#[case("exec <&- 2>&-")]
fn descriptors_are_inherited(#[case] setup: &str, #[values(&[], &["--retries", "2"])] options: &[&str]) {
    let (plain, launched) = with_and_without_options(setup, options, &["ls", "/proc/self/fd"]);
    assert_eq!(launched, plain);
}

#[rstest]
#[case("")]
#[case("trap '' PIPE")]
#[case("trap '' HUP INT CHLD")]
fn signal_dispositions_are_inherited(#[case] setup: &str, #[values(&[], &["--retries", "2"])] options: &[&str]) {
    let (plain, launched) = with_and_without_options(setup, options, &["grep", "^Sig[BIC]", "/proc/self/status"]);
    assert_eq!(launched, plain);
    assert!(plain.contains("SigIgn"), "{plain}");
}

#[rstest]
#[case(&[])]
#[case(&["--retries", "2"])]
fn blocked_signal_stays_blocked(#[case] options: &[&str]) {
    let (server, _requests) = granting(grant());
    let arguments = [&["launch"], options, &["--", "grep", "^Sig[BI]", "/proc/self/status"]].concat();
    let mut command = ctl(&server.socket(), &arguments);
    // SAFETY: what is called is allowed between fork and exec.
    unsafe {
        command.pre_exec(|| {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGUSR1);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            Ok(())
        });
    }
    let (code, out, err) = parts(command.output().unwrap());
    assert_eq!(code, 0, "{err}");
    let blocked = 1u64 << (libc::SIGUSR1 - 1);
    let ignored = 1u64 << (libc::SIGCHLD - 1) | 1u64 << (libc::SIGPIPE - 1);
    let of = |name: &str| {
        let line = out.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    // The parent of the tests may ignore others.
    assert_eq!((of("SigBlk:"), of("SigIgn:") & ignored), (blocked, ignored), "{out}");
}

#[test]
fn directory_and_environment_are_inherited() {
    let directory = tempfile::tempdir().unwrap();
    let setup = format!("cd {}; export A=1 B='a b'; unset _", directory.path().display());
    for command in [&["pwd", "-P"][..], &["env"], &["cat", "/proc/self/cmdline"], &["sh", "-c", "umask; ulimit -a"]] {
        let (plain, launched) = with_and_without(&setup, command);
        assert_eq!(launched, plain, "{command:?}");
    }
}

#[test]
fn grant_sets_environment_and_oom_score() {
    let environment = json!({"NODE_OPTIONS": "--max-old-space-size=2048", "UV_THREADPOOL_SIZE": "4", "NEW": "profile"});
    let (server, _requests) = granting(stream_of(&[&grant_with(&environment, 300)]) + END);
    let script = "echo $NODE_OPTIONS; echo $UV_THREADPOOL_SIZE; echo $NEW; cat /proc/self/oom_score_adj";
    let mut command = ctl(&server.socket(), &["launch", "--env", "NEW=own", "--", "sh", "-c", script]);
    command.env("NODE_OPTIONS", "--inspect").env("UV_THREADPOOL_SIZE", "16");
    let (code, out, err) = parts(command.output().unwrap());
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out, "--inspect --max-old-space-size=2048\n16\nown\n300\n");
}

#[test]
fn higher_oom_score_stays() {
    let (server, _requests) = granting(stream_of(&[&grant_with(&json!({}), 300)]) + END);
    let command = ctl(&server.socket(), &["launch", "--", "cat", "/proc/self/oom_score_adj"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo 700 > /proc/self/oom_score_adj; exec \"$@\"", "sh"]);
    shell.arg(command.get_program()).args(command.get_args());
    let (code, out, err) = parts(shell.output().unwrap());
    assert_eq!((code, out.as_str(), err.as_str()), (0, "700\n", ""));
}

#[test]
fn script_without_interpreter_uses_shell() {
    let (server, _requests) = granting(grant());
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("agent");
    fs::write(&script, "echo $0 $1\n").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let script = script.to_str().unwrap();
    let (code, out, err) = run(&server.socket(), &["launch", "--", script, "x"]);
    assert_eq!((code, out), (0, format!("{script} x\n")), "{err}");
}

#[rstest]
#[case("no-such-command", 127)]
#[case("/etc/passwd", 126)]
#[case("/nowhere/agent", 127)]
fn missing_command_skips_the_gate(#[case] command: &str, #[case] expected: i32) {
    let (server, requests) = granting(grant());
    for options in [&[][..], &["--retries", "3"]] {
        let (code, out, err) = run(&server.socket(), &[&["launch"], options, &["--", command]].concat());
        assert_eq!((code, out.as_str()), (expected, ""), "{err}");
        assert!(err.starts_with("watchdogctl: ") && err.contains(command), "{err}");
    }
    assert!(requests.try_recv().is_err());
}

#[test]
fn failed_exec_is_one_document() {
    let (server, _requests) =
        granting(stream_of(&[&waiting("quota", "2 of 2 run"), &grant_with(&json!({}), 2_000)]) + END);
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("agent");
    fs::write(&script, "#!/nowhere/interpreter\n").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let (code, out, err) = run(&server.socket(), &["launch", "--json", "--", script.to_str().unwrap()]);
    assert_eq!((code, out.as_str()), (127, ""));
    let problem: Value = serde_json::from_str(&err).unwrap();
    assert!(problem["error"].as_str().unwrap().contains("cannot execute"), "{err}");
}

#[test]
fn refusal_is_text_or_json() {
    let server = FakeDaemon::raw(stream_of(&[&refusal()]) + END);
    let (code, out, err) = run(&server.socket(), &["launch", "--", "true"]);
    assert_eq!((code, out.as_str()), (75, ""));
    for part in ["2 of 2 sessions run", "[gate] max_sessions", "session 1 (claude-code, pid 77, ada", "again in 13s"] {
        assert!(err.contains(part), "{part} in {err}");
    }
    let (code, out, err) = run(&server.socket(), &["--json", "launch", "--", "true"]);
    assert_eq!((code, out.as_str(), err.lines().count()), (75, "", 1), "{err}");
    let refused: Value = serde_json::from_str(&err).unwrap();
    let parts = [&refused["granted"], &refused["reason"], &refused["detail"], &refused["retry_after_seconds"]];
    assert_eq!(parts, [&json!(false), &json!("quota"), &json!("2 of 2 sessions run"), &json!(12.5)]);
}

#[rstest]
#[case("400 Bad Request", r#"{"error":"no profile p: a, b"}"#, 2, "no profile p: a, b")]
#[case("404 Not Found", r#"{"error":"no profile p: a, b"}"#, 2, "no profile p: a, b")]
#[case("403 Forbidden", r#"{"error":"not yours"}"#, 77, "not permitted: not yours")]
#[case("500 Internal Server Error", "", 1, "500 Internal Server Error")]
fn permanent_error_fails_at_once(
    #[case] status: &'static str,
    #[case] body: &'static str,
    #[case] expected: i32,
    #[case] reason: &str,
) {
    let server = FakeDaemon::raw(http(status, body));
    for options in [&[][..], &["--fail-open"], &["--retries", "2"]] {
        let arguments = [&["launch", "--profile", "p"], options, &["--", "true"]].concat();
        let (code, out, err) = run(&server.socket(), &arguments);
        assert_eq!((code, out.as_str()), (expected, ""), "{err}");
        assert!(err.contains(reason), "{err}");
    }
}

#[test]
fn fail_open_starts_without_daemon() {
    let nowhere = Path::new("/nowhere/control.sock");
    let (code, out, err) = run(nowhere, &["launch", "--", "echo", "started"]);
    assert_eq!((code, out.as_str()), (69, ""));
    assert!(err.contains("/nowhere/control.sock"), "{err}");
    let (code, out, err) = run(nowhere, &["--json", "launch", "--", "echo", "started"]);
    assert_eq!((code, out.as_str()), (69, ""));
    let problem: Value = serde_json::from_str(&err).unwrap();
    assert!(problem["error"].as_str().unwrap().contains("/nowhere/control.sock"), "{err}");
    let (code, out, err) = run(nowhere, &["launch", "--fail-open", "--env", "A=b", "--", "sh", "-c", "echo $A"]);
    assert_eq!((code, out.as_str()), (0, "b\n"));
    assert!(err.contains("without the gate") && err.lines().count() == 1, "{err}");
}

#[test]
fn log_has_a_line_per_reason() {
    let lines = [waiting("quota", "2 of 2 run"), waiting("quota", "3 of 3 run"), waiting("memory", "1 GiB is free")];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let answer = stream_of(&[&lines[..], &[&grant_with(&json!({}), 0)]].concat()) + END;
    let server = FakeDaemon::raw(answer);
    let (code, out, err) = run(&server.socket(), &["launch", "--", "echo", "started"]);
    assert_eq!((code, out.as_str()), (0, "started\n"));
    assert_eq!(
        without_time(&err),
        "watchdogctl: waiting, position 3 in the queue, about 40s left: 2 of 2 run\n\
         watchdogctl: waiting, position 3 in the queue, about 40s left: 1 GiB is free\n"
    );
    let (code, _, err) = run(&server.socket(), &["launch", "--json", "--", "echo", "started"]);
    assert_eq!((code, err.as_str()), (0, ""));
}

/// The text of a wait, without " for 1s" and the like: a line has that from the first second on.
fn without_time(shown: &str) -> String {
    let (first, others) = shown.split_once("waiting for ").unwrap_or((shown, ""));
    match others.split_once(',') {
        Some((_, rest)) => format!("{first}waiting,{}", without_time(rest)),
        None => first.to_owned(),
    }
}

#[test]
fn terminal_line_is_redrawn_and_removed() {
    let (server, connections) = manual();
    let (mut master, slave) = terminal();
    let mut command = ctl(&server.socket(), &["launch", "--", "sh", "-c", "echo started >&2"]);
    let mut child = command.env("TERM", "xterm").stdout(Stdio::null()).stderr(slave).spawn().unwrap();
    drop(command);
    let mut daemon = connections.recv().unwrap();
    daemon.write_all(stream_of(&[&waiting("quota", "2 of 2 run")]).as_bytes()).unwrap();
    // The line is redrawn each second.
    let mut shown = String::new();
    read_until(&mut master, &mut shown, |shown| shown.matches("\x1b[K").count() > 1);
    let granted = stream_of(&[&grant_with(&json!({}), 0)]);
    daemon.write_all(granted.split_once("\r\n\r\n").unwrap().1.as_bytes()).unwrap();
    let mut rest = Vec::new();
    // The master reads EIO after the last slave is closed.
    let _ = master.read_to_end(&mut rest);
    assert!(child.wait().unwrap().success());
    let shown = shown + std::str::from_utf8(&rest).unwrap();
    let drawn = shown.strip_suffix("\r\x1b[Kstarted\r\n").unwrap_or_else(|| panic!("{shown:?}"));
    let line = "\rwaiting, position 3 in the queue, about 40s left: 2 of 2 run\x1b[K";
    let count = drawn.matches("\x1b[K").count();
    assert_eq!(without_time(drawn), line.repeat(count), "{shown:?}");
    assert!(drawn.matches("\rwaiting for ").count() + 1 >= count, "each line after the first has a time: {shown:?}");
}

/// Adds what a terminal shows to `shown`, until it is enough.
fn read_until(master: &mut fs::File, shown: &mut String, is_enough: impl Fn(&str) -> bool) {
    let mut buffer = [0; 256];
    while !is_enough(shown) {
        let read = master.read(&mut buffer).unwrap();
        shown.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
}

/// Both ends of a new terminal.
fn terminal() -> (fs::File, fs::File) {
    use std::os::fd::FromRawFd;
    let (mut master, mut slave) = (0, 0);
    let size = libc::winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the descriptors are written, the size is read, and the name and the modes are not asked for.
    unsafe {
        let null = std::ptr::null_mut();
        assert_eq!(libc::openpty(&raw mut master, &raw mut slave, null, std::ptr::null(), &raw const size), 0);
        libc::fcntl(master, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::fcntl(slave, libc::F_SETFD, libc::FD_CLOEXEC);
        (fs::File::from_raw_fd(master), fs::File::from_raw_fd(slave))
    }
}

#[test]
fn interrupt_in_queue_kills_launcher() {
    let (server, connections) = manual();
    let mut child = spawn(&mut ctl(&server.socket(), &["launch", "--", "true"]));
    let mut daemon = connections.recv().unwrap();
    daemon.write_all(stream_of(&[&waiting("quota", "2 of 2 run")]).as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("2 of 2 run"), "{line}");
    send(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGINT));
    // The connection ends with it.
    daemon.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(daemon.read(&mut [0]).unwrap(), 0);
}

/// A shell without job control starts background jobs like this.
#[rstest]
#[case(&["launch"])]
#[case(&["launch", "--retries", "2"])]
fn background_launch_keeps_ignoring_interrupt(#[case] launch: &[&str]) {
    let (server, connections) = manual();
    let script = "kill -INT $$; grep ^SigIgn: /proc/self/status";
    let mut command = ctl(&server.socket(), &[launch, &["--", "sh", "-c", script]].concat());
    // SAFETY: a plain system call, which is allowed between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_IGN);
            Ok(())
        });
    }
    let child = spawn(&mut command);
    let mut daemon = connections.recv().unwrap();
    daemon.write_all(stream_of(&[&waiting("quota", "2 of 2 run")]).as_bytes()).unwrap();
    send(&child, libc::SIGINT);
    let granted = grant_with(&json!({}), 0);
    let chunk = format!("{:x}\r\n{granted}\n\r\n{END}", granted.len() + 1);
    daemon.write_all(chunk.as_bytes()).unwrap();
    let (code, out, err) = parts(child.wait_with_output().unwrap());
    let ignored = u64::from_str_radix(out.trim_end().strip_prefix("SigIgn:\t").unwrap_or_default(), 16);
    assert_eq!((code, ignored.map(|ignored| ignored >> (libc::SIGINT - 1) & 1)), (0, Ok(1)), "{out}{err}");
}

#[test]
fn restarted_daemon_is_retried() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("control.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let child = spawn(&mut ctl(&socket, &["launch", "--timeout", "60s", "--", "echo", "started"]));
    let (mut daemon, _) = listener.accept().unwrap();
    daemon.write_all(stream_of(&[&waiting("quota", "2 of 2 run")]).as_bytes()).unwrap();
    drop((daemon, listener));
    fs::remove_file(&socket).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let listener = UnixListener::bind(&socket).unwrap();
    let (mut daemon, _) = listener.accept().unwrap();
    daemon.write_all(grant().as_bytes()).unwrap();
    let (code, out, err) = parts(child.wait_with_output().unwrap());
    assert_eq!((code, out.as_str()), (0, "started\n"));
    assert_eq!(err.matches("lost the connection to the daemon").count(), 1, "{err}");
}

#[test]
fn timeout_includes_restarts() {
    let (sender, requests) = channel();
    let server = FakeDaemon::start(move |request, stream| {
        let body: Value = serde_json::from_str(request.split_once(" HTTP/1.1 ").unwrap().1).unwrap();
        sender.send(body["timeout_seconds"].as_f64().unwrap()).unwrap();
        // Then disconnected.
        let _ = stream.write_all(stream_of(&[&waiting("quota", "2 of 2 run")]).as_bytes());
    });
    let began = Instant::now();
    let (code, _, err) = run(&server.socket(), &["launch", "--json", "--timeout", "8s", "--", "true"]);
    let took = began.elapsed();
    assert_eq!(code, 75, "{err}");
    assert!((Duration::from_millis(7_900)..Duration::from_secs(60)).contains(&took), "{took:?}");
    let refused: Value = serde_json::from_str(&err).unwrap();
    assert_eq!((&refused["granted"], &refused["reason"]), (&json!(false), &json!("timeout")));
    let left: Vec<f64> = requests.try_iter().collect();
    assert!(left.len() > 1 && left.is_sorted_by(|a, b| a > b), "{left:?}");
}

#[test]
fn fail_open_ends_an_outage() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("control.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let child = spawn(&mut ctl(&socket, &["launch", "--fail-open", "--", "echo", "started"]));
    let (mut daemon, _) = listener.accept().unwrap();
    daemon.write_all(stream_of(&[&waiting("quota", "2 of 2 run")]).as_bytes()).unwrap();
    let began = Instant::now();
    drop((daemon, listener));
    let (code, out, err) = parts(child.wait_with_output().unwrap());
    let took = began.elapsed();
    assert!((Duration::from_millis(4_500)..Duration::from_secs(30)).contains(&took), "{took:?}");
    assert_eq!((code, out.as_str()), (0, "started\n"));
    assert!(err.contains("without the gate (--fail-open)"), "{err}");
}
