//! What a test asks a daemon: over HTTP, through `watchdogctl`, and from its log.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use watchdog_api::{Event, Events, Finding, Findings, Queue, Status, Tree};

use crate::daemon::Daemon;
use crate::snapshot::Snapshot;
use crate::stage::Stage;
use crate::{http, limit, poll};

#[derive(Debug)]
pub struct CtlOutput {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl CtlOutput {
    /// Standard output as one JSON document.
    ///
    /// # Panics
    /// When it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    pub(super) fn of(output: std::process::Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Daemon {
    /// The address of the metrics, from the log: the kernel chooses the port.
    ///
    /// # Panics
    /// After the time limit.
    pub fn metrics_address(&self) -> SocketAddr {
        let log = self.log();
        let mut addresses = log.match_indices("127.0.0.1:").filter_map(|(at, start)| {
            let digits = log[at + start.len()..].split(|c: char| !c.is_ascii_digit()).next()?;
            let port: u16 = digits.parse().ok().filter(|port| *port != 0)?;
            Some(SocketAddr::from(([127, 0, 0, 1], port)))
        });
        addresses.next().unwrap_or_else(|| panic!("no metrics address in\n{log}"))
    }

    ///
    /// # Panics
    /// When they are not served.
    pub fn metrics(&self) -> String {
        let address = self.metrics_address();
        let response = http::asked_again(|| http::raw_tcp(address, "/metrics").expect("the metrics"));
        assert_eq!(response.status, 200, "{}", response.body);
        response.body
    }

    /// GET on the control API; again, as `watchdogctl` does, after a response that asks for it.
    ///
    /// # Panics
    /// Without a successful response.
    pub fn get(&self, path: &str) -> Value {
        let response = http::asked_again(|| {
            let response = http::get(&self.socket(), path);
            response.unwrap_or_else(|error| panic!("GET {path}: {error}\n{}", self.log()))
        });
        assert_eq!(response.status, 200, "GET {path}: {}", response.body);
        response.json()
    }

    /// Tree and findings now.
    ///
    /// # Panics
    /// Without a valid response.
    pub fn snapshot(&self) -> Snapshot {
        let tree: Tree = serde_json::from_value(self.get("/v1/tree")).expect("a tree");
        let findings: Findings = serde_json::from_value(self.get("/v1/findings?all=true")).expect("findings");
        Snapshot { tree, findings: findings.findings }
    }

    ///
    /// # Panics
    /// As [`Daemon::snapshot`].
    pub fn events(&self) -> Vec<Event> {
        let events: Events = serde_json::from_value(self.get("/v1/events")).expect("events");
        events.events
    }

    ///
    /// # Panics
    /// As [`Daemon::snapshot`].
    pub fn status(&self) -> Status {
        serde_json::from_value(self.get("/v1/status")).expect("a status")
    }

    /// Waits for an explanation of the death of the last process with this pid.
    ///
    /// # Panics
    /// After the time limit.
    pub fn death(&self, pid: u32, within: Duration) -> Value {
        let found = poll(within, || {
            let answer = http::get(&self.socket(), &format!("/v1/explain?pid={pid}")).ok()?;
            (answer.status == 200).then(|| answer.json()["deaths"][0].clone()).filter(Value::is_object)
        });
        found.unwrap_or_else(|| {
            panic!(
                "no explanation of the death of {pid}
{}",
                self.describe(Some(&self.snapshot()))
            )
        })
    }

    /// Waits until `seen` finds what is expected in a snapshot.
    ///
    /// # Panics
    /// After the time limit, with the last snapshot.
    pub fn eventually<T>(&self, within: Duration, what: &str, mut seen: impl FnMut(&Snapshot) -> Option<T>) -> T {
        let mut last = None;
        let found = poll(within, || {
            let snapshot = self.snapshot();
            let found = seen(&snapshot);
            last = Some(snapshot);
            found
        });
        found.unwrap_or_else(|| {
            panic!(
                "timeout after {within:?}: {what}
{}",
                self.describe(last.as_ref())
            )
        })
    }

    /// Waits until this finding is closed.
    ///
    /// # Panics
    /// As [`Daemon::eventually`].
    pub fn closed(&self, finding: u64, within: Duration) -> Finding {
        self.eventually(within, &format!("finding {finding} is closed"), |snapshot| {
            snapshot.findings.iter().find(|found| found.id == finding && found.closed_at.is_some()).cloned()
        })
    }

