//! What /proc, cgroups and the sampler show.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::event::{Image, Lineage};
use super::id::{BootTime, Bytes, Pid, ProcessId, Uid, UserIds};
use super::memory::Memory;

/// All processes at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scan {
    /// When reading began: what the table learned later than this, the scan cannot deny.
    pub began: BootTime,
    /// Each living process, in any order.
    pub processes: Vec<ScannedProcess>,
}

/// A process as a scan of /proc shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScannedProcess {
    /// The process.
    pub process: ProcessId,
    /// Its parent now.
    pub ppid: Pid,
    /// Its user (the real one of /proc/PID/status).
    pub uid: Uid,
    /// comm now.
    pub comm: String,
    /// exe and cmdline as they are now: a program may have written over the latter.
    pub image: Image,
    /// The cmdline looks like a title that a program wrote over its arguments.
    #[serde(default)]
    pub titled: bool,
    /// Dead, and not yet waited for.
    pub zombie: bool,
    /// Its lineage in the kernel's map, if it is tracked.
    pub lineage: Option<Lineage>,
    /// Its memory.
    pub memory: Memory,
}

/// Evidence for and against keeping a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Inspection {
    /// Its parent now; 0 if that is outside the pid namespace of the daemon, or there is none.
    pub ppid: u32,
    /// The parent's comm, to name the subreaper.
    pub parent_comm: String,
    /// Its session leader's pid (field 6 of stat).
    pub sid: u32,
    /// Its process group.
    pub pgid: u32,
    /// The session leader is a living process.
    pub leader_alive: bool,
    /// The session leader's identity, while it lives and is another process.
    pub leader: Option<ProcessId>,
    /// It has a controlling terminal.
    pub tty: bool,
    /// comm now.
    pub comm: String,
    /// SIGHUP is ignored (bit 0 of SigIgn).
    pub ignores_hup: bool,
    /// What it listens on: "tcp 127.0.0.1:3000", "unix /run/x.sock".
    pub listens: Vec<String>,
    /// Its working directory was removed.
    pub cwd_deleted: bool,
    /// Where its stdin leads.
    pub stdin: Stdin,
    /// Bytes that wait in its stdin, a pipe or a unix socket.
    pub stdin_unread: Bytes,
    /// Dead, and not yet waited for.
    pub zombie: bool,
    /// Stopped by a signal (state T).
    pub stopped: bool,
    /// Its user ids now; `None` in recordings of earlier versions.
    pub user_ids: Option<UserIds>,
    /// The file that it executes; `None` for a zombie, and in recordings of earlier versions.
    pub executable: Option<Box<Executable>>,
    /// oom_score_adj; `None` in recordings of earlier versions.
    pub oom_score_adj: Option<i32>,
    /// Its working directory; `None` where that names no workspace (the root and home directories), and in recordings of
    /// earlier versions.
    pub directory: Option<Box<Directory>>,
    /// A hash of its environment at the exec, without variables that differ at each start. Comparable within one run of the
    /// daemon; `None` if it is empty, and in recordings of earlier versions.
    pub environment: Option<u64>,
}

/// A directory, whatever its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Directory {
    /// st_dev
    pub device: u64,
    /// st_ino
    pub inode: u64,
}

/// The file that a process executes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executable {
    /// Its path, without symbolic links.
    pub path: String,
    /// It is root's, and neither it nor a directory above it can be changed by another user.
    pub of_root: bool,
}

/// Where file descriptor 0 leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdin {
    /// /dev/null, a file, or unknown.
    #[default]
    Other,
    /// A terminal.
    Terminal,
    /// A pipe or socket pair whose other end is held by these processes (of those that were looked at).
    Peer(Vec<ProcessId>),
    /// A pipe or socket whose other end no process holds any more.
    Closed,
}

/// A container's first process, which is no descendant of the client that asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Its first process.
    pub process: ProcessId,
    /// The container's id, 64 hex digits.
    pub id: String,
    /// `docker`, `containerd` or `libpod`, as its cgroup names it.
    pub runtime: String,
    /// comm of its first process.
    pub comm: String,
}

