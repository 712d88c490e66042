//! A process referred to by a pidfd: every fact and signal is of that process, never of another one that has its pid by
//! now.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid as RawPid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::error::{HostError, is_missing};
use super::process::ProcessDir;
use super::stat::{Fields, ProcStat};
use watchdog_types::{Pid, ProcessId, Uid, UserIds};

/// `SO_PEERPIDFD` of include/uapi/asm-generic/socket.h, from Linux 6.5 on; neither libc nor rustix name it.
const SO_PEERPIDFD: libc::c_int = 77;
/// Generations searched for an ancestor.
const GENERATIONS: usize = 64;

/// A process, referred to by a pidfd. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PidFd {
    pidfd: Arc<OwnedFd>,
    pid: Pid,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    pub process: ProcessId,
    pub ppid: Pid,
    pub comm: String,
    /// The ids of the first thread, even if it has exited: the kernel checks signals against them.
    pub users: UserIds,
    pub kernel: bool,
}

impl ProcessIdentity {
    /// Whether all its user ids are this one.
    #[must_use]
    pub fn is_of(&self, uid: Uid) -> bool {
        let UserIds { real, effective, saved } = self.users;
        [real, effective, saved].iter().all(|id| *id == uid)
    }
}

impl PidFd {
    /// The process at the other end of a unix socket; `pid` is that of its credentials. `None` when it has exited.
    ///
    /// From 6.5 on, the kernel returns a pidfd of the process that connected. On older kernels the pid is opened: call this
    /// at once, and compare [`identity`](Self::identity) with the credentials.
    pub fn peer(socket: impl AsFd, pid: Pid) -> Result<Option<Self>, HostError> {
        match peer_pidfd(socket.as_fd()) {
            Ok(pidfd) => Ok(Some(Self { pidfd: Arc::new(pidfd), pid })),
            Err(Errno::NOPROTOOPT) => Self::open(pid),
            // Reaped.
            Err(Errno::SRCH | Errno::INVAL | Errno::NODATA) => Ok(None),
            Err(errno) => Err(HostError::io("get a pidfd of", format!("/proc/{pid}"), errno)),
        }
    }

