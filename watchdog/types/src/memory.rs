//! The memory of a process.

use serde::{Deserialize, Serialize};

use super::id::{BootTime, Bytes, Pid, ProcessId};

/// Memory of one process at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When.
    pub at: BootTime,
    /// Whose.
    pub process: ProcessId,
    /// How much; a zombie has none.
    pub memory: Memory,
    /// Its parent now, if the source knows it.
    pub ppid: Option<Pid>,
    /// Dead, and not yet waited for.
    pub zombie: bool,
    /// Has a controlling terminal, if the source knows that.
    pub tty: Option<bool>,
    /// comm now, if the source knows it.
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
    /// The highest resident set so far; zero if the source does not know it.
    pub peak: Bytes,
    /// What it costs when each shared page is divided by the number of its users (smaps_rollup: Pss_Anon + Pss_Shmem
    /// + SwapPss), if that was measured, which is expensive.
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

/// Memory of processes that may share pages, measured together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharesSeen {
    /// When the first was measured: what has changed since makes all void.
    pub began: BootTime,
    /// Each that was still there.
    pub shares: Vec<Share>,
}

/// The part of a process in what it shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Whose.
    pub process: ProcessId,
    /// Its memory at that time.
    pub memory: Memory,
    /// Each shared page divided by the number of its users: Pss_Anon + Pss_Shmem + SwapPss of smaps_rollup.
    pub proportional: Bytes,
    /// What no other process maps (Private_Dirty).
    pub private: Bytes,
}
