//! A daemon under test.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::statfs;
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use tempfile::TempDir;

use crate::binaries::binaries;
use crate::daemon_client::CtlOutput;
use crate::stage::{Stage, install};
use crate::{limit, poll};

pub struct Daemon {
    process: Child,
    uid: Option<u32>,
    files: Files,
}

struct Files {
    watchdogd: PathBuf,
    watchdogctl: PathBuf,
    runtime: PathBuf,
    /// Contains the runtime directory and the default state directory.
    _memory: TempDir,
    state: PathBuf,
    config: PathBuf,
    log: PathBuf,
    recording: PathBuf,
    /// Whether it writes a recording.
    record: bool,
    /// Hides the BPF file system.
    without_bpffs: bool,
    capabilities: GrantedCapabilities,
}

/// The capabilities of a daemon that is started as root.
#[derive(Clone, Copy, Default)]
pub enum GrantedCapabilities {
    #[default]
    All,
    /// Those of the shipped unit.
    Unit,
    /// Those of the Helm chart.
    Chart,
    /// Those of the Helm chart without this one.
    ChartWithout(&'static str),
}

impl GrantedCapabilities {
    fn has(self, number: u32) -> bool {
        let of_unit = UNIT_CAPABILITIES.iter().find(|(_, kept)| *kept == number).map(|(name, _)| *name);
        let of_chart = of_unit.filter(|name| CHART_CAPABILITIES.contains(name));
        match self {
            Self::All => true,
            Self::Unit => of_unit.is_some(),
            Self::Chart => of_chart.is_some(),
            Self::ChartWithout(dropped) => of_chart.is_some_and(|name| name != dropped),
        }
    }
}

/// Those that the Helm chart adds.
pub const CHART_CAPABILITIES: [&str; 7] =
    ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_DAC_OVERRIDE", "CAP_KILL", "CAP_SYS_NICE"];

/// Numbers of the capabilities in the shipped unit's `CapabilityBoundingSet=` (include/uapi/linux/capability.h).
const UNIT_CAPABILITIES: [(&str, u32); 9] = [
    ("CAP_BPF", 39),
    ("CAP_PERFMON", 38),
    ("CAP_SYS_PTRACE", 19),
    ("CAP_DAC_READ_SEARCH", 2),
    ("CAP_DAC_OVERRIDE", 1),
    ("CAP_KILL", 5),
    ("CAP_SETUID", 7),
    ("CAP_SETGID", 6),
    ("CAP_SYS_NICE", 23),
];

impl Files {
    /// Does not wait until it is ready.
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
            // SAFETY: only system calls after the fork, no allocation.
            unsafe { command.pre_exec(without_bpffs) };
        }
        let capabilities = self.capabilities;
        if !matches!(capabilities, GrantedCapabilities::All) {
            // SAFETY: only system calls after the fork, no allocation.
            unsafe { command.pre_exec(move || restrict(capabilities)) };
        }
        let log = std::fs::File::create(&self.log).expect("a log");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        command.spawn().expect("the daemon starts")
    }
}

#[derive(Default)]
pub struct DaemonOptions<'a> {
    /// Configuration in addition to the profile of the stage's agent.
    pub config: &'a str,
    /// Runs as this user.
    pub uid: Option<u32>,
    pub record: bool,
    /// Hides the BPF file system.
    pub without_bpffs: bool,
    pub capabilities: GrantedCapabilities,
    /// Default: its own.
    pub state: Option<&'a Path>,
}

impl Daemon {
    /// A stage, and a daemon that [watches](Self::watching) it.
    #[must_use]
    pub fn on_stage() -> (Stage, Self) {
        let stage = Stage::new();
        let daemon = Self::watching(&stage);
        (stage, daemon)
    }

    /// With a profile for the stage's agent, and a grace of 2 s for orphans.
    #[must_use]
    pub fn watching(stage: &Stage) -> Self {
        Self::with(stage, &DaemonOptions::default())
    }