    /// The process that has this pid now, if any.
    pub fn open(pid: Pid) -> Result<Option<Self>, HostError> {
        let Some(raw) = i32::try_from(pid.0).ok().and_then(RawPid::from_raw) else { return Ok(None) };
        match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Some(Self { pidfd: Arc::new(pidfd), pid })),
            // EINVAL: a thread's number.
            Err(errno) if is_missing(errno) || errno == Errno::INVAL => Ok(None),
            Err(errno) => Err(HostError::io("open a pidfd of", format!("/proc/{pid}"), errno)),
        }
    }

    /// `None` when this process has exited.
    pub fn of(process: ProcessId) -> Result<Option<Self>, HostError> {
        Ok(Self::with_identity(process)?.map(|(pinned, _)| pinned))
    }

    /// As [`of`](Self::of), with the process's [`identity`](Self::identity).
    pub fn with_identity(process: ProcessId) -> Result<Option<(Self, ProcessIdentity)>, HostError> {
        let Some(pinned) = Self::open(process.pid)? else { return Ok(None) };
        let found = pinned.identity()?.filter(|found| found.process == process);
        Ok(found.map(|found| (pinned, found)))
    }

    /// `None` when it is dead. It was alive after /proc was read, so what was read is of this process: only a dead process
    /// loses its pid.
    pub fn identity(&self) -> Result<Option<ProcessIdentity>, HostError> {
        let mut buffer = Vec::new();
        let Some(dir) = ProcessDir::open(self.pid)? else { return Ok(None) };
        let Some(stat) = dir.stat(&mut buffer)? else { return Ok(None) };
        let Some(users) = users(&dir, &mut buffer)? else { return Ok(None) };
        let kernel = stat.is_kernel_thread();
        let ProcStat { process, ppid, comm, .. } = stat;
        Ok(self.is_alive()?.then_some(ProcessIdentity { process, ppid, comm, users, kernel }))
    }

    /// Whether it has not exited.
    pub fn is_alive(&self) -> Result<bool, HostError> {
        let mut readable = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let ready = loop {
            match poll(&mut readable, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
                Err(Errno::INTR) => {}
                Err(errno) => return Err(HostError::io("look at the pidfd of", format!("/proc/{}", self.pid), errno)),
                Ok(ready) => break ready,
            }
        };
        Ok(ready == 0)
    }

    /// Sends SIGKILL; `false` when it was reaped.
    pub fn kill(&self) -> Result<bool, HostError> {
        self.signal(Signal::KILL)
    }

    /// `false` when it was reaped. A zombie accepts every signal, without effect.
    pub fn signal(&self, signal: Signal) -> Result<bool, HostError> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(errno) => Err(HostError::io("signal", format!("/proc/{}", self.pid), errno)),
        }
    }

    /// Frees the memory of a killed process at once (process_mrelease): it may sleep in the kernel, or get little CPU time to
    /// exit. `false` when it has exited, was not killed, shares its memory with a process that was not, is busy, or the kernel
    /// is older than 5.15.
    ///
    /// # Errors
    /// When the kernel refuses for another reason.
    pub fn release(&self) -> Result<bool, HostError> {
        let no_flags: libc::c_uint = 0;
        // SAFETY: the call takes a descriptor, which is open as long as `self`, and a number. It accesses no memory of ours,
        // and the kernel frees only memory of a process with a pending SIGKILL.
        let done = unsafe { libc::syscall(libc::SYS_process_mrelease, self.pidfd.as_raw_fd(), no_flags) };
        if done == 0 {
            return Ok(true);
        }
        match Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO) {
            Errno::NOSYS | Errno::AGAIN | Errno::SRCH | Errno::INVAL | Errno::INTR => Ok(false),
            errno => Err(HostError::io("release the memory of", format!("/proc/{}", self.pid), errno)),
        }
    }

    /// Valid as long as the process is alive.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Readable once the process is dead.
    #[must_use]
    pub fn pidfd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.pidfd)
    }
}

/// Whether `from` is an ancestor of `child`, by today's parents: a re-parented process is not a descendant of the process
/// that forked it.
pub fn descends(from: ProcessId, child: &ProcessIdentity) -> Result<bool, HostError> {
    let mut buffer = Vec::new();
    let (mut youngest, mut parent) = (child.process, child.ppid);
    for _ in 0..GENERATIONS {
        let Some(dir) = ProcessDir::open(parent)? else { return Ok(false) };
        let Some(stat) = dir.stat(&mut buffer)? else { return Ok(false) };
        // A parent is older than its child. Otherwise it has exited and its pid was reused.
        if stat.process.start_time > youngest.start_time {
            return Ok(false);
        }
        if stat.process == from {
            return Ok(true);
        }
        (youngest, parent) = (stat.process, stat.ppid);
    }
    Ok(false)
}

fn users(dir: &ProcessDir, buffer: &mut Vec<u8>) -> Result<Option<UserIds>, HostError> {
    if dir.read_up_to("status", 16 * 1024, buffer)?.is_none() {
        return Ok(None);
    }
    Fields(buffer).user_ids().map(Some).ok_or_else(|| HostError::malformed(dir.path("status"), "no Uid"))
}

