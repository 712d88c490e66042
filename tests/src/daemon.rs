//! A daemon of the test's own, and what it shows.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde_json::Value;
use watchdog::api::{Event, Events, Finding, Findings, Queue, Status, Tree};

use crate::binaries::binaries;
use crate::look::Look;
use crate::stage::{Stage, install};
use crate::{http, limit, poll};

/// A running daemon.
pub struct Daemon {
    process: Child,
    uid: Option<u32>,
    files: Files,
}

/// Where a daemon's things are.
struct Files {
    watchdogd: PathBuf,
    watchdogctl: PathBuf,
    runtime: PathBuf,
    state: PathBuf,
    config: PathBuf,
    log: PathBuf,
    recording: PathBuf,
    /// Whether the daemon records.
    record: bool,
    /// Whether it sees no BPF file system.
    without_bpffs: bool,
    /// Whether it has the capabilities of the shipped unit only.
    as_unit: bool,
}

/// Numbers of the capabilities in the shipped unit's `CapabilityBoundingSet=` (include/uapi/linux/capability.h).
const UNIT_CAPABILITIES: [(&str, u32); 8] = [
    ("CAP_BPF", 39),
    ("CAP_PERFMON", 38),
    ("CAP_SYS_PTRACE", 19),
    ("CAP_DAC_READ_SEARCH", 2),
    ("CAP_DAC_OVERRIDE", 1),
    ("CAP_KILL", 5),
    ("CAP_SETUID", 7),
    ("CAP_SETGID", 6),
];

impl Files {
    /// Starts a daemon without waiting for it.
    fn launch(&self, uid: Option<u32>) -> Child {
        let mut command = Command::new(&self.watchdogd);
        command.arg("--config").arg(&self.config).arg("--runtime-dir").arg(&self.runtime);
        command.arg("--state-dir").arg(&self.state).args(["--listen", "127.0.0.1:0"]);
        if self.record {
            command.arg("--record").arg(&self.recording);
        }
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        if self.without_bpffs {
            // SAFETY: what is called after the fork are system calls, and allocates nothing.
            unsafe { command.pre_exec(without_bpffs) };
        }
        if self.as_unit {
            // SAFETY: what is called after the fork are system calls, and allocates nothing.
            unsafe { command.pre_exec(restrict_capabilities) };
        }
        let log = std::fs::File::create(&self.log).expect("a log");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        command.spawn().expect("the daemon starts")
    }
}

/// How a daemon is started.
#[derive(Default)]
pub struct Options<'a> {
    /// Configuration besides the profile of the stage's agent.
    pub config: &'a str,
    /// Another user to run as.
    pub uid: Option<u32>,
    /// Record what the engine is told.
    pub record: bool,
    /// Hide the BPF file system from it.
    pub without_bpffs: bool,
    /// Restrict it to the capabilities of the shipped unit.
    pub as_unit: bool,
    /// Another state directory than one of its own.
    pub state: Option<&'a Path>,
}

