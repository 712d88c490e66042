//! Everything that the engine is ever told. A recorded sequence of these is a whole night of a host.
//!
//! Recordings are read by later versions: a field that is added here needs `#[serde(default)]` (or stands in a type that
//! has it as a whole); anything else needs another [`VERSION`](crate::recording::VERSION) of recordings.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::act::{ActionRecord, Ask, Rights, Struck, UserIds};
use super::gate::{Confinement, Launch, Restored, Subagent, Withdrawal};
use super::id::{BootTime, Bytes, Pid, ProcessId, SessionId, Uid};

/// One thing that the engine is told. The moment is handed over beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// Something happened in the kernel.
    Kernel(KernelEvent),
    /// The kernel dropped this many records since it was last asked: the table may be wrong until the next scan.
    Lost(u64),
    /// All processes of /proc.
    Scan(Scan),
    /// Memory of tracked processes.
    Samples(Vec<Sample>),
    /// Every tracked process that is dead while its parent has not waited for it. Sent when the list changed.
    Zombies(Vec<ProcessId>),
    /// The living containers that a container client started, as far as their start tells; the answer to
    /// [`Effect::FindContainers`](super::effect::Effect::FindContainers).
    Containers(ProcessId, Vec<Container>),
    /// What /proc says about one process that a verdict is to be made of; `None` when it is gone.
    Inspected(ProcessId, Option<Inspection>),
    /// The ceilings of a process's memory; the answer to [`Effect::FindLimits`](super::effect::Effect::FindLimits).
    Limits(ProcessId, Limits),
    /// What could be learned of a choice of the OOM killer; the answer to
    /// [`Effect::LookIntoOom`](super::effect::Effect::LookIntoOom).
    OomSeen(OomSeen),
    /// Who we are: what we do to others is our own doing. Told once, at the start.
    Watchdog(ProcessId),
    /// Memory of the host.
    Host(HostMemory),
    /// What processes have done so far; the answer to [`Effect::LookAtActivity`](super::effect::Effect::LookAtActivity),
    /// without those that are gone.
    Activity(Vec<Activity>),
    /// Where tmpfs files are; the answer to [`Effect::LookAtTmpfs`](super::effect::Effect::LookAtTmpfs).
    Tmpfs(Tmpfs),
    /// A person says that a process is meant to stay.
    Adopt(ProcessId),
    /// Somebody asks for a launch; who waits already comes back to its place.
    Launch(Box<Launch>),
    /// The limits of a waiting launch's cgroups; the answer to [`Effect::FindRoom`](super::effect::Effect::FindRoom).
    Room(ProcessId, Vec<CgroupLimit>),
    /// A waiting launch is no more.
    Withdraw(ProcessId, Withdrawal),
    /// What the daemon knew of the gate when it last ended. Told once, before the first scan.
    Restore(Box<Restored>),
    /// What happened while no daemon ran. Told once, before the first scan.
    Absence(Box<Absence>),
    /// An agent's hook tells of a subagent.
    Subagent(Subagent),
    /// What became of the cgroup of a session that was granted.
    Confined(SessionId, Confinement),
    /// The processes that are in the cgroup of a session, or below it; the answer to
    /// [`Effect::LookIntoCgroup`](super::effect::Effect::LookIntoCgroup).
    CgroupMembers(SessionId, Vec<Pid>),
    /// What the daemon may do, and to whom never. Told once, at the start.
    Rights(Rights),
    /// Actions that an earlier run had begun. Told once, before the first scan.
    Resume(Vec<ActionRecord>),
    /// A person asks to act. Answered with [`Effect::Asked`](super::effect::Effect::Asked).
    Ask(Ask),
    /// The user ids of processes that a person asks to act on.
    UserIds(Vec<(ProcessId, UserIds)>),
    /// What became of a wave; the answer to [`Effect::Strike`](super::effect::Effect::Strike).
    Struck(Struck),
    /// A person takes back that a process is meant to stay.
    Unadopt(ProcessId),
    /// Time has passed.
    Tick,
}

/// What the kernel programs report, decoded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum KernelEvent {
    /// A tracked process forked.
    Fork(Fork),
    /// A tracked process, or a possible agent, executed a program.
    Exec(Exec),
    /// A tracked process or a witness ended.
    Exit(Exit),
    /// The OOM killer chose a victim.
    Oom(Oom),
    /// A signal that ends processes was sent to a tracked process.
    Signal(Signal),
    /// Close watch: memory moved by a step.
    MemoryStep(Sample),
    /// Close watch: an allocation had to wait for reclaim.
    Reclaim(Reclaim),
    /// A fork beyond a session's bound, or an exec past the gate, was refused.
    Denied(Denied),
}

impl KernelEvent {
    /// When it happened.
    #[must_use]
    pub fn at(&self) -> BootTime {
        match self {
            Self::Fork(fork) => fork.at,
            Self::Exec(exec) => exec.at,
            Self::Exit(exit) => exit.at,
            Self::Oom(oom) => oom.at,
            Self::Signal(signal) => signal.at,
            Self::MemoryStep(sample) => sample.at,
            Self::Reclaim(reclaim) => reclaim.at,
            Self::Denied(denied) => denied.at,
        }
    }
}

