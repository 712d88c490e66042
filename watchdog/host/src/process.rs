//! An open /proc/PID directory: everything that is read through it belongs to the same process.
//!
//! The directory's inode refers to the kernel's `struct pid`, not to a number. Once the process is reaped, every lookup in
//! it fails with ENOENT or ESRCH, even if the pid is reused. One check of the start time after opening makes all later
//! reads race-free.
//!
//! The `procfs` crate holds the directory in the same way. But it allocates for each file, and parses the whole status and
//! all 52 fields of a stat, of which seven are needed here. It rejects arguments that are not UTF-8, and drops empty ones.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, StatxFlags, openat, readlinkat, statx};
use rustix::io::{Errno, read};
use rustix::path::Arg;

use super::error::{HostError, is_missing};
use super::stat::{ProcStat, number};
use watchdog_types::{Pid, ProcessId};

/// How often another thread is read in the place of one that exited meanwhile.
const THREAD_TRIES: usize = 8;

/// An open /proc/PID directory.
///
/// Most of its files are those of the first thread. When that exits before the others, the kernel shows no memory, no
/// descriptors and no executable there. A directory that was opened with its [`ProcStat`] then reads these files from a
/// live thread, and from another one when that exits too.
pub(crate) struct ProcessDir {
    dir: OwnedFd,
    /// /proc/PID/task/TID of a live thread, if the first one has exited.
    thread: Option<OwnedFd>,
    pid: Pid,
}

impl ProcessDir {
    /// Opens the directory of the process that has this pid now, if any. One system call, 2 µs.
    pub(crate) fn open(pid: Pid) -> Result<Option<Self>, HostError> {
        let path = format!("/proc/{pid}");
        match openat(CWD, path.as_str(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(dir) => Ok(Some(Self { dir, thread: None, pid })),
            Err(errno) if is_missing(errno) => Ok(None),
            Err(errno) => Err(HostError::io("open", path, errno)),
        }
    }

    /// `None` when this process has exited, also if its pid is reused.
    pub(crate) fn of(process: ProcessId, buffer: &mut Vec<u8>) -> Result<Option<(Self, ProcStat)>, HostError> {
        Ok(Self::with_stat(process.pid, buffer)?.filter(|(_, stat)| stat.process == process))
    }

    /// As [`open`](Self::open), and reads its stat.
    pub(crate) fn with_stat(pid: Pid, buffer: &mut Vec<u8>) -> Result<Option<(Self, ProcStat)>, HostError> {
        let Some(mut dir) = Self::open(pid)? else { return Ok(None) };
        let Some((stat, thread)) = dir.stat_and_thread(buffer)? else { return Ok(None) };
        dir.thread = thread;
        Ok(Some((dir, stat)))
    }

    /// The directory for relative lookups: that of a live thread, if the first one has exited.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.thread.as_ref().unwrap_or(&self.dir).as_fd()
    }

    /// The directory of the process itself, for files that describe all of its threads (`io`, `task`).
    pub(crate) fn of_all_threads(self) -> Self {
        Self { thread: None, ..self }
    }

