//! Runs a test once more in namespaces of its own, where it is the first process.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::binaries::binaries;
use crate::proc::{ProcessKey, descendants};

/// Set inside, to the name of the test.
const INSIDE: &str = "WATCHDOG_INSIDE";
/// Set inside, to the directory that both runs of the test share.
const SHARED: &str = "WATCHDOG_SHARED";

/// The namespaces of the second run, besides those of pids and mounts.
#[derive(Clone, Copy, Default)]
pub struct Isolation {
    /// A time namespace, in which CLOCK_BOOTTIME is so many seconds ahead.
    pub boottime_seconds: Option<u32>,
}

/// The directory that both runs share, if this is the second run of this test.
#[must_use]
pub fn inside(test: &str) -> Option<PathBuf> {
    let is_inside = std::env::var(INSIDE).is_ok_and(|inside| inside == test);
    is_inside.then(|| std::env::var_os(SHARED).map(PathBuf::from)).flatten()
}

/// The second run of a test. All its processes are killed when it is dropped or the test dies.
pub struct InnerRun {
    /// Outside the namespaces; the parent of their first process.
    process: Child,
    shared: tempfile::TempDir,
}

impl InnerRun {
    /// Starts it.
    ///
    /// # Panics
    /// When that fails.
    #[must_use]
    pub fn of(test: &str, isolation: Isolation) -> Self {
        let shared = tempfile::Builder::new().prefix("watchdog-shared-").tempdir().expect("a directory");
        let programs = binaries().fixture.parent().expect("a directory").to_owned();
        // Cargo puts the programs side by side, except when it built the client for another linker.
        assert!(["watchdogd", "watchdogctl"].iter().all(|name| programs.join(name).is_file()), "{programs:?}");
        let mut command = Command::new(std::env::current_exe().expect("a test has a path"));
        command.args([test, "--exact", "--nocapture", "--test-threads", "1"]);
        command.env(INSIDE, test).env(SHARED, shared.path()).env("WATCHDOG_BIN_DIR", programs).stdin(Stdio::null());
        // SAFETY: only system calls between the fork and the exec, no allocation.
        unsafe { command.pre_exec(move || enter(isolation)) };
        Self { process: command.spawn().expect("the second run starts"), shared }
    }

    /// The directory that both runs share.
    pub fn shared(&self) -> PathBuf {
        self.shared.path().to_owned()
    }

    /// The process that has this pid inside.
    pub fn outer(&self, inner_pid: u32) -> Option<ProcessKey> {
        descendants(self.process.id()).into_iter().find(|process| {
            let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap_or_default();
            let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
            pids.split_whitespace().nth(1) == Some(&inner_pid.to_string())
        })
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When the second run failed.
    pub fn passes(mut self) {
        let status = self.process.wait().expect("our child");
        assert!(status.success(), "the run in its namespaces failed: {status}");
    }
}

impl Drop for InnerRun {
    fn drop(&mut self) {
        // The first process of the namespace dies with it, and all others with that one.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Moves the caller's child-to-be into new namespaces: returns in the child, which is their first process. The caller waits for it,
/// and exits as it did.
fn enter(isolation: Isolation) -> io::Result<()> {
    let Isolation { boottime_seconds } = isolation;
    let mut flags = UnshareFlags::NEWNS | UnshareFlags::NEWPID;
    flags.set(UnshareFlags::NEWTIME, boottime_seconds.is_some());
    // SAFETY: this process has one thread, and shares no memory that depends on its namespaces.
    unsafe { unshare_unsafe(flags) }?;
    if let Some(seconds) = boottime_seconds {
        set_boottime(seconds)?;
    }
    // SAFETY: this process has one thread.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: a number, and no memory.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
            Ok(mount("proc", "/proc", "proc", MountFlags::empty(), None)?)
        }
        child => {
            let mut status = 0;
            // SAFETY: descriptors of this process only; `status` outlives the call.
            unsafe {
                // Among them is the pipe on which the test waits for the exec.
                libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
                while libc::waitpid(child, &raw mut status, 0) < 0 && *libc::__errno_location() == libc::EINTR {}
                let exited = libc::WIFEXITED(status);
                libc::_exit(if exited { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) })
            }
        }
    }
}

/// Sets the clock of the time namespace of future children, without allocation.
fn set_boottime(seconds: u32) -> io::Result<()> {
    use io::Write;
    let mut line = [0; 64];
    let mut rest = &mut line[..];
    write!(rest, "boottime {seconds} 0")?;
    let free = rest.len();
    let file = rustix::fs::open("/proc/self/timens_offsets", rustix::fs::OFlags::WRONLY, rustix::fs::Mode::empty())?;
    rustix::io::write(&file, &line[..line.len() - free])?;
    Ok(())
}