/// A process's place in a session, as the kernel's map holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// The root of the session.
    pub root: ProcessId,
    /// Who forked the process, where that is known.
    pub parent: Option<ProcessId>,
    /// Forks from the root.
    pub depth: u32,
    /// Tracked by the kernel on the strength of a file name only.
    pub provisional: bool,
    /// Has not executed a program since its fork.
    pub forked: bool,
    /// Watched only for its exit: not a member of the session.
    pub witness: bool,
}

/// A fork.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fork {
    /// When.
    pub at: BootTime,
    /// The child.
    pub process: ProcessId,
    /// The child's lineage.
    pub lineage: Lineage,
    /// The child's user.
    pub uid: Uid,
    /// The child's comm: its parent's.
    pub comm: String,
}

/// An exec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exec {
    /// When.
    pub at: BootTime,
    /// Who.
    pub process: ProcessId,
    /// Its lineage.
    pub lineage: Lineage,
    /// Its user, after the exec.
    pub uid: Uid,
    /// Its parent at that moment.
    pub ppid: Pid,
    /// comm after the exec.
    pub comm: String,
    /// What was executed.
    pub image: Image,
}

/// What a process executed: fixed at exec, whatever the program later writes over its argv.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Image {
    /// The path that was executed; a script's own path, not its interpreter's.
    pub path: String,
    /// The arguments; a script's begin with its interpreter.
    pub argv: Vec<String>,
    /// `argv` is not all of it.
    pub truncated: bool,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    /// It exited with this code.
    Code(u8),
    /// This signal ended it.
    Signal(u8),
}

impl ExitStatus {
    /// The code that it exited with, if it did.
    #[must_use]
    pub fn code(self) -> Option<u8> {
        match self {
            Self::Code(code) => Some(code),
            Self::Signal(_) => None,
        }
    }

    /// The signal that ended it, if one did.
    #[must_use]
    pub fn signal(self) -> Option<u8> {
        match self {
            Self::Code(_) => None,
            Self::Signal(signal) => Some(signal),
        }
    }
}

/// An exit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exit {
    /// When.
    pub at: BootTime,
    /// Who.
    pub process: ProcessId,
    /// How; `None` when nobody saw it happen.
    pub status: Option<ExitStatus>,
    /// The highest resident set of the program that it ran last, where the kernel's marks tell it.
    pub peak: Option<Bytes>,
}

/// An exit that the kernel programs kept for a daemon that did not run then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MissedExit {
    /// The exit.
    pub exit: Exit,
    /// Where the process belonged.
    pub lineage: Lineage,
    /// Its user.
    pub uid: Uid,
    /// Its comm at the end.
    pub comm: String,
}

/// What is known of the time in which no daemon ran, beside [`Restored`] and what the rings hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Absence {
    /// Exits. Of session roots, those of earlier times too; some are in a ring as well.
    pub exits: Vec<MissedExit>,
    /// Where processes belonged when that was last written down.
    pub places: Vec<(ProcessId, Lineage)>,
}

/// A choice of the OOM killer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Oom {
    /// When.
    pub at: BootTime,
    /// The victim's pid; old kernels give no more.
    pub pid: Pid,
    /// The victim, where the kernel tells its start.
    pub process: Option<ProcessId>,
    /// The victim's comm; may be empty.
    pub comm: String,
    /// Whose allocation it was that failed.
    pub trigger: Pid,
    /// The victim's user, where the kernel tells more than a pid.
    pub uid: Option<Uid>,
}

/// A signal on its way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Signal {
    /// When.
    pub at: BootTime,
    /// The target.
    pub process: ProcessId,
    /// The signal's number.
    pub signal: u8,
    /// `si_code`: above 0 it is the kernel's own.
    pub code: i32,
    /// The kernel did deliver it: it was neither ignored nor pending already.
    pub delivered: bool,
    /// The sender.
    pub sender: ProcessId,
    /// The sender's comm.
    pub sender_comm: String,
    /// The sender's user.
    pub sender_uid: Uid,
}

/// A wait for reclaim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reclaim {
    /// When it ended.
    pub at: BootTime,
    /// Who waited.
    pub process: ProcessId,
    /// How long.
    pub stalled: Duration,
    /// What it freed.
    pub reclaimed: Bytes,
}

/// Something that the kernel programs did not let a process do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Denied {
    /// When.
    pub at: BootTime,
    /// Who wanted to. In no session, as a rule, when it is about an exec.
    pub process: ProcessId,
    /// Its user.
    pub uid: Uid,
    /// Its comm.
    pub comm: String,
    /// What it wanted to do.
    pub what: Attempt,
}