/// What could be learned of a choice of the OOM killer right after it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomSeen {
    /// The choice's number, as the effect gave it.
    pub number: u64,
    /// The victim's comm, if it was still there.
    pub comm: Option<String>,
    /// The cgroups above the victim that have counters, from the inside out.
    pub cgroups: Vec<OomCgroup>,
    /// Those are all: when none of them ran out of memory, the host did.
    pub complete: bool,
    /// oom_score_adj of those who were asked for and still there.
    pub scores: Vec<(Pid, i32)>,
}

/// A cgroup above a victim of the OOM killer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomCgroup {
    /// Its path below the root of the hierarchy.
    pub path: String,
    /// memory.max; `None` where it has no limit.
    pub max: Option<Bytes>,
    /// It has just run out of memory (`oom` of memory.events.local went up); `None` when it has at some time, and
    /// there is no earlier count.
    pub hit: Option<bool>,
}

/// What a process has done since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// When it was looked at.
    pub at: BootTime,
    /// The process.
    pub process: ProcessId,
    /// CPU time of all its threads, those that have ended too.
    pub cpu: Duration,
    /// How often its living threads were put on a CPU.
    pub runs: u64,
    /// Bytes that it read and wrote, from and to anything; `None` if that is not permitted.
    pub bytes: Option<u64>,
}

/// Files that are memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tmpfs {
    /// Shmem of /proc/meminfo.
    pub shmem: Bytes,
    /// The sum of what all processes map of it; what several map is in there several times.
    pub mapped: Bytes,
    /// Each tmpfs in our sight that holds anything.
    pub mounts: Vec<TmpfsMount>,
    /// The largest file on the fullest of these.
    pub largest: Option<TmpfsFile>,
    /// System V segments that no process has attached, the largest first.
    #[serde(default)]
    pub segments: Vec<SharedSegment>,
}

/// A System V segment of shared memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedSegment {
    /// The id that ipcrm(1) takes.
    pub id: u64,
    /// What it holds, swapped pages included.
    pub size: Bytes,
    /// The process that created it, which may have exited.
    pub creator: Pid,
    /// Its owner.
    pub uid: Uid,
}

/// A mounted tmpfs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TmpfsMount {
    /// Where.
    pub path: String,
    /// What its files take.
    pub used: Bytes,
}

/// A file on a tmpfs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TmpfsFile {
    /// Its path.
    pub path: String,
    /// What it takes.
    pub size: Bytes,
    /// Its owner.
    pub uid: Uid,
}

impl Tmpfs {
    /// What no process maps, at least.
    #[must_use]
    pub fn unmapped(&self) -> Bytes {
        Bytes(self.shmem.0.saturating_sub(self.mapped.0))
    }
}

/// Memory of the host: /proc/meminfo and /proc/pressure/memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostMemory {
    /// MemTotal.
    pub total: Bytes,
    /// MemAvailable.
    pub available: Bytes,
    /// SwapTotal.
    pub swap_total: Bytes,
    /// SwapFree.
    pub swap_free: Bytes,
    /// AnonPages.
    pub anon: Bytes,
    /// Shmem: tmpfs too, which belongs to no process.
    pub shmem: Bytes,
    /// `some avg10` of memory pressure, in per cent; `None` without PSI.
    pub pressure_some_avg10: Option<f64>,
    /// `full avg10` of memory pressure, in per cent.
    pub pressure_full_avg10: Option<f64>,
}

impl HostMemory {
    /// From less than this share of its memory on that is available a host is short of it, in per cent.
    const SHORT_PERCENT: u64 = 10;

    /// Little of its memory is available. False while nothing is known of it.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.total.0 > 0 && self.available < self.total.percent(Self::SHORT_PERCENT)
    }

    /// Memory of processes and tmpfs that cannot be dropped: anonymous and shared memory, swapped out or not.
    #[must_use]
    pub fn held(&self) -> Bytes {
        self.anon + self.shmem + Bytes(self.swap_total.0.saturating_sub(self.swap_free.0))
    }
}

impl HostMemory {
    /// What share of all memory is left, in per cent, swap counted as memory: MemAvailable + SwapFree of MemTotal + SwapTotal. Of the
    /// total, since files in memory and the kernel's own take from it as processes do. A hundred while nothing is known.
    pub fn left_percent(&self) -> u64 {
        let all = self.total + self.swap_total;
        let left = self.available + self.swap_free;
        if all.0 == 0 { 100 } else { (u128::from(left.0) * 100 / u128::from(all.0)).try_into().unwrap_or(100) }
    }
}
