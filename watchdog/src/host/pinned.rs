//! A process that is held by a pidfd, so that whatever is concluded of it, or done to it, is of it and of no successor that got
//! its pid.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid as RawPid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::error::{HostError, is_gone};
use super::process::ProcessDir;
use super::stat::{Fields, Stat};
use crate::engine::act::UserIds;
use crate::engine::id::{Pid, ProcessId, Uid};

/// `SO_PEERPIDFD` of include/uapi/asm-generic/socket.h, from Linux 6.5 on; neither libc nor rustix name it.
const SO_PEERPIDFD: libc::c_int = 77;
/// Generations that are looked through for an ancestor.
const GENERATIONS: usize = 64;

/// A process, held by a pidfd. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Pinned {
    pidfd: Arc<OwnedFd>,
    pid: Pid,
}

/// Who a pinned process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The process.
    pub process: ProcessId,
    /// Its parent.
    pub ppid: Pid,
    /// Its comm.
    pub comm: String,
    /// Its user ids. Of a process whose first thread has exited they are that thread's: the kernel checks signals by them.
    pub users: UserIds,
    /// It is a thread of the kernel.
    pub kernel: bool,
}

impl Identity {
    /// Whether it is this user's, and has no other user's rights.
    #[must_use]
    pub fn is_of(&self, uid: Uid) -> bool {
        let UserIds { real, effective, saved } = self.users;
        [real, effective, saved].iter().all(|id| *id == uid)
    }
}

impl Pinned {
    /// The process at the other end of a unix socket, whose pid its credentials give; `None` when it is gone.
    ///
    /// The kernel gives a pidfd of the very process that connected from 6.5 on. Before that the pid has to do: call this at
    /// once, and have [`identity`](Self::identity) compared with the credentials.
    ///
    /// # Errors
    /// When the kernel refuses a pidfd.
    pub fn peer(socket: impl AsFd, pid: Pid) -> Result<Option<Self>, HostError> {
        match peer_pidfd(socket.as_fd()) {
            Ok(pidfd) => Ok(Some(Self { pidfd: Arc::new(pidfd), pid })),
            Err(Errno::NOPROTOOPT) => Self::open(pid),
            // It was reaped.
            Err(Errno::SRCH | Errno::INVAL | Errno::NODATA) => Ok(None),
            Err(errno) => Err(HostError::io("get a pidfd of", format!("/proc/{pid}"), errno)),
        }
    }