/// What was not let be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attempt {
    /// A fork, which failed with EAGAIN. At most one a second is told of a session.
    Fork {
        /// The root of the session.
        root: ProcessId,
        /// Processes of the session that live, its root among them.
        live: u32,
        /// As many may.
        bound: u32,
        /// Forks of the session that were refused so far, those that were not told among them.
        refused: u64,
    },
    /// The exec of an agent past the gate.
    Exec {
        /// Today's parent.
        ppid: Pid,
        /// The path that was executed.
        path: String,
        /// The process was killed as it came out of the exec, and its exit follows if it is tracked; else the exec failed with
        /// EPERM, and the process lives on.
        killed: bool,
    },
}

/// Memory of one process at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When.
    pub at: BootTime,
    /// Whose.
    pub process: ProcessId,
    /// How much; a zombie has none.
    pub memory: Memory,
    /// Today's parent, where the source tells it.
    pub ppid: Option<Pid>,
    /// Dead, and not yet waited for.
    pub zombie: bool,
    /// Has a controlling terminal, where the source tells it.
    pub tty: Option<bool>,
    /// comm now, where the source tells it.
    pub comm: Option<String>,
}

/// The memory of a process. `anon + shmem + swap` is what it costs: file pages can be dropped at any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// Anonymous resident memory.
    pub anon: Bytes,
    /// Resident pages of files.
    pub file: Bytes,
    /// Resident shared memory, tmpfs and memfd included.
    pub shmem: Bytes,
    /// Swapped out.
    pub swap: Bytes,
    /// The highest resident set so far, where the source tells it; else zero.
    pub peak: Bytes,
    /// What it costs when each shared page is divided by the number of its users (smaps_rollup: Pss_Anon + Pss_Shmem
    /// + SwapPss), where that was measured: it is dear.
    pub proportional: Option<Bytes>,
}

impl Memory {
    /// Resident memory of every kind.
    #[must_use]
    pub fn rss(&self) -> Bytes {
        self.anon + self.file + self.shmem
    }

    /// What the process costs the host: anonymous, shared and swapped memory.
    #[must_use]
    pub fn charged(&self) -> Bytes {
        self.anon + self.shmem + self.swap
    }
}

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
    /// Who.
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
    /// Its place as the kernel's map holds it, when it is there.
    pub lineage: Option<Lineage>,
    /// Its memory.
    pub memory: Memory,
}

/// What can be said for and against keeping a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Inspection {
    /// Its parent now; 0 when it has none in our sight.
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
    /// Dead, and not yet waited for.
    pub zombie: bool,
    /// Stopped by a signal (state T).
    pub stopped: bool,
    /// Its user ids now; `None` in recordings of earlier versions.
    pub user_ids: Option<UserIds>,
    /// The file that it executes; `None` for a zombie, and in recordings of earlier versions.
    pub executable: Option<Executable>,
}

/// The file that a process executes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executable {
    /// Its path, without symbolic links.
    pub path: String,
    /// It is root's, and neither it nor a directory above it can be changed by anybody else.
    pub of_root: bool,
}

/// Where file descriptor 0 leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdin {
    /// /dev/null, a file, or not to be told.
    #[default]
    Other,
    /// A terminal.
    Terminal,
    /// A pipe or socket pair whose other end is held by these processes (of those that were looked at).
    Peer(Vec<ProcessId>),
    /// A pipe or socket whose other end nobody holds any more.
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

/// The ceilings of a process's memory, the host's own aside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The tightest limit of its cgroup and those above it; `None` where there is none, or no cgroup v2.
    pub cgroup: Option<CgroupLimit>,
    /// The limit of V8's heap (its old generation), where argv or NODE_OPTIONS state one.
    pub v8_heap: Option<Bytes>,
}

/// A cgroup with a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupLimit {
    /// Its path below the root of the hierarchy: `/user.slice/…`.
    pub path: String,
    /// memory.max
    pub max: Bytes,
    /// memory.current when it was looked at: page cache is part of it.
    pub current: Bytes,
    /// What of that the kernel drops when it needs to: `file` less `shmem` of memory.stat.
    #[serde(default)]
    pub cache: Bytes,
}

impl CgroupLimit {
    /// What is held and cannot be dropped.
    #[must_use]
    pub fn held(&self) -> Bytes {
        Bytes(self.current.0.saturating_sub(self.cache.0))
    }

    /// What is left below the limit.
    #[must_use]
    pub fn room(&self) -> Bytes {
        Bytes(self.max.0.saturating_sub(self.held().0))
    }
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
    /// It has just run out of memory (`oom` of memory.events.local went up); `None` when it has at some time, and nobody
    /// counted before.
    pub hit: Option<bool>,
}

/// What a process has done since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// When it was looked at.
    pub at: BootTime,
    /// Who.
    pub process: ProcessId,
    /// CPU time of all its threads, those that have ended too.
    pub cpu: Duration,
    /// How often its living threads were put on a CPU.
    pub runs: u64,
    /// Bytes that it read and wrote, from and to whatever; `None` where that is not told to us.
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

    /// What processes and tmpfs hold and cannot be made to drop: anonymous and shared memory, and what is swapped out.
    #[must_use]
    pub fn held(&self) -> Bytes {
        self.anon + self.shmem + Bytes(self.swap_total.0.saturating_sub(self.swap_free.0))
    }
}
