//! The records of the two ring buffers and of the sampling iterator.
//!
//! Each starts with a [`RecordHeader`]. All numbers are in the machine's byte order; times are CLOCK_BOOTTIME nanoseconds.
//! Pids and times are those of the daemon's namespaces: see [`LoadSettings`](crate::LoadSettings).

use crate::lineage::RawLineage;

/// Bytes of a kernel comm, with its NUL.
pub const COMM_LEN: usize = 16;
/// Most bytes of the executed path in an [`ExecRecord`].
pub const PATH_MAX: usize = 512;
/// Most bytes of argv in an [`ExecRecord`].
pub const ARGV_MAX: usize = 1536;

/// The value of [`RecordHeader::kind`].
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// [`ForkRecord`]
    Fork = 1,
    /// [`ExecRecord`]
    Exec = 2,
    /// [`ExitRecord`]
    Exit = 3,
    /// [`VictimRecord`]
    Oom = 4,
    /// [`SignalRecord`]
    Signal = 5,
    /// [`MemoryStepRecord`]
    MemoryStep = 6,
    /// [`ReclaimRecord`]
    Reclaim = 7,
    /// [`ForkDeniedRecord`](crate::ForkDeniedRecord)
    ForkDenied = 8,
    /// [`ExecDeniedRecord`](crate::ExecDeniedRecord)
    ExecDenied = 9,
}

impl RecordKind {
    /// In the order of their values.
    pub const ALL: [Self; 9] = [
        Self::Fork,
        Self::Exec,
        Self::Exit,
        Self::Oom,
        Self::Signal,
        Self::MemoryStep,
        Self::Reclaim,
        Self::ForkDenied,
        Self::ExecDenied,
    ];

    #[must_use]
    pub fn from_raw(raw: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == raw)
    }
}

/// Slots of the per-CPU loss counters: one per record kind (index `kind as u32`), and one for processes that could not
/// be tracked because the map was full.
pub struct LossCause;

impl LossCause {
    /// The `TRACKED` map was full: the process and its descendants are found only by scans of /proc.
    pub const MAP_FULL: u32 = 10;
    /// Slots of the counter array; 0 is unused.
    pub const SLOTS: usize = 11;
}

/// The start of every record.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct RecordHeader {
    pub at: u64,
    /// `start_boottime` of the process that it happened to.
    pub start: u64,
    /// tgid of the process that it happened to.
    pub tgid: u32,
    /// Its user, as the initial user namespace sees it.
    pub uid: u32,
    /// [`RecordKind`], as a number.
    pub kind: u32,
    /// The CPU that wrote the record.
    pub cpu: u32,
}

/// A tracked process forked a process (never a thread).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct ForkRecord {
    /// The child.
    pub header: RecordHeader,
    /// The child's lineage: `parent` is the process that forked it.
    pub lineage: RawLineage,
    /// The child's comm, which is its parent's until it execs.
    pub comm: [u8; COMM_LEN],
}

/// A tracked process, or a possible agent, executed a program. `path_len` bytes of path and `argv_len` bytes of
/// NUL-separated argv follow the structure.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct ExecRecord {
    /// The process.
    pub header: RecordHeader,
    /// Its lineage.
    pub lineage: RawLineage,
    /// comm after the exec.
    pub comm: [u8; COMM_LEN],
    /// tgid of the present parent.
    pub ppid: u32,
    /// Bytes of argv that the program received, which may be more than follow.
    pub argv_total: u32,
    /// Bytes of path that follow; [`PATH_MAX`] at most.
    pub path_len: u16,
    /// Bytes of argv that follow the path; [`ARGV_MAX`] at most.
    pub argv_len: u16,
    /// Keeps the size a multiple of eight.
    pub reserved: u32,
}

/// The last thread of a tracked process, or of a witness, exited.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct ExitRecord {
    /// The process.
    pub header: RecordHeader,
    /// `signal->maxrss` in pages: the highest resident set of this process, over all programs it executed.
    pub maxrss: u64,
    /// [`Tracked::inherited_peak`](crate::Tracked::inherited_peak): `maxrss` as it was at the last exec, in pages.
    pub inherited_peak: u64,
    /// `mm->hiwater_rss` in pages: the highest resident set of the last program; 0 where the kernel releases the
    /// address space before the tracepoint (before 6.16 or so).
    pub hiwater_rss: u64,
    /// The wait status, as wait(2) gives it.
    pub status: u32,
    /// [`LineageFlags`](crate::LineageFlags) of the process when it exited.
    pub flags: u32,
    /// comm at the exit.
    pub comm: [u8; COMM_LEN],
}

