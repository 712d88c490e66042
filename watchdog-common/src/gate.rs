//! What the kernel programs hold gated sessions to, and what they have to say of it.

use crate::record::{COMM_LEN, Header, PATH_MAX};

/// The value of the `GATED` map, keyed by a number that userspace gives a session once and to no other ever.
///
/// Userspace writes it once; from then on only the kernel programs change it, so that no count is lost to a race between
/// the two.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct Gated {
    /// Processes that live and were counted here: no zombie, no thread. Signed, so that a count that went wrong would show
    /// as one rather than as a session that is full for ever.
    pub live: i64,
    /// Forks that were refused.
    pub refused: u64,
    /// When a refusal was last told: CLOCK_BOOTTIME, nanoseconds.
    pub told: u64,
    /// As many processes may live; 0 for no bound.
    pub max_processes: u32,
    /// tgid of the session's root.
    pub root: u32,
}

/// Whom the program `recount` counts: living processes of the session with this root that are counted elsewhere, or
/// nowhere, are counted there from now on, and so are those that were counted under the number before, and those of
/// sessions that were started by somebody who is counted there, and have no number of their own.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct Recount {
    /// `start_boottime` of the session's root, in nanoseconds since boot.
    pub root_start: u64,
    /// tgid of the session's root.
    pub root: u32,
    /// The session's key in `GATED`; 0 to count them nowhere.
    pub number: u32,
    /// The key that the session had before, under which sessions inside it are counted too; 0 for none.
    pub before: u32,
    /// Keeps the size a multiple of eight.
    pub reserved: u32,
}

/// A file of this host, whatever it is called.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "user", derive(zerocopy::IntoBytes, zerocopy::FromBytes, zerocopy::Immutable))]
pub struct FileId {
    /// Its inode's number.
    pub inode: u64,
    /// The device of its file system, as the kernel numbers it: `super_block.s_dev`.
    pub device: u32,
    /// Of an inode that is used again, the next; 0 where that is not known.
    pub generation: u32,
}

/// A fork was refused, since as many processes of the session live as may. At most one a second is told of a session.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct ForkDeniedRecord {
    /// The process that wanted to fork.
    pub header: Header,
    /// `start_boottime` of the session's root, in nanoseconds since boot.
    pub root_start: u64,
    /// Forks of this session that were refused so far, this one included.
    pub refused: u64,
    /// tgid of the session's root.
    pub root: u32,
    /// Processes of the session that live.
    pub live: u32,
    /// As many may.
    pub bound: u32,
    /// Keeps the size a multiple of eight.
    pub reserved: u32,
    /// The forker's comm.
    pub comm: [u8; COMM_LEN],
}

/// An agent was not let start, since it came past the gate.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct ExecDeniedRecord {
    /// The process that wanted to execute it.
    pub header: Header,
    /// tgid of its parent.
    pub ppid: u32,
    /// 1 when it was killed on its way out of the exec; 0 when the exec failed with EPERM.
    pub killed: u32,
    /// Its comm: of the program that wanted to execute the agent, or, where it was killed, the agent's.
    pub comm: [u8; COMM_LEN],
    /// The path that was executed, with a NUL behind it.
    pub path: [u8; PATH_MAX],
}

/// Time between two records of one session's refused forks, in nanoseconds: a fork bomb must not fill the ring.
pub const FORK_DENIED_INTERVAL_NANOS: u64 = 1_000_000_000;

const _: () = assert!(size_of::<Gated>() == 32);
const _: () = assert!(size_of::<Recount>() == 24);
const _: () = assert!(size_of::<ForkDeniedRecord>() == 80);
const _: () = assert!(size_of::<ExecDeniedRecord>() == 568);