fn peer_pidfd(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let mut pidfd: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option's value is an int; the pointer and length describe `pidfd`, and both outlive the call.
    let got = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, (&raw mut pidfd).cast(), &raw mut length)
    };
    if got != 0 {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    if pidfd < 0 {
        return Err(Errno::SRCH);
    }
    // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::testing::{TestProcess, eventually, identity};
    use crate::this_process;

    fn sleeper() -> TestProcess {
        TestProcess::spawn(Command::new("sleep").arg("1000"))
    }

    fn identity_of(process: ProcessId) -> ProcessIdentity {
        PidFd::with_identity(process).unwrap().unwrap().1
    }

    #[test]
    fn socket_peer_is_identified() {
        let (one, _other) = UnixStream::pair().unwrap();
        let pinned = PidFd::peer(&one, Pid(std::process::id())).unwrap().expect("this process is alive");
        let found = pinned.identity().unwrap().unwrap();
        assert_eq!(found.process, this_process().unwrap());
        assert!(found.is_of(Uid(rustix::process::geteuid().as_raw())));
    }

    #[test]
    fn dead_process_has_no_identity() {
        let mut subject = sleeper();
        let pinned = PidFd::of(subject.process).unwrap().expect("alive");
        assert_eq!(pinned.identity().unwrap().unwrap().process, subject.process);
        assert!(pinned.kill().unwrap());
        eventually("dead", || !pinned.is_alive().unwrap());
        assert_eq!(pinned.identity().unwrap(), None, "a zombie has no identity");
        subject.child().wait().unwrap();
        assert!(!pinned.kill().unwrap());
        assert!(PidFd::of(subject.process).unwrap().is_none());
    }

    #[test]
    fn signals_stop_continue_terminate() {
        let mut subject = sleeper();
        let pinned = PidFd::of(subject.process).unwrap().expect("alive");
        let state = |letter: u8| {
            let dir = ProcessDir::open(subject.process.pid).unwrap().unwrap();
            dir.stat(&mut Vec::new()).unwrap().unwrap().state == letter
        };
        assert!(pinned.signal(Signal::STOP).unwrap());
        eventually("stopped", || state(b'T'));
        assert!(pinned.signal(Signal::CONT).unwrap());
        eventually("continued", || state(b'S'));
        assert!(pinned.signal(Signal::TERM).unwrap());
        let status = subject.child().wait().unwrap();
        assert_eq!(status.signal(), Some(Signal::TERM.as_raw()));
    }

    #[test]
    fn memory_released_of_killed_process_only() {
        let subject =
            TestProcess::python("x = bytearray(64 << 20); print('ready', flush=True); import time; time.sleep(1000)");
        let pinned = PidFd::of(subject.process).unwrap().expect("alive");
        assert!(!pinned.release().unwrap(), "not killed");
        assert!(pinned.is_alive().unwrap());
        assert!(pinned.kill().unwrap());
        // Either result is right: it may have exited first.
        pinned.release().unwrap();
        eventually("dead", || !pinned.is_alive().unwrap());
        assert!(!pinned.release().unwrap(), "exited");
    }

    #[test]
    fn kernel_thread_is_recognised() {
        assert!(!identity_of(this_process().unwrap()).kernel);
        let threads = super::super::process::pids().unwrap().into_iter().filter_map(|pid| PidFd::open(pid).ok()?);
        let known = threads.filter_map(|pinned| pinned.identity().ok()?);
        // None in a pid namespace of its own.
        for thread in known.filter(|found| found.ppid == Pid(2)) {
            assert!(thread.kernel, "{thread:?}");
        }
    }

    #[test]
    fn other_start_time_is_other_process() {
        let subject = sleeper();
        let later =
            ProcessId { start_time: watchdog_types::Ticks(subject.process.start_time.0 + 1), ..subject.process };
        assert!(PidFd::of(later).unwrap().is_none());
        assert!(PidFd::open(Pid(0)).unwrap().is_none());
        assert!(PidFd::open(Pid(u32::MAX)).unwrap().is_none());
    }

    #[test]
    fn descendant_differs_from_stranger() {
        let mut command = Command::new("sh");
        let mut shell = TestProcess::spawn(command.args(["-c", "sleep 1000 & echo $!; wait"]).stdout(Stdio::piped()));
        let grandchild = Pid(shell.line().parse().unwrap());
        let found = PidFd::open(grandchild).unwrap().unwrap().identity().unwrap().unwrap();
        assert!(descends(shell.process, &found).unwrap());
        assert!(descends(this_process().unwrap(), &found).unwrap());
        let stranger = sleeper();
        assert!(!descends(stranger.process, &found).unwrap());
        assert!(!descends(identity(grandchild), &found).unwrap(), "not its own descendant");
        PidFd::open(grandchild).unwrap().unwrap().kill().unwrap();
    }
}