/// What `watchdogctl` answered.
#[derive(Debug)]
pub struct Answer {
    /// Its exit code.
    pub code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Answer {
    /// Standard output as one JSON document.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

impl Daemon {
    /// A daemon that takes the stage's agent for one, with a grace of 2 s for orphans.
    #[must_use]
    pub fn watching(stage: &Stage) -> Self {
        Self::with(stage, &Options::default())
    }

    /// A daemon with this configuration besides.
    #[must_use]
    pub fn configured(stage: &Stage, config: &str) -> Self {
        Self::with(stage, &Options { config, ..Options::default() })
    }

    /// A daemon that is started in a way of its own.
    ///
    /// # Panics
    /// When it does not become ready.
    #[must_use]
    pub fn with(stage: &Stage, options: &Options<'_>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let at = |name: &str| stage.directory().join(format!("{name}-{number}"));
        // Other users cannot reach a build directory that is somebody's own.
        let files = Files {
            watchdogd: at("watchdogd"),
            watchdogctl: at("watchdogctl"),
            runtime: at("run"),
            state: options.state.map_or_else(|| at("state"), Path::to_owned),
            config: at("config.toml"),
            log: at("watchdogd.log"),
            recording: at("recording"),
            record: options.record,
            without_bpffs: options.without_bpffs,
            as_unit: options.as_unit,
        };
        install(&binaries().watchdogd, &files.watchdogd);
        install(&binaries().watchdogctl, &files.watchdogctl);
        std::fs::write(&files.config, configuration(stage, options.config)).expect("the configuration");
        let process = files.launch(options.uid);
        let mut daemon = Self { process, uid: options.uid, files };
        daemon.await_ready();
        daemon
    }

    /// Removes what the daemon left in the kernel, after it has ended.
    ///
    /// # Panics
    /// When `watchdogd` cannot be started.
    #[must_use]
    pub fn unpin(&self) -> Answer {
        // Not the copy on the stage, whose directory may be removed by now.
        let mut command = Command::new(&binaries().watchdogd);
        command.arg("--unpin").arg("--runtime-dir").arg(&self.files.runtime).stdin(Stdio::null());
        answer(command.output().expect("watchdogd starts"))
    }

    /// Starts the daemon again, after it has ended, where it was, and does not wait for it.
    pub fn relaunch(&mut self) {
        self.process = self.files.launch(self.uid);
    }

    /// Starts the daemon again, after it has ended, where it was.
    ///
    /// # Panics
    /// When it does not become ready.
    pub fn restart(&mut self) {
        self.relaunch();
        self.await_ready();
    }

    /// Starts the daemon, after it has ended, and kills it after this long.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_and_kill(&mut self, after: Duration) {
        self.relaunch();
        std::thread::sleep(after);
        self.send(Signal::KILL);
        self.process.wait().expect("the daemon is our child");
    }

    /// Waits until the daemon is ready.
    ///
    /// # Panics
    /// When it does not become so.
    pub fn await_ready(&mut self) {
        let ready = poll(limit(Duration::from_secs(40)), || {
            let ended = self.process.try_wait().expect("the daemon is our child");
            assert!(ended.is_none(), "the daemon ended: {ended:?}\n{}", self.log());
            self.log().lines().any(|line| line.contains("ready")).then_some(())
        });
        assert!(ready.is_some(), "the daemon is not ready\n{}", self.log());
    }

    /// Starts a second daemon on this one's runtime directory, and waits until it gives up.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn second(&self) -> Answer {
        let mut command = Command::new(&binaries().watchdogd);
        command.args(["--listen", "off", "--runtime-dir"]).arg(&self.files.runtime);
        command.arg("--state-dir").arg(self.files.state.with_extension("second"));
        command
            .arg("--config")
            .arg(&self.files.config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut second = command.spawn().expect("the second daemon starts");
        if poll(limit(Duration::from_secs(10)), || second.try_wait().expect("our child")).is_none() {
            second.kill().expect("our child");
        }
        answer(second.wait_with_output().expect("our child"))
    }

    /// The daemon's pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The control socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.files.runtime.join("control.sock")
    }

    /// Where the daemon keeps what outlives it.
    #[must_use]
    pub fn state_dir(&self) -> &Path {
        &self.files.state
    }

    /// The recording, of a daemon that records.
    #[must_use]
    pub fn recording(&self) -> &Path {
        &self.files.recording
    }

