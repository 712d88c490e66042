//! A process's directory in /proc, held open: everything read through it belongs to one process for certain.
//!
//! The directory's inode refers to the kernel's `struct pid`, not to a number. Once the process is reaped, every
//! look-up in it fails with ENOENT or ESRCH, even when the number is in use again; so one check of the start time
//! after opening makes all later reads race-free.
//!
//! Read by hand rather than with the `procfs` crate, whose `Process` holds the directory in the same way: it allocates for
//! each file and parses all 52 fields of a stat, of which we need seven, and as much again of a status; and its cmdline
//! refuses what is not UTF-8 and drops empty arguments.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{CWD, Dir, Mode, OFlags, openat, readlinkat};
use rustix::io::{Errno, read};

use super::error::{HostError, is_gone};
use super::stat::{Stat, number};
use crate::engine::id::{Pid, ProcessId};

/// An open /proc/PID directory.
///
/// Most of its files are those of the first thread, which may exit before the others: then the kernel shows no memory, no
/// descriptors and no executable there. A directory that was opened together with its [`Stat`] reads such files from a
/// living thread instead.
pub(crate) struct ProcessDir {
    dir: OwnedFd,
    /// /proc/PID/task/TID of a living thread, if the first one has exited.
    thread: Option<OwnedFd>,
    pid: Pid,
}

impl ProcessDir {
    /// Opens the directory of whatever process has this pid now; `None` when there is none. One system call, 2 µs.
    pub(crate) fn open(pid: Pid) -> Result<Option<Self>, HostError> {
        let path = format!("/proc/{pid}");
        match openat(CWD, path.as_str(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(dir) => Ok(Some(Self { dir, thread: None, pid })),
            Err(errno) if is_gone(errno) => Ok(None),
            Err(errno) => Err(HostError::io("open", path, errno)),
        }
    }

    /// Opens the directory of exactly this process; `None` when it is gone, or its pid is another's by now.
    pub(crate) fn of(process: ProcessId, buffer: &mut Vec<u8>) -> Result<Option<(Self, Stat)>, HostError> {
        Ok(Self::with_stat(process.pid, buffer)?.filter(|(_, stat)| stat.process == process))
    }

    /// Opens the directory of whatever process has this pid now, and reads its stat; `None` when there is none.
    pub(crate) fn with_stat(pid: Pid, buffer: &mut Vec<u8>) -> Result<Option<(Self, Stat)>, HostError> {
        let Some(mut dir) = Self::open(pid)? else { return Ok(None) };
        let Some((stat, thread)) = dir.stat_and_thread(buffer)? else { return Ok(None) };
        dir.thread = thread;
        Ok(Some((dir, stat)))
    }

    /// The directory, for look-ups relative to it: of a living thread, if the first one has exited.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.thread.as_ref().unwrap_or(&self.dir).as_fd()
    }

    /// The directory of the process itself, for files that describe all of its threads (`io`, `task`).
    pub(crate) fn of_all_threads(self) -> Self {
        Self { thread: None, ..self }
    }

    /// The name that `file` has for people.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.pid))
    }

    /// Opens a file of the process for reading; `None` when the process is gone or the file does not exist.
    pub(crate) fn file(&self, file: &str) -> Result<Option<OwnedFd>, HostError> {
        match openat(self.fd(), file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(opened) => Ok(Some(opened)),
            Err(errno) if is_gone(errno) => Ok(None),
            Err(errno) => Err(HostError::io("open", self.path(file), errno)),
        }
    }

    /// Opens a directory of the process for listing; `None` when the process is gone. If it goes while it is listed, an
    /// entry is an error of which [`is_gone`] says so.
    pub(crate) fn list(&self, directory: &str) -> Result<Option<Dir>, HostError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(self.fd(), directory, flags, Mode::empty()).and_then(Dir::new) {
            Ok(listed) => Ok(Some(listed)),
            Err(errno) if is_gone(errno) => Ok(None),
            Err(errno) => Err(HostError::io("list", self.path(directory), errno)),
        }
    }

    /// Reads at most `limit` bytes of a file into `buffer`, in place of what was there.
    pub(crate) fn read_up_to(&self, file: &str, limit: usize, buffer: &mut Vec<u8>) -> Result<Option<()>, HostError> {
        buffer.clear();
        let Some(opened) = self.file(file)? else { return Ok(None) };
        match read_up_to(&opened, limit, buffer) {
            Ok(()) => Ok(Some(())),
            Err(errno) if is_gone(errno) => Ok(None),
            Err(errno) => Err(HostError::io("read", self.path(file), errno)),
        }
    }

    /// Where a link of the process leads, as the kernel words it; `None` when the process is gone or has no such link
    /// (a zombie has neither exe nor cwd).
    pub(crate) fn link(&self, link: &str) -> Result<Option<Vec<u8>>, HostError> {
        match readlinkat(self.fd(), link, Vec::new()) {
            Ok(target) => Ok(Some(target.into_bytes())),
            Err(errno) if is_gone(errno) => Ok(None),
            Err(errno) => Err(HostError::io("read the link", self.path(link), errno)),
        }
    }

    /// The process's stat now; `None` when it is gone. Its state is that of a living thread, if the first one has exited.
    pub(crate) fn stat(&self, buffer: &mut Vec<u8>) -> Result<Option<Stat>, HostError> {
        Ok(self.stat_and_thread(buffer)?.map(|(stat, _)| stat))
    }

    /// The same, with the directory of that thread.
    fn stat_and_thread(&self, buffer: &mut Vec<u8>) -> Result<Option<(Stat, Option<OwnedFd>)>, HostError> {
        let Some(mut stat) = self.stat_in(&self.dir, buffer)? else { return Ok(None) };
        if !stat.first_thread_exited() {
            return Ok(Some((stat, None)));
        }
        let thread = self.living_thread(buffer)?.map(|(thread, state)| {
            stat.state = state;
            thread
        });
        Ok(Some((stat, thread)))
    }

    /// The directory and the state of the oldest thread that has not exited.
    fn living_thread(&self, buffer: &mut Vec<u8>) -> Result<Option<(OwnedFd, u8)>, HostError> {
        let failed = |action, errno| HostError::io(action, self.path("task"), errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let threads = match openat(&self.dir, "task", flags, Mode::empty()).and_then(Dir::new) {
            Ok(threads) => threads,
            Err(errno) if is_gone(errno) => return Ok(None),
            Err(errno) => return Err(failed("list", errno)),
        };
        for entry in threads {
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) if is_gone(errno) => break,
                Err(errno) => return Err(failed("list", errno)),
            };
            if number::<u32>(entry.file_name().to_bytes()).is_none() {
                continue;
            }
            let thread = PathBuf::from("task").join(OsStr::from_bytes(entry.file_name().to_bytes()));
            let thread =
                match openat(&self.dir, &thread, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
                    Ok(thread) => thread,
                    Err(errno) if is_gone(errno) => continue,
                    Err(errno) => return Err(failed("open", errno)),
                };
            if let Some(stat) = self.stat_in(&thread, buffer)?
                && !stat.has_exited()
            {
                return Ok(Some((thread, stat.state)));
            }
        }
        Ok(None)
    }

    fn stat_in(&self, dir: &OwnedFd, buffer: &mut Vec<u8>) -> Result<Option<Stat>, HostError> {
        buffer.clear();
        let read = openat(dir, "stat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .and_then(|stat| read_up_to(&stat, 4096, buffer));
        match read {
            Ok(()) => {}
            Err(errno) if is_gone(errno) => return Ok(None),
            Err(errno) => return Err(HostError::io("read", self.path("stat"), errno)),
        }
        Stat::parse(buffer).map(Some).ok_or_else(|| HostError::malformed(self.path("stat"), "not a stat line"))
    }
}