    /// The same with additional configuration.
    #[must_use]
    pub fn configured(stage: &Stage, config: &str) -> Self {
        Self::with(stage, &DaemonOptions { config, ..DaemonOptions::default() })
    }

    ///
    /// # Panics
    /// When it does not become ready.
    #[must_use]
    pub fn with(stage: &Stage, options: &DaemonOptions<'_>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let at = |name: &str| stage.directory().join(format!("{name}-{number}"));
        let memory = memory_directory();
        // Copies, because other users may be unable to reach the build directory.
        let files = Files {
            watchdogd: at("watchdogd"),
            watchdogctl: at("watchdogctl"),
            runtime: memory.path().join("run"),
            // On a busy disk a record takes seconds to write.
            state: options.state.map_or_else(|| memory.path().join("state"), Path::to_owned),
            config: at("config.toml"),
            log: at("watchdogd.log"),
            recording: at("recording"),
            record: options.record,
            without_bpffs: options.without_bpffs,
            capabilities: options.capabilities,
            _memory: memory,
        };
        install(&binaries().watchdogd, &files.watchdogd);
        install(&binaries().watchdogctl, &files.watchdogctl);
        std::fs::write(&files.config, configuration(stage, options.config)).expect("the configuration");
        let process = files.launch(options.uid);
        let mut daemon = Self { process, uid: options.uid, files };
        daemon.await_ready();
        daemon
    }

    /// Removes the daemon's pins; it must have exited.
    ///
    /// # Panics
    /// When `watchdogd` cannot be started.
    pub fn unpin(&self) -> CtlOutput {
        // Not the copy on the stage, whose directory may have been removed.
        let mut command = Command::new(&binaries().watchdogd);
        command.arg("--unpin").arg("--runtime-dir").arg(&self.files.runtime).stdin(Stdio::null());
        CtlOutput::of(command.output().expect("watchdogd starts"))
    }

    /// Starts the daemon again in the same directories, without waiting; it must have exited.
    pub fn relaunch(&mut self) {
        self.process = self.files.launch(self.uid);
    }

    /// Starts the daemon again in the same directories; it must have exited.
    ///
    /// # Panics
    /// When it does not become ready.
    pub fn restart(&mut self) {
        self.relaunch();
        self.await_ready();
    }

    /// Starts the daemon again, and kills it after this time.
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
    /// After 40 s.
    pub fn await_ready(&mut self) {
        let ready = poll(limit(Duration::from_secs(40)), || {
            let ended = self.process.try_wait().expect("the daemon is our child");
            assert!(ended.is_none(), "the daemon ended: {ended:?}\n{}", self.log());
            self.log().lines().any(|line| line.contains("ready")).then_some(())
        });
        assert!(ready.is_some(), "the daemon is not ready\n{}", self.log());
    }

    /// Starts a second daemon with the same runtime directory, and waits until it exits.
    ///
    /// # Panics
    /// After the time limit.
    pub fn second(&self) -> CtlOutput {
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
        CtlOutput::of(second.wait_with_output().expect("our child"))
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn socket(&self) -> PathBuf {
        self.files.runtime.join("control.sock")
    }

    pub fn state_dir(&self) -> &Path {
        &self.files.state
    }

    /// With [`DaemonOptions::record`].
    pub fn recording(&self) -> &Path {
        &self.files.recording
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.files.log).unwrap_or_default()
    }

    /// Replaces the configuration, without the profile of the stage's agent, and sends SIGHUP.
    ///
    /// # Panics
    /// When the daemon has exited.
    pub fn reload(&self, config: &str) {
        std::fs::write(&self.files.config, without_built_in_profiles(config)).expect("the configuration");
        self.send(Signal::HUP);
    }

