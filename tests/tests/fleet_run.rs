//! Launches on another host: places, tickets, and a real sshd on loopback.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, and not what they share")]

use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use watchdog_api::{Fleet, HostChoice, HostState, StoreState};
use watchdog_tests::{Daemon, RedisServer, Stage, limit, poll};

const SSHD: &str = "/usr/sbin/sshd";

/// Two hosts that see each other, after the first pause of their store; host b has a label.
fn two_hosts(stage: &Stage, store: &RedisServer, limits: &str) -> [Daemon; 2] {
    let url = store.url();
    let daemons = [("a", ""), ("b", "labels = [\"remote\"]")].map(|(host, more)| {
        let config = format!(
            "[gate]\nexpected_memory = \"8MiB\"\nreserve = \"64MiB\"\n\
             [fleet]\nstore = \"{url}\"\nhost = \"{host}\"\nttl = \"15s\"\n{more}\n{limits}\n"
        );
        Daemon::configured(stage, &config)
    });
    for daemon in &daemons {
        let both = poll(limit(Duration::from_secs(30)), || {
            let fleet: Fleet = serde_json::from_value(daemon.get("/v1/fleet")).unwrap();
            let up = fleet.hosts.iter().filter(|host| host.state == HostState::Up && host.memory_free_bytes > 0);
            (fleet.store == StoreState::Up && up.count() == 2).then_some(())
        });
        assert!(both.is_some(), "{:#?}\n{}", daemon.get("/v1/fleet"), daemon.log());
    }
    store.command(&["HSET", "{agent-watchdog}:meta", "pause", "0"]);
    daemons
}

/// Waits for a place: a stall of the machine can pause the store.
fn placed(daemon: &Daemon, options: &[&str]) -> HostChoice {
    let found = poll(limit(Duration::from_secs(30)), || {
        let output = daemon.ctl(&[&["fleet", "place"], options].concat());
        serde_json::from_str(&output.stdout).ok().filter(|choice: &HostChoice| choice.placed)
    });
    found.unwrap_or_else(|| panic!("{:?}\n{}", daemon.ctl(&[&["fleet", "place"], options].concat()), daemon.log()))
}

#[test]
fn ticket_takes_reserved_slot() {
    let Some(store) = RedisServer::start(&[]) else { return };
    let mut stage = Stage::new();
    let [a, b] = two_hosts(&stage, &store, "max_sessions = 1");
    let choice = placed(&a, &["--label", "remote", "--memory", "16MiB"]);
    assert_eq!((choice.host.as_deref(), choice.is_this_host), (Some("b"), false), "{choice:?}");
    let (ticket, expires) = (choice.ticket.unwrap(), choice.expires_in_seconds.unwrap());
    assert!(ticket.len() >= 32 && (1.0..=60.0).contains(&expires), "{ticket} {expires}");

    let full = a.ctl(&["fleet", "place"]);
    assert_eq!(full.code, 75, "{full:?}");
    assert_eq!((&full.json()["placed"], full.json()["retry_after_seconds"].is_number()), (&false.into(), true));
    let text = a.ctl_text(&["fleet", "place"]);
    assert!(text.code == 75 && text.stderr.contains("1 of 1 slots in use"), "{text:?}");

    stage.execute(b.launch(&stage, &["--ticket", &ticket], "report there hold"));
    stage.reported("there");
    let pool = &b.get("/v1/fleet")["pools"][0];
    assert_eq!((&pool["held"], &pool["by_host"]), (&1.into(), &serde_json::json!({"b": 1})), "{pool}");
}

#[test]
fn impossible_placements_name_the_reason() {
    let Some(store) = RedisServer::start(&[]) else { return };
    let stage = Stage::new();
    let [a, _b] = two_hosts(&stage, &store, "max_sessions = 9");
    placed(&a, &[]);
    for (options, why) in [
        (&["--label", "moon"][..], "no reachable host has these labels"),
        (&["--memory", "900TiB"], "none of 2 hosts has the memory"),
    ] {
        let output = a.ctl_text(&[&["fleet", "place"], options].concat());
        assert!(output.code == 75 && output.stderr.contains(why), "{output:?}");
    }
    let unknown = a.ctl_text(&["fleet", "run", "nowhere", "--", "true"]);
    assert!(unknown.code == 75 && unknown.stderr.contains("the fleet has no host nowhere"), "{unknown:?}");
}

/// An sshd with keys and a port of its own, and an `ssh` that reads only this configuration.
struct SshHost {
    process: Child,
    bin: PathBuf,
}