/// The OOM killer chose a process, tracked or not.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct VictimRecord {
    /// The victim. `start` is 0 where the kernel reports only a pid (before 6.10 or so).
    pub header: RecordHeader,
    /// The victim's comm; empty where the kernel reports only a pid.
    pub comm: [u8; COMM_LEN],
    /// tgid of the process whose allocation failed; 0 for one outside the pid namespace.
    pub trigger: u32,
    /// Keeps the size a multiple of eight.
    pub reserved: u32,
}

/// A signal whose default action is to terminate was sent to a tracked process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct SignalRecord {
    /// The target.
    pub header: RecordHeader,
    /// `start_boottime` of the sender.
    pub sender_start: u64,
    /// tgid of the sender, 0 for one outside the pid namespace; the running process, when the kernel itself sent it.
    pub sender: u32,
    /// The sender's user.
    pub sender_uid: u32,
    /// The signal's number.
    pub signal: u32,
    /// `si_code`: 0 and below from a process, above 0 from the kernel (sigaction(2)).
    pub code: i32,
    /// 0 delivered, 1 ignored, 2 already pending, 3 and 4 lost information
    /// (include/trace/events/signal.h).
    pub result: u32,
    /// [`SignalFlags`].
    pub flags: u32,
    /// The sender's comm.
    pub sender_comm: [u8; COMM_LEN],
}

/// Close watch: a tracked process's memory moved by a step.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct MemoryStepRecord {
    /// The process that owns the memory.
    pub header: RecordHeader,
    /// `mm->rss_stat`, in pages: file, anonymous, swap entries, shmem (include/linux/mm_types_task.h). Approximate, and
    /// may be slightly negative.
    pub pages: [i64; 4],
}

/// Close watch: a tracked process had to reclaim memory itself before an allocation succeeded.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct ReclaimRecord {
    /// The process that waited.
    pub header: RecordHeader,
    /// Length of the wait, in nanoseconds.
    pub stalled: u64,
    /// Pages that it freed.
    pub reclaimed: u64,
}

/// What the iterator `sample` writes for each tracked process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct SampleRecord {
    /// `start_boottime`.
    pub start: u64,
    /// As in [`MemoryStepRecord::pages`].
    pub pages: [i64; 4],
    /// `mm->hiwater_rss`, in pages. The kernel updates it only when memory shrinks, so the current resident
    /// set may exceed it.
    pub hiwater_rss: u64,
    /// tgid.
    pub tgid: u32,
    /// tgid of the present parent.
    pub ppid: u32,
    /// [`SampleFlags`], as bits.
    pub flags: u32,
    /// Keeps the size a multiple of eight.
    pub reserved: u32,
    /// The present comm: programs rename themselves long after their exec.
    pub comm: [u8; COMM_LEN],
}

/// The bits of [`SignalRecord::flags`].
pub struct SignalFlags;

impl SignalFlags {
    /// The sender's thread is in do_exit: a child requested the signal by PR_SET_PDEATHSIG.
    pub const SENDER_THREAD_EXITS: u32 = 1 << 0;
}

/// The bits of [`SampleRecord::flags`].
pub struct SampleFlags;

impl SampleFlags {
    /// Exited, and not yet reaped by its parent.
    pub const ZOMBIE: u32 = 1 << 0;
    /// Has a controlling terminal.
    pub const TTY: u32 = 1 << 1;
}

const _: () = assert!(size_of::<RecordHeader>() == 32);
const _: () = assert!(size_of::<ForkRecord>() == 80);
const _: () = assert!(size_of::<ExecRecord>() == 96);
const _: () = assert!(size_of::<ExitRecord>() == 80);
const _: () = assert!(size_of::<VictimRecord>() == 56);
const _: () = assert!(size_of::<SignalRecord>() == 80);
const _: () = assert!(size_of::<MemoryStepRecord>() == 64);
const _: () = assert!(size_of::<ReclaimRecord>() == 48);
const _: () = assert!(size_of::<SampleRecord>() == 80);