    /// What the daemon has logged.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.files.log).unwrap_or_default()
    }

    /// Where the metrics are, which the daemon says in its log since the system chose the port.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn metrics_address(&self) -> SocketAddr {
        let log = self.log();
        let mut addresses = log.match_indices("127.0.0.1:").filter_map(|(at, start)| {
            let digits = log[at + start.len()..].split(|c: char| !c.is_ascii_digit()).next()?;
            let port: u16 = digits.parse().ok().filter(|port| *port != 0)?;
            Some(SocketAddr::from(([127, 0, 0, 1], port)))
        });
        addresses.next().unwrap_or_else(|| panic!("no metrics address in\n{log}"))
    }

    /// The metrics, as text.
    ///
    /// # Panics
    /// When they are not served.
    #[must_use]
    pub fn metrics(&self) -> String {
        let response = http::raw_tcp(self.metrics_address(), "/metrics").expect("the metrics");
        assert_eq!(response.status, 200, "{}", response.body);
        response.body
    }

    /// Asks the control API with GET.
    ///
    /// # Panics
    /// When there is no answer, or no success.
    #[must_use]
    pub fn get(&self, path: &str) -> Value {
        let response = http::get(&self.socket(), path);
        let response = response.unwrap_or_else(|error| panic!("GET {path}: {error}\n{}", self.log()));
        assert_eq!(response.status, 200, "GET {path}: {}", response.body);
        response.json()
    }

    /// What the daemon shows now.
    ///
    /// # Panics
    /// When it does not answer in the API's types.
    #[must_use]
    pub fn look(&self) -> Look {
        let tree: Tree = serde_json::from_value(self.get("/v1/tree")).expect("a tree");
        let findings: Findings = serde_json::from_value(self.get("/v1/findings?all=true")).expect("findings");
        Look { tree, findings: findings.findings }
    }

    /// What has happened.
    ///
    /// # Panics
    /// As [`Daemon::look`].
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        let events: Events = serde_json::from_value(self.get("/v1/events")).expect("events");
        events.events
    }

    /// How the daemon is.
    ///
    /// # Panics
    /// As [`Daemon::look`].
    #[must_use]
    pub fn status(&self) -> Status {
        serde_json::from_value(self.get("/v1/status")).expect("a status")
    }

    /// What is said of the death of whoever had this pid last, as soon as something is.
    ///
    /// # Panics
    /// When nothing is within the limit.
    #[must_use]
    pub fn death(&self, pid: u32, within: Duration) -> Value {
        let found = poll(within, || {
            let answer = http::get(&self.socket(), &format!("/v1/explain?pid={pid}")).ok()?;
            (answer.status == 200).then(|| answer.json()["deaths"][0].clone()).filter(Value::is_object)
        });
        found.unwrap_or_else(|| panic!("nothing of the death of {pid}\n{}", self.describe(Some(&self.look()))))
    }

    /// Waits until the daemon shows what is expected.
    ///
    /// # Panics
    /// When it does not within the limit; the message tells all that it showed instead.
    pub fn eventually<T>(&self, within: Duration, what: &str, mut seen: impl FnMut(&Look) -> Option<T>) -> T {
        let mut last = None;
        let found = poll(within, || {
            let look = self.look();
            let found = seen(&look);
            last = Some(look);
            found
        });
        found.unwrap_or_else(|| panic!("not within {within:?}: {what}\n{}", self.describe(last.as_ref())))
    }

    /// Waits until the finding of this number is closed.
    ///
    /// # Panics
    /// As [`Daemon::eventually`].
    pub fn closed(&self, finding: u64, within: Duration) -> Finding {
        self.eventually(within, &format!("finding {finding} is closed"), |look| {
            look.findings.iter().find(|found| found.id == finding && found.closed_at.is_some()).cloned()
        })
    }

    /// Asserts that what is wrong does not show during all of this time.
    ///
    /// # Panics
    /// When it does.
    pub fn never<T>(&self, during: Duration, what: &str, mut wrong: impl FnMut(&Look) -> Option<T>) {
        let seen = poll(during, || {
            let look = self.look();
            wrong(&look).map(|_| look)
        });
        if let Some(look) = seen {
            panic!("was not to be: {what}\n{}", self.describe(Some(&look)));
        }
    }

    /// Everything that helps to understand a failure.
    #[must_use]
    pub fn describe(&self, look: Option<&Look>) -> String {
        let mut text = String::new();
        for session in look.iter().flat_map(|look| &look.tree.sessions) {
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
        for finding in look.iter().flat_map(|look| &look.findings) {
            let _ = writeln!(text, "finding {}", serde_json::to_string(finding).unwrap_or_default());
        }
        let _ = writeln!(text, "--- the daemon's log\n{}", self.log());
        text
    }

    /// The words that start the stage's agent with this script, as root, through this daemon's gate.
    #[must_use]
    pub fn launch(&self, stage: &Stage, options: &[&str], script: &str) -> Vec<String> {
        let agent = stage.directory().join(stage.agent_name()).display().to_string();
        let mut words = vec![self.files.watchdogctl.display().to_string(), "--socket".to_owned()];
        words.extend([self.socket().display().to_string(), "launch".to_owned()]);
        words.extend(options.iter().map(|option| (*option).to_owned()));
        words.extend(["--".to_owned(), agent]);
        words.extend(script.split_whitespace().map(str::to_owned));
        words
    }

    /// What the gate shows.
    ///
    /// # Panics
    /// As [`Daemon::look`].
    #[must_use]
    pub fn queue(&self) -> Queue {
        serde_json::from_value(self.get("/v1/queue")).expect("a queue")
    }

    /// `watchdogctl --json ARGUMENTS` against this daemon, as root.
    #[must_use]
    pub fn ctl(&self, arguments: &[&str]) -> Answer {
        self.run_ctl(&[&["--json"], arguments].concat(), None)
    }

    /// The same for a person: no `--json`.
    #[must_use]
    pub fn ctl_text(&self, arguments: &[&str]) -> Answer {
        self.run_ctl(arguments, None)
    }

    /// The same as [`Daemon::ctl`], as another user.
    #[must_use]
    pub fn ctl_as(&self, uid: u32, arguments: &[&str]) -> Answer {
        self.run_ctl(&[&["--json"], arguments].concat(), Some(uid))
    }

    fn run_ctl(&self, arguments: &[&str], uid: Option<u32>) -> Answer {
        let mut command = Command::new(&self.files.watchdogctl);
        command.arg("--socket").arg(self.socket()).args(arguments).env("NO_COLOR", "1").stdin(Stdio::null());
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        answer(command.output().expect("watchdogctl starts"))
    }

    /// A `watchdogctl` that goes on, with its output piped. The caller ends it.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn follow(&self, arguments: &[&str]) -> Child {
        let mut command = Command::new(&self.files.watchdogctl);
        command.arg("--socket").arg(self.socket()).arg("--json").args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("watchdogctl starts")
    }

    /// Writes another configuration, without the profile of the stage's agent, and tells the daemon to read it again.
    ///
    /// # Panics
    /// When the daemon is gone.
    pub fn reload(&self, config: &str) {
        std::fs::write(&self.files.config, without_built_in_profiles(config)).expect("the configuration");
        self.send(Signal::HUP);
    }

    /// Replaces the configuration for the next start, which takes the stage's agent for one.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn configure(&self, stage: &Stage, config: &str) {
        std::fs::write(&self.files.config, configuration(stage, config)).expect("the configuration");
    }

    /// Ends the daemon with this signal.
    ///
    /// # Panics
    /// When it does not end.
    pub fn end(&mut self, signal: Signal) {
        self.send(signal);
        let ended = self.wait(limit(Duration::from_secs(5)));
        assert!(ended.is_some(), "the daemon did not end\n{}", self.log());
    }

    /// The configuration file.
    #[must_use]
    pub fn config(&self) -> &Path {
        &self.files.config
    }

    /// Sends a signal to the daemon.
    ///
    /// # Panics
    /// When it is gone.
    pub fn send(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap()).expect("a pid");
        kill_process(pid, signal).expect("the daemon is our child, and was not waited for");
    }

    /// Waits for the daemon's end; `None` when it goes on.
    ///
    /// # Panics
    /// Never, since it is our child.
    pub fn wait(&mut self, within: Duration) -> Option<ExitStatus> {
        poll(within, || self.process.try_wait().expect("the daemon is our child"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            self.send(Signal::TERM);
            if self.wait(limit(Duration::from_secs(5))).is_none() {
                let _ = self.process.kill();
                let _ = self.process.wait();
            }
        }
        // What stays in the kernel would cost every process of this machine until it is booted again.
        let unpinned = self.unpin();
        if unpinned.code != 0 && !std::thread::panicking() {
            panic!("pins are left behind: {unpinned:?}");
        }
    }
}

