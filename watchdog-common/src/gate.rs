//! Gated sessions: their limits and counts, and the records of refused forks and execs.

use crate::record::{COMM_LEN, PATH_MAX, RecordHeader};

/// The value of the `GATED` map, keyed by a number that userspace assigns to one session and never reuses.
///
/// Userspace writes it once; from then on only the kernel programs change it, so that no count is lost to a race between
/// the two.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct GatedSession {
    /// Living processes counted here: no zombies, no threads. Signed, so that a wrong count shows as negative rather than as a
    /// session that is full for ever.
    pub live: i64,
    /// Forks that were refused.
    pub refused: u64,
    /// When a refusal was last reported: CLOCK_BOOTTIME, nanoseconds; 0 for never.
    pub reported_at: u64,
    /// Most processes that may live at once; 0 for no limit.
    pub max_processes: u32,
    /// tgid of the session's root.
    pub root: u32,
}

/// What the program `recount` counts under `number` from now on: the living processes of the session with this root, those
/// counted under the number `before`, and those of inner sessions without a number of their own.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct RecountRequest {
    /// `start_boottime` of the session's root, in nanoseconds since boot.
    pub root_start: u64,
    /// tgid of the session's root.
    pub root: u32,
    /// The session's key in `GATED`; 0 to count them nowhere.
    pub number: u32,
    /// The session's earlier key, under which inner sessions are counted too; 0 for none.
    pub before: u32,
    /// Keeps the size a multiple of eight.
    pub reserved: u32,
}

/// A file of this host, independent of its names.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "user", derive(zerocopy::IntoBytes, zerocopy::FromBytes, zerocopy::Immutable))]
pub struct FileId {
    /// Its inode's number.
    pub inode: u64,
    /// The device of its file system, as the kernel numbers it: `super_block.s_dev`.
    pub device: u32,
    /// Differs between files that use the same inode one after the other; 0 where it is not known.
    pub generation: u32,
}

/// A fork was refused because the session is at its limit. At most one record a second is sent for a session.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct ForkDeniedRecord {
    /// The process that tried to fork.
    pub header: RecordHeader,
    /// `start_boottime` of the session's root, in nanoseconds since boot.
    pub root_start: u64,
    /// Forks of this session that were refused so far, this one included.
    pub refused: u64,
    /// tgid of the session's root.
    pub root: u32,
    /// Living processes of the session.
    pub live: u32,
    /// Most processes that may live at once.
    pub limit: u32,
    /// Keeps the size a multiple of eight.
    pub reserved: u32,
    /// The forker's comm.
    pub comm: [u8; COMM_LEN],
}

/// An agent was refused because it was not launched through the gate.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct ExecDeniedRecord {
    /// The process that tried to execute it.
    pub header: RecordHeader,
    /// tgid of its parent.
    pub ppid: u32,
    /// 1 when the process was killed at its exec; 0 when the exec failed with EPERM.
    pub killed: u32,
    /// Its comm: that of the program that tried to execute the agent, or, where it was killed, the agent's.
    pub comm: [u8; COMM_LEN],
    /// The executed path, ended by a NUL.
    pub path: [u8; PATH_MAX],
}

/// Time between two records of one session's refused forks, in nanoseconds: a fork bomb must not fill the ring.
pub const FORK_DENIED_INTERVAL_NANOS: u64 = 1_000_000_000;

const _: () = assert!(size_of::<GatedSession>() == 32);
const _: () = assert!(size_of::<RecountRequest>() == 24);
const _: () = assert!(size_of::<ForkDeniedRecord>() == 80);
const _: () = assert!(size_of::<ExecDeniedRecord>() == 568);