    /// Whoever has this pid now; `None` when nobody has.
    ///
    /// # Errors
    /// When the kernel refuses a pidfd.
    pub fn open(pid: Pid) -> Result<Option<Self>, HostError> {
        let Some(raw) = i32::try_from(pid.0).ok().and_then(RawPid::from_raw) else { return Ok(None) };
        match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Some(Self { pidfd: Arc::new(pidfd), pid })),
            // EINVAL: the number is a thread's.
            Err(errno) if is_gone(errno) || errno == Errno::INVAL => Ok(None),
            Err(errno) => Err(HostError::io("open a pidfd of", format!("/proc/{pid}"), errno)),
        }
    }

    /// Exactly this process; `None` when it is gone.
    ///
    /// # Errors
    /// When the kernel refuses a pidfd, or to read a file.
    pub fn of(process: ProcessId) -> Result<Option<Self>, HostError> {
        Ok(Self::with_identity(process)?.map(|(pinned, _)| pinned))
    }

    /// Exactly this process, and what else [`identity`](Self::identity) tells of it; `None` when it is gone.
    ///
    /// # Errors
    /// When the kernel refuses a pidfd, or to read a file.
    pub fn with_identity(process: ProcessId) -> Result<Option<(Self, Identity)>, HostError> {
        let Some(pinned) = Self::open(process.pid)? else { return Ok(None) };
        let found = pinned.identity()?.filter(|found| found.process == process);
        Ok(found.map(|found| (pinned, found)))
    }

    /// Who it is; `None` when it is dead. What /proc said was said of it, since it was alive afterwards: only the dead lose
    /// their pid.
    ///
    /// # Errors
    /// When the kernel refuses to open or read a file.
    pub fn identity(&self) -> Result<Option<Identity>, HostError> {
        let mut buffer = Vec::new();
        let Some(dir) = ProcessDir::open(self.pid)? else { return Ok(None) };
        let Some(stat) = dir.stat(&mut buffer)? else { return Ok(None) };
        let Some(users) = users(&dir, &mut buffer)? else { return Ok(None) };
        let kernel = stat.is_kernel_thread();
        let Stat { process, ppid, comm, .. } = stat;
        Ok(self.is_alive()?.then_some(Identity { process, ppid, comm, users, kernel }))
    }

    /// Whether it has not exited.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
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

    /// Kills it; `false` when it was dead already.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill(&self) -> Result<bool, HostError> {
        self.signal(Signal::KILL)
    }

    /// Sends it a signal; `false` when it is dead, and has been waited for. A zombie takes every signal, to no effect.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn signal(&self, signal: Signal) -> Result<bool, HostError> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(errno) => Err(HostError::io("signal", format!("/proc/{}", self.pid), errno)),
        }
    }

    /// Takes its memory from it, which was killed, rather than wait until it gets to giving it back itself: it may be asleep
    /// in the kernel, or have little of the CPU. `false` when that was not to be done: it is gone, is not about to die, shares
    /// its memory with somebody who is not, was busy, or the kernel is older than 5.15.
    ///
    /// # Errors
    /// When the kernel refuses for another reason.
    pub fn release(&self) -> Result<bool, HostError> {
        let no_flags: libc::c_uint = 0;
        // SAFETY: the call takes a descriptor, which is open as long as `self` is, and a number. It reads and writes no memory of
        // ours; whose memory it frees, the kernel makes sure of: of nobody but a process that a SIGKILL is about to end.
        let done = unsafe { libc::syscall(libc::SYS_process_mrelease, self.pidfd.as_raw_fd(), no_flags) };
        if done == 0 {
            return Ok(true);
        }
        match Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO) {
            Errno::NOSYS | Errno::AGAIN | Errno::SRCH | Errno::INVAL | Errno::INTR => Ok(false),
            errno => Err(HostError::io("release the memory of", format!("/proc/{}", self.pid), errno)),
        }
    }

    /// The pid that it has as long as it lives.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The descriptor, which is readable once the process is dead.
    #[must_use]
    pub fn pidfd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.pidfd)
    }
}