    /// Replaces the configuration for the next start, with the profile of the stage's agent.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn configure(&self, stage: &Stage, config: &str) {
        std::fs::write(&self.files.config, configuration(stage, config)).expect("the configuration");
    }

    /// Terminates the daemon with this signal.
    ///
    /// # Panics
    /// After 5 s.
    pub fn end(&mut self, signal: Signal) {
        self.send(signal);
        let ended = self.wait(limit(Duration::from_secs(5)));
        assert!(
            ended.is_some(),
            "the daemon did not exit
{}",
            self.log()
        );
    }

    pub(super) fn client(&self) -> &Path {
        &self.files.watchdogctl
    }

    pub fn config(&self) -> &Path {
        &self.files.config
    }

    ///
    /// # Panics
    /// When it has exited.
    pub fn send(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap()).expect("a pid");
        kill_process(pid, signal).expect("the daemon is our child, and was not waited for");
    }

    /// Waits for the daemon's exit; `None` after the time limit.
    ///
    /// # Panics
    /// Never: it is a child.
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
        // Pinned programs would slow down every process of this machine until the next boot.
        let unpinned = self.unpin();
        if unpinned.code != 0 && !std::thread::panicking() {
            panic!("cannot unpin: {unpinned:?}");
        }
    }
}

/// A directory that every user can write to, as `/run` in memory where possible: the daemon relies on fast writes there,
/// and builds beside the tests may keep the disk busy for seconds.
fn memory_directory() -> TempDir {
    const SHARED_MEMORY: &str = "/dev/shm";
    let in_memory = statfs(SHARED_MEMORY).is_ok_and(|fs| fs.f_type == libc::TMPFS_MAGIC);
    let parent = if in_memory { PathBuf::from(SHARED_MEMORY) } else { std::env::temp_dir() };
    let directory = tempfile::Builder::new().prefix("watchdog-test-").tempdir_in(parent).expect("a directory");
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o1777)).expect("permissions");
    directory
}

/// Moves this process to a mount namespace without the BPF file system.
fn without_bpffs() -> std::io::Result<()> {
    // SAFETY: this process has one thread, and shares no memory that depends on its namespaces.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    match unmount("/sys/fs/bpf", UnmountFlags::DETACH) {
        // Not mounted.
        Err(Errno::INVAL) => Ok(()),
        unmounted => Ok(unmounted?),
    }
}

/// Drops all other capabilities, from the next exec on.
fn restrict(capabilities: GrantedCapabilities) -> std::io::Result<()> {
    for number in (0..u64::BITS).filter(|number| !capabilities.has(*number)) {
        // SAFETY: PR_CAPBSET_DROP takes a number and accesses no memory.
        let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) };
        let error = std::io::Error::last_os_error();
        // EINVAL: the kernel has no such capability.
        if dropped != 0 && error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
    }
    Ok(())
}

/// The profile of the stage's agent, and the test's configuration.
fn configuration(stage: &Stage, more: &str) -> String {
    let grace = if more.contains("[orphans]") { "" } else { "[orphans]\ngrace = \"2s\"\n" };
    let profile = format!("[[profile]]\nname = \"test\"\nexe = [\"*/{}\"]\n", stage.agent_name());
    without_built_in_profiles(&format!("{grace}{more}\n{profile}"))
}

/// Ignores real agents on this machine.
fn without_built_in_profiles(config: &str) -> String {
    let (tracking, without) = ("[tracking]\n", "[tracking]\nbuilt_in_profiles = false\n");
    if config.contains(tracking) { config.replace(tracking, without) } else { format!("{config}\n{without}") }
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

    #[test]
    fn capabilities_match_chart() {
        let chart = include_str!("../../packaging/helm/agent-watchdog/templates/daemonset.yaml");
        let list = CHART_CAPABILITIES.map(|name| format!("\"{}\"", name.trim_start_matches("CAP_"))).join(" ");
        assert!(chart.contains(&format!("concat (list {list})")), "{list}");
    }
}