impl SshHost {
    /// `None`, aloud, without sshd. Sessions see `socket`, and `watchdogctl` in their `PATH`.
    fn start(directory: &Path, host: &str, watchdogctl: &Path, socket: &Path) -> Option<Self> {
        if !Path::new(SSHD).is_file() {
            watchdog_tests::skip_without("sshd", "openssh-server");
            return None;
        }
        // sshd keeps its unprivileged process there, and Debian creates it at boot.
        std::fs::create_dir_all("/run/sshd").unwrap();
        let ssh = directory.join("ssh");
        let (bin, remote) = (ssh.join("bin"), ssh.join("remote"));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&remote).unwrap();
        symlink(watchdogctl, remote.join("watchdogctl")).unwrap();
        for key in ["host", "client"] {
            let mut command = Command::new("ssh-keygen");
            command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(ssh.join(key));
            assert!(command.status().unwrap().success());
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let shown = ssh.display();
        let config = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {shown}/host\nAuthorizedKeysFile {shown}/client.pub\nPidFile none\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n\
             SetEnv WATCHDOG_SOCKET={} PATH={}:/usr/bin:/bin\n",
            socket.display(),
            remote.display()
        );
        std::fs::write(ssh.join("sshd_config"), config).unwrap();
        let client = format!(
            "Host {host}\n HostName 127.0.0.1\n Port {port}\n User root\n IdentityFile {shown}/client\n IdentitiesOnly yes\n\
             UserKnownHostsFile {shown}/known_hosts\n StrictHostKeyChecking accept-new\n"
        );
        std::fs::write(ssh.join("config"), client).unwrap();
        let wrapper = bin.join("ssh");
        std::fs::write(&wrapper, format!("#!/bin/sh\nexec /usr/bin/ssh -F {shown}/config \"$@\"\n")).unwrap();
        std::fs::set_permissions(&wrapper, PermissionsExt::from_mode(0o755)).unwrap();
        let log = std::fs::File::create(ssh.join("log")).unwrap();
        let process = Command::new(SSHD)
            .args(["-D", "-e", "-f"])
            .arg(ssh.join("sshd_config"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let answers = poll(limit(Duration::from_secs(10)), || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        assert!(answers.is_some(), "{}", std::fs::read_to_string(ssh.join("log")).unwrap_or_default());
        Some(Self { process, bin })
    }

    /// `watchdogctl` of this daemon, with this `ssh`.
    fn ctl(&self, stage: &Stage, daemon: &Daemon, arguments: &[&str]) -> Command {
        let mut command = Command::new(&daemon.launch(stage, &[], "")[0]);
        command.arg("--socket").arg(daemon.socket()).args(arguments).stdin(Stdio::null());
        command.env("PATH", format!("{}:/usr/bin:/bin", self.bin.display()));
        command
    }
}

impl Drop for SshHost {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn text(output: &Output) -> (String, String) {
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    (stdout, stderr)
}

#[test]
fn command_runs_on_other_host() {
    let Some(store) = RedisServer::start(&[]) else { return };
    let stage = Stage::new();
    let [a, b] = two_hosts(&stage, &store, "max_sessions = 4");
    let watchdogctl = PathBuf::from(&b.launch(&stage, &[], "")[0]);
    let Some(ssh) = SshHost::start(stage.directory(), "b", &watchdogctl, &b.socket()) else { return };
    placed(&a, &[]);

    // Holds its place until the mark is there; then each argument on a line of its own, and a status of its own.
    let mark = stage.directory().join("mark");
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done; printf '<%s>\\n' \"$@\"; exit 7", mark.display());
    let hostile = ["it's", "a\\b\\", "$HOME `id` $(id)", "two  words", "", "*", "\"q\" ; rm -rf /nonexistent &", "-n"];
    let words: Vec<&str> =
        ["fleet", "run", "auto", "--label", "remote", "--memory", "16MiB", "--", "sh", "-c", &script, "x"]
            .into_iter()
            .chain(hostile)
            .collect();
    let mut running = ssh.ctl(&stage, &a, &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lease = poll(limit(Duration::from_secs(20)), || b.queue().leases.first().cloned());
    if lease.is_none() {
        let _ = running.kill();
        panic!("no lease: {:?}\n{:#?}\n{}", text(&running.wait_with_output().unwrap()), b.queue(), b.log());
    }
    assert!(a.queue().leases.is_empty());
    std::fs::write(&mark, "").unwrap();
    let output = running.wait_with_output().unwrap();
    let (stdout, stderr) = text(&output);
    assert_eq!(output.status.code(), Some(7), "{stderr}");
    assert_eq!(stdout.lines().collect::<Vec<_>>(), hostile.map(|word| format!("<{word}>")), "{stderr}");
    let over = poll(limit(Duration::from_secs(5)), || b.queue().leases.is_empty().then_some(()));
    assert!(over.is_some(), "{:#?}", b.queue());

    // Here, without ssh; and where nothing answers, with the status of ssh.
    let here = ssh.ctl(&stage, &a, &["fleet", "run", "a", "--", "sh", "-c", "echo here; exit 3"]).output().unwrap();
    assert_eq!((here.status.code(), text(&here).0.as_str()), (Some(3), "here\n"), "{here:?}");
    let missing = Command::new(&watchdogctl)
        .arg("--socket")
        .arg(a.socket())
        .args(["fleet", "run", "b", "--", "true"])
        .env("PATH", "/nonexistent")
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(127), "{missing:?}");
}