/// Whether a process was forked by another, or by one that that one forked, as far as today's parents tell: who was re-parented
/// is nobody's descendant any more.
///
/// # Errors
/// When the kernel refuses to open or read a file.
pub fn descends(from: ProcessId, child: &Identity) -> Result<bool, HostError> {
    let mut buffer = Vec::new();
    let (mut youngest, mut parent) = (child.process, child.ppid);
    for _ in 0..GENERATIONS {
        let Some(dir) = ProcessDir::open(parent)? else { return Ok(false) };
        let Some(stat) = dir.stat(&mut buffer)? else { return Ok(false) };
        // Nobody is older than the one who forked it: that one is gone, and its pid is another's.
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

/// The user ids of a process; `None` when it is gone.
fn users(dir: &ProcessDir, buffer: &mut Vec<u8>) -> Result<Option<UserIds>, HostError> {
    if dir.read_up_to("status", 16 * 1024, buffer)?.is_none() {
        return Ok(None);
    }
    Fields(buffer).user_ids().map(Some).ok_or_else(|| HostError::malformed(dir.path("status"), "no Uid"))
}

fn peer_pidfd(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let mut pidfd: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option's value is an int, for which there is room of the length that is told; both outlive the call.
    let got = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, (&raw mut pidfd).cast(), &raw mut length)
    };
    if got != 0 {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    if pidfd < 0 {
        return Err(Errno::SRCH);
    }
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::host::testing::{Subject, eventually, identity};
    use crate::host::this_process;

    fn sleeper() -> Subject {
        Subject::spawn(Command::new("sleep").arg("1000"))
    }

    fn identity_of(process: ProcessId) -> Identity {
        Pinned::with_identity(process).unwrap().unwrap().1
    }

    #[test]
    fn the_other_end_of_a_socket_is_known_by_its_credentials() {
        let (one, _other) = UnixStream::pair().unwrap();
        let pinned = Pinned::peer(&one, Pid(std::process::id())).unwrap().expect("we are alive");
        let found = pinned.identity().unwrap().unwrap();
        assert_eq!(found.process, this_process().unwrap());
        assert!(found.is_of(Uid(rustix::process::geteuid().as_raw())));
    }

    #[test]
    fn the_dead_have_no_identity_and_their_descriptor_says_so() {
        let mut subject = sleeper();
        let pinned = Pinned::of(subject.process).unwrap().expect("it lives");
        assert_eq!(pinned.identity().unwrap().unwrap().process, subject.process);
        assert!(pinned.kill().unwrap());
        eventually("it is dead", || !pinned.is_alive().unwrap());
        assert_eq!(pinned.identity().unwrap(), None, "a zombie is nobody");
        subject.child().wait().unwrap();
        assert!(!pinned.kill().unwrap());
        assert!(Pinned::of(subject.process).unwrap().is_none());
    }

    #[test]
    fn it_is_stopped_and_goes_on_and_is_told_to_end() {
        let mut subject = sleeper();
        let pinned = Pinned::of(subject.process).unwrap().expect("it lives");
        let state = |letter: u8| {
            let dir = ProcessDir::open(subject.process.pid).unwrap().unwrap();
            dir.stat(&mut Vec::new()).unwrap().unwrap().state == letter
        };
        assert!(pinned.signal(Signal::STOP).unwrap());
        eventually("it is stopped", || state(b'T'));
        assert!(pinned.signal(Signal::CONT).unwrap());
        eventually("it goes on", || state(b'S'));
        assert!(pinned.signal(Signal::TERM).unwrap());
        let status = subject.child().wait().unwrap();
        assert_eq!(status.signal(), Some(Signal::TERM.as_raw()));
    }

    #[test]
    fn memory_is_taken_from_the_dying_and_from_nobody_else() {
        let subject =
            Subject::python("x = bytearray(64 << 20); print('ready', flush=True); import time; time.sleep(1000)");
        let pinned = Pinned::of(subject.process).unwrap().expect("it lives");
        assert!(!pinned.release().unwrap(), "it is not about to die");
        assert!(pinned.is_alive().unwrap());
        assert!(pinned.kill().unwrap());
        // Whether it was quicker itself is not to be known.
        pinned.release().unwrap();
        eventually("it is dead", || !pinned.is_alive().unwrap());
        assert!(!pinned.release().unwrap(), "it is gone");
    }

    #[test]
    fn a_thread_of_the_kernel_is_known() {
        assert!(!identity_of(this_process().unwrap()).kernel);
        let threads = super::super::process::pids().unwrap().into_iter().filter_map(|pid| Pinned::open(pid).ok()?);
        let known = threads.filter_map(|pinned| pinned.identity().ok()?);
        // In a pid namespace of its own a test sees none.
        for thread in known.filter(|found| found.ppid == Pid(2)) {
            assert!(thread.kernel, "{thread:?}");
        }
    }

    #[test]
    fn a_pid_with_another_start_is_another_process() {
        let subject = sleeper();
        let later =
            ProcessId { start_time: crate::engine::id::Ticks(subject.process.start_time.0 + 1), ..subject.process };
        assert!(Pinned::of(later).unwrap().is_none());
        assert!(Pinned::open(Pid(0)).unwrap().is_none());
        assert!(Pinned::open(Pid(u32::MAX)).unwrap().is_none());
    }

    #[test]
    fn a_descendant_is_told_from_a_stranger() {
        let mut command = Command::new("sh");
        let mut shell = Subject::spawn(command.args(["-c", "sleep 1000 & echo $!; wait"]).stdout(Stdio::piped()));
        let grandchild = Pid(shell.line().parse().unwrap());
        let found = Pinned::open(grandchild).unwrap().unwrap().identity().unwrap().unwrap();
        assert!(descends(shell.process, &found).unwrap());
        assert!(descends(this_process().unwrap(), &found).unwrap());
        let stranger = sleeper();
        assert!(!descends(stranger.process, &found).unwrap());
        assert!(!descends(identity(grandchild), &found).unwrap(), "nobody is its own descendant");
        Pinned::open(grandchild).unwrap().unwrap().kill().unwrap();
    }
}