    /// Asserts that `wrong` finds nothing during this time.
    ///
    /// # Panics
    /// When it does.
    pub fn never<T>(&self, during: Duration, what: &str, mut wrong: impl FnMut(&Snapshot) -> Option<T>) {
        let began = Instant::now();
        while began.elapsed() < during {
            let snapshot = self.snapshot();
            // What is seen after the time may be right.
            if wrong(&snapshot).is_some() && began.elapsed() < during {
                panic!(
                    "unexpected: {what}
{}",
                    self.describe(Some(&snapshot))
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Snapshot and log, for failure messages.
    pub fn describe(&self, snapshot: Option<&Snapshot>) -> String {
        let mut text = String::new();
        for session in snapshot.iter().flat_map(|snapshot| &snapshot.tree.sessions) {
            let _ = writeln!(
                text,
                "session {} {} {} memory {} zombies {} parent {:?}",
                session.id,
                session.profile,
                session.state.name(),
                session.memory_bytes,
                session.zombies,
                session.parent_session
            );
            for p in &session.processes {
                let _ = writeln!(
                    text,
                    "  {}{}@{} ppid {} parent {} depth {} {} {} [{}] {:?} anon {} shmem {} peak {} {}",
                    "  ".repeat(p.depth as usize),
                    p.pid,
                    p.start_time,
                    p.ppid,
                    p.parent_pid,
                    p.depth,
                    p.kind.name(),
                    p.state.name(),
                    p.comm,
                    p.argv,
                    p.anon_bytes,
                    p.shmem_bytes,
                    p.peak_bytes,
                    p.kept_because.as_deref().unwrap_or_default()
                );
            }
        }
        for finding in snapshot.iter().flat_map(|snapshot| &snapshot.findings) {
            let _ = writeln!(text, "finding {}", serde_json::to_string(finding).unwrap_or_default());
        }
        let _ = writeln!(text, "--- the daemon's log\n{}", self.log());
        text
    }

    /// `watchdogctl` with these arguments, as a line for a shell.
    pub fn ctl_line(&self, arguments: &str) -> String {
        format!("{} --socket {} {arguments}", self.client().display(), self.socket().display())
    }

    /// The command that launches the stage's agent with this script through the gate.
    pub fn launch(&self, stage: &Stage, options: &[&str], script: &str) -> Vec<String> {
        let agent = stage.directory().join(stage.agent_name()).display().to_string();
        let mut words = vec![self.client().display().to_string(), "--socket".to_owned()];
        words.extend([self.socket().display().to_string(), "launch".to_owned()]);
        words.extend(options.iter().map(|option| (*option).to_owned()));
        words.extend(["--".to_owned(), agent]);
        words.extend(script.split_whitespace().map(str::to_owned));
        words
    }

    ///
    /// # Panics
    /// As [`Daemon::snapshot`].
    pub fn queue(&self) -> Queue {
        serde_json::from_value(self.get("/v1/queue")).expect("a queue")
    }

    /// `watchdogctl --json ARGUMENTS`, as root.
    pub fn ctl(&self, arguments: &[&str]) -> CtlOutput {
        self.run_ctl(&[&["--json"], arguments].concat(), None)
    }

    /// The same without `--json`.
    pub fn ctl_text(&self, arguments: &[&str]) -> CtlOutput {
        self.run_ctl(arguments, None)
    }

    /// [`Daemon::ctl`] as another user.
    pub fn ctl_as(&self, uid: u32, arguments: &[&str]) -> CtlOutput {
        self.run_ctl(&[&["--json"], arguments].concat(), Some(uid))
    }

    fn run_ctl(&self, arguments: &[&str], uid: Option<u32>) -> CtlOutput {
        let mut command = Command::new(self.client());
        command.arg("--socket").arg(self.socket()).args(arguments).env("NO_COLOR", "1").stdin(Stdio::null());
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        let mut ask = || CtlOutput::of(command.output().expect("watchdogctl starts"));
        // The daemon forgets a request that it did not answer in time.
        let is_answer = |output: &CtlOutput| !output.stderr.contains("did not answer within");
        let answered = poll(limit(Duration::from_secs(20)), || Some(ask()).filter(is_answer));
        answered.unwrap_or_else(ask)
    }

    /// A running `watchdogctl` with piped output. The caller must kill it.
    ///
    /// # Panics
    /// When it does not start.
    pub fn follow(&self, arguments: &[&str]) -> Child {
        let mut command = Command::new(self.client());
        command.arg("--socket").arg(self.socket()).arg("--json").args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("watchdogctl starts")
    }
}
