//! Paging out idle processes: the order and its result.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::id::{Bytes, ProcessId, SessionId, Uid};
use super::memory::Memory;

/// Swap of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwapStatus {
    /// SwapTotal.
    pub total: Bytes,
    /// SwapFree.
    pub free: Bytes,
    /// A swap device is compressed memory.
    pub zram: bool,
    /// Pages are compressed in memory before they are written to a swap device.
    pub zswap: bool,
    /// Memory that the compressed pages of zram and zswap take; `None` where neither reports it.
    pub compressed: Option<Bytes>,
}

/// An order to page out processes of one session, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageOut {
    /// Repeated in the result.
    pub number: u64,
    /// Whose processes.
    pub session: SessionId,
    /// Paged out one after another.
    pub processes: Vec<PageOutProcess>,
    /// At most this much a second.
    pub rate: Bytes,
    /// Free swap that must remain.
    pub reserve: Bytes,
}

/// One process of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageOutProcess {
    /// The process.
    pub id: ProcessId,
    /// The session's user: a process of another user is excluded.
    pub uid: Uid,
    /// At most this much of its resident memory.
    pub budget: Bytes,
}

/// The answer to a [`PageOut`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagedOut {
    /// The order's number.
    pub number: u64,
    /// The order's session.
    pub session: SessionId,
    /// Each process of the order, in its order.
    pub processes: Vec<PagedOutProcess>,
    /// Including waits for the rate.
    pub took: Duration,
    /// CPU time of it.
    pub cpu: Duration,
}

/// The result for one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagedOutProcess {
    /// The process.
    pub id: ProcessId,
    /// Before the first call; zero where it was not read.
    pub before: Memory,
    /// After the last call; zero where it was not read.
    pub after: Memory,
    /// How it ended.
    pub outcome: PageOutOutcome,
}

/// How the page-out of one process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageOutOutcome {
    /// All ranges were advised. The kernel keeps pages that other processes use too.
    Done,
    /// It was paged out in part, or not at all.
    Stopped(PageOutStop),
    /// Only pages of files: the host has no swap.
    NoSwap,
    /// It has exited.
    Gone,
    /// It is never paged out. It was not changed.
    Excluded(PageOutExclusion),
    /// The daemon lacks CAP_SYS_NICE or CAP_SYS_PTRACE, or a security module refuses.
    NotPermitted,
    /// The kernel is older than 5.10, or lacks CONFIG_SWAP.
    Unsupported,
    /// The kernel refused for another reason.
    Failed(String),
}

/// Why a page-out ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageOutStop {
    /// The budget of the process is spent.
    Budget,
    /// Free swap has reached the reserve.
    SwapReserve,
    /// The daemon cancelled it.
    Cancelled,
}

/// Why a process is never paged out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PageOutExclusion {
    /// A thread of it is scheduled in real time or by deadline.
    RealTime,
    /// It locks memory, because it must not be swapped or must not wait for page faults.
    Locked,
    /// It maps memory of memfd_secret(2).
    SecretMemory,
    /// It holds keys: an ssh-agent, a gpg-agent, a keyring.
    KeyHolder,
    /// It runs with ids of another user than the session's.
    OtherUser,
    /// It has no memory of its own.
    KernelThread,
}

impl PagedOutProcess {
    /// By how much its resident memory shrank.
    #[must_use]
    pub fn freed(&self) -> Bytes {
        Bytes(self.before.rss().0.saturating_sub(self.after.rss().0))
    }

    /// By how much its swapped memory grew.
    #[must_use]
    pub fn swapped(&self) -> Bytes {
        Bytes(self.after.swap.0.saturating_sub(self.before.swap.0))
    }
}