    /// The full path, for messages.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.pid))
    }

    /// `None` when the process has exited or the file does not exist.
    pub(crate) fn file(&self, file: &str) -> Result<Option<OwnedFd>, HostError> {
        let open = |dir: BorrowedFd<'_>| openat(dir, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        self.of_live_thread("open", file, open)
    }

    /// Calls `attempt` with the directory for relative lookups. If a thread exits during it, another one is next: the exit of
    /// a thread is not that of the process. `None` when the process has exited or the file does not exist.
    fn of_live_thread<T>(
        &self,
        action: &'static str,
        file: &str,
        mut attempt: impl FnMut(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Result<Option<T>, HostError> {
        let mut outcome = attempt(self.fd());
        for _ in 0..THREAD_TRIES {
            if self.thread.is_none() || !outcome.as_ref().is_err_and(|errno| is_missing(*errno)) {
                break;
            }
            let Some((thread, _)) = self.living_thread(&mut Vec::new())? else { break };
            outcome = attempt(thread.as_fd());
        }
        match outcome {
            Ok(found) => Ok(Some(found)),
            Err(errno) if is_missing(errno) => Ok(None),
            Err(errno) => Err(HostError::io(action, self.path(file), errno)),
        }
    }

    /// `None` when the process has exited. If it exits during the listing, an entry is an error for which
    /// [`is_missing`] holds.
    pub(crate) fn list(&self, directory: &str) -> Result<Option<Dir>, HostError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let list = |dir: BorrowedFd<'_>| openat(dir, directory, flags, Mode::empty()).and_then(Dir::new);
        self.of_live_thread("list", directory, list)
    }

    /// Its threads, ascending, so that a reader of some of them reads the same ones each time; `None` when the process has
    /// exited.
    pub(crate) fn threads(&self) -> Result<Option<Vec<u32>>, HostError> {
        let Some(tasks) = self.list("task")? else { return Ok(None) };
        let mut threads: Vec<u32> = Vec::new();
        for entry in tasks {
            match entry {
                Ok(entry) => threads.extend(number::<u32>(entry.file_name().to_bytes())),
                Err(errno) if is_missing(errno) => return Ok(None),
                Err(errno) => return Err(HostError::io("list", self.path("task"), errno)),
            }
        }
        threads.sort_unstable();
        Ok(Some(threads))
    }

    /// Replaces `buffer` with at most `limit` bytes of a file.
    pub(crate) fn read_up_to(&self, file: &str, limit: usize, buffer: &mut Vec<u8>) -> Result<Option<()>, HostError> {
        self.of_live_thread("read", file, |dir| {
            buffer.clear();
            let opened = openat(dir, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            read_up_to(&opened, limit, buffer)
        })
    }

    /// `None` when the process has exited.
    pub(crate) fn oom_score_adj(&self, buffer: &mut Vec<u8>) -> Result<Option<i32>, HostError> {
        Ok(match self.read_up_to("oom_score_adj", 16, buffer)? {
            Some(()) => std::str::from_utf8(buffer).ok().and_then(|text| text.trim().parse().ok()),
            None => None,
        })
    }

    /// The target of a link, as the kernel shows it; `None` when the process has exited or has no such link
    /// (a zombie has neither exe nor cwd).
    pub(crate) fn link(&self, link: &str) -> Result<Option<Vec<u8>>, HostError> {
        let target = self.of_live_thread("read the link", link, |dir| readlinkat(dir, link, Vec::new()))?;
        Ok(target.map(CString::into_bytes))
    }

    /// The stat now; `None` when the process has exited. The state is that of a live thread, if the first has exited.
    pub(crate) fn stat(&self, buffer: &mut Vec<u8>) -> Result<Option<ProcStat>, HostError> {
        Ok(self.stat_and_thread(buffer)?.map(|(stat, _)| stat))
    }

    /// The same, with the directory of that thread.
    fn stat_and_thread(&self, buffer: &mut Vec<u8>) -> Result<Option<(ProcStat, Option<OwnedFd>)>, HostError> {
        for _ in 0..THREAD_TRIES {
            let Some(mut stat) = self.stat_in(&self.dir, buffer)? else { return Ok(None) };
            if !stat.first_thread_exited() {
                return Ok(Some((stat, None)));
            }
            if let Some((thread, state)) = self.living_thread(buffer)? {
                stat.state = state;
                return Ok(Some((stat, Some(thread))));
            }
            // All threads have exited, or started others meanwhile.
        }
        Ok(self.stat_in(&self.dir, buffer)?.map(|stat| (stat, None)))
    }

    /// The directory and the state of the oldest thread that has not exited.
    fn living_thread(&self, buffer: &mut Vec<u8>) -> Result<Option<(OwnedFd, u8)>, HostError> {
        let failed = |action, errno| HostError::io(action, self.path("task"), errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let threads = match openat(&self.dir, "task", flags, Mode::empty()).and_then(Dir::new) {
            Ok(threads) => threads,
            Err(errno) if is_missing(errno) => return Ok(None),
            Err(errno) => return Err(failed("list", errno)),
        };
        for entry in threads {
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) if is_missing(errno) => break,
                Err(errno) => return Err(failed("list", errno)),
            };
            if number::<u32>(entry.file_name().to_bytes()).is_none() {
                continue;
            }
            let thread = PathBuf::from("task").join(OsStr::from_bytes(entry.file_name().to_bytes()));
            let thread =
                match openat(&self.dir, &thread, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
                    Ok(thread) => thread,
                    Err(errno) if is_missing(errno) => continue,
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

    fn stat_in(&self, dir: &OwnedFd, buffer: &mut Vec<u8>) -> Result<Option<ProcStat>, HostError> {
        buffer.clear();
        let read = openat(dir, "stat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .and_then(|stat| read_up_to(&stat, 4096, buffer));
        match read {
            Ok(()) => {}
            Err(errno) if is_missing(errno) => return Ok(None),
            Err(errno) => return Err(HostError::io("read", self.path("stat"), errno)),
        }
        ProcStat::parse(buffer).map(Some).ok_or_else(|| HostError::malformed(self.path("stat"), "not a stat line"))
    }
}

/// Whether a link of /proc/PID leads into a FUSE file system that only its own user may enter, as sshfs and AppImages mount it.
/// The kernel then reports nothing of the target to root either, and statx(2) succeeds only if nothing is requested.
pub(crate) fn leads_to_private_mount(dir: impl AsFd, link: impl Arg) -> bool {
    statx(dir, link, AtFlags::STATX_DONT_SYNC, StatxFlags::empty()).is_ok()
}

/// Appends the file's content to `buffer`, up to `limit` bytes.
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

/// The calling process.
///
/// # Errors
/// When /proc is not that of our pid namespace, or cannot be read.
pub fn this_process() -> Result<ProcessId, HostError> {
    let pid = Pid(std::process::id());
    let found = match ProcessDir::open(pid)? {
        Some(dir) => dir.stat(&mut Vec::new())?,
        None => None,
    };
    found
        .map(|stat| stat.process)
        .ok_or_else(|| HostError::malformed(format!("/proc/{pid}"), "the calling process is missing"))
}

/// Ancestors of a process at most.
const GENERATIONS: usize = 1_000;
/// Retries after a parent has exited during the walk.
const TRIES: u32 = 5;

/// This process and its ancestors, up to the first one without a visible parent.
///
/// # Errors
/// When /proc is not that of our pid namespace, or cannot be read.
pub fn this_lineage() -> Result<BTreeSet<ProcessId>, HostError> {
    for _ in 0..TRIES {
        if let Some(lineage) = try_lineage()? {
            return Ok(lineage);
        }
    }
    Err(HostError::malformed("/proc", "own ancestors are missing"))
}

fn try_lineage() -> Result<Option<BTreeSet<ProcessId>>, HostError> {
    let (mut lineage, mut buffer) = (BTreeSet::new(), Vec::new());
    let mut youngest = this_process()?;
    let mut next = youngest.pid;
    for _ in 0..GENERATIONS {
        let Some(dir) = ProcessDir::open(next)? else { return Ok(None) };
        let Some(stat) = dir.stat(&mut buffer)? else { return Ok(None) };
        // A parent is older than its child. Otherwise it has exited and its pid was reused.
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

/// All pids of /proc now, ascending, without threads.
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
    fn lineage_reaches_first_process() {
        let lineage = this_lineage().unwrap();
        let parent = Pid(std::os::unix::process::parent_id());
        assert!(lineage.contains(&this_process().unwrap()));
        assert!(lineage.iter().any(|above| above.pid == parent), "{lineage:?}");
        assert!(!lineage.iter().any(|above| above.pid == Pid(0)), "{lineage:?}");
    }
}