/// Moves this process to a mount namespace without the BPF file system.
fn without_bpffs() -> std::io::Result<()> {
    // SAFETY: this process has one thread, and shares no memory that depends on its namespaces.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    match unmount("/sys/fs/bpf", UnmountFlags::DETACH) {
        // It is not mounted at all.
        Err(Errno::INVAL) => Ok(()),
        unmounted => Ok(unmounted?),
    }
}

/// Removes from this process all capabilities that the shipped unit does not have, from the next exec on.
fn restrict_capabilities() -> std::io::Result<()> {
    let kept = |number| UNIT_CAPABILITIES.iter().any(|(_, kept)| *kept == number);
    for number in (0..u64::BITS).filter(|number| !kept(*number)) {
        // SAFETY: PR_CAPBSET_DROP takes a number, and touches no memory of this process.
        let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) };
        let error = std::io::Error::last_os_error();
        // The kernel knows no capability of this number.
        if dropped != 0 && error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
    }
    Ok(())
}

/// The profile of the stage's agent, and what the test adds.
fn configuration(stage: &Stage, more: &str) -> String {
    let grace = if more.contains("[orphans]") { "" } else { "[orphans]\ngrace = \"2s\"\n" };
    let profile = format!("[[profile]]\nname = \"test\"\nexe = [\"*/{}\"]\n", stage.agent_name());
    without_built_in_profiles(&format!("{grace}{more}\n{profile}"))
}

/// Somebody's real agents may run on this machine, and are none of our business.
fn without_built_in_profiles(config: &str) -> String {
    let (tracking, without) = ("[tracking]\n", "[tracking]\nbuilt_in_profiles = false\n");
    if config.contains(tracking) { config.replace(tracking, without) } else { format!("{config}\n{without}") }
}

fn answer(output: std::process::Output) -> Answer {
    Answer {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_match_unit() {
        let unit = include_str!("../../packaging/watchdogd.service");
        let named = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
        assert_eq!(named.split(' ').collect::<Vec<_>>(), UNIT_CAPABILITIES.map(|(name, _)| name));
    }
}