/// Reads from an open file until its end or `limit`, appending to `buffer`.
pub(crate) fn read_up_to(file: impl AsFd, limit: usize, buffer: &mut Vec<u8>) -> Result<(), Errno> {
    // A page at a time: files of /proc are produced in pages, and a stat or status fits into one.
    let step = limit.min(4096);
    while buffer.len() < limit {
        let filled = buffer.len();
        buffer.resize(filled + step.min(limit - filled), 0);
        let got = loop {
            match read(&file, &mut buffer[filled..]) {
                Err(Errno::INTR) => {}
                Err(errno) => {
                    buffer.truncate(filled);
                    return Err(errno);
                }
                Ok(got) => break got,
            }
        };
        buffer.truncate(filled + got);
        if got == 0 {
            break;
        }
    }
    Ok(())
}

/// Who we are.
///
/// # Errors
/// When /proc is not that of our pid namespace, or cannot be read.
pub fn this_process() -> Result<ProcessId, HostError> {
    let pid = Pid(std::process::id());
    let found = match ProcessDir::open(pid)? {
        Some(dir) => dir.stat(&mut Vec::new())?,
        None => None,
    };
    found.map(|stat| stat.process).ok_or_else(|| HostError::malformed(format!("/proc/{pid}"), "we are not in there"))
}

/// Generations that stand above a process at most.
const GENERATIONS: usize = 1_000;
/// A parent may die while we are about to look at it; then the process has another.
const TRIES: u32 = 5;

/// This process and all that stand above it, up to whoever has no parent in our sight.
///
/// # Errors
/// When /proc is not that of our pid namespace, or cannot be read.
pub fn this_lineage() -> Result<BTreeSet<ProcessId>, HostError> {
    for _ in 0..TRIES {
        if let Some(lineage) = try_lineage()? {
            return Ok(lineage);
        }
    }
    Err(HostError::malformed("/proc", "our own parents are not in there"))
}

fn try_lineage() -> Result<Option<BTreeSet<ProcessId>>, HostError> {
    let (mut lineage, mut buffer) = (BTreeSet::new(), Vec::new());
    let mut youngest = this_process()?;
    let mut next = youngest.pid;
    for _ in 0..GENERATIONS {
        let Some(dir) = ProcessDir::open(next)? else { return Ok(None) };
        let Some(stat) = dir.stat(&mut buffer)? else { return Ok(None) };
        // Nobody is older than the one who forked it: that one is gone, and its pid is another's.
        if stat.process.start_time > youngest.start_time {
            return Ok(None);
        }
        lineage.insert(stat.process);
        if stat.ppid == Pid(0) {
            return Ok(Some(lineage));
        }
        (youngest, next) = (stat.process, stat.ppid);
    }
    Ok(None)
}

/// All pids of /proc now, in the kernel's (ascending) order; threads are not among them.
pub(crate) fn pids() -> Result<Vec<Pid>, HostError> {
    let failed = |source: std::io::Error| HostError::io("list", "/proc", source);
    let mut pids = Vec::new();
    for entry in std::fs::read_dir("/proc").map_err(failed)? {
        if let Some(pid) = entry.map_err(failed)?.file_name().to_str().and_then(|name| name.parse().ok()) {
            pids.push(Pid(pid));
        }
    }
    Ok(pids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_this_process_stand_its_parents_up_to_the_first() {
        let lineage = this_lineage().unwrap();
        let parent = Pid(std::os::unix::process::parent_id());
        assert!(lineage.contains(&this_process().unwrap()));
        assert!(lineage.iter().any(|above| above.pid == parent), "{lineage:?}");
        assert!(!lineage.iter().any(|above| above.pid == Pid(0)), "{lineage:?}");
    }
}
