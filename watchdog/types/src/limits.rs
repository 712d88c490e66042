//! The ceilings of a process's memory, the host's own aside.

use serde::{Deserialize, Serialize};

use super::id::Bytes;

/// The ceilings of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// The tightest limit of its cgroup and those above it; `None` where there is none.
    pub cgroup: Option<CgroupLimit>,
    /// The limit of V8's heap (its old generation): that of argv or NODE_OPTIONS, else V8's default.
    pub v8_heap: Option<Bytes>,
    /// That is V8's default.
    pub v8_default: bool,
    /// The major version of node; `None` where its installation does not tell it.
    pub node_major: Option<u32>,
    /// The limit of another runtime's heap.
    pub heap: Option<HeapCeiling>,
    /// RLIMIT_AS, the address space (`ulimit -v`).
    pub address_space: Option<Box<ResourceLimit>>,
    /// RLIMIT_DATA, private writable memory (`ulimit -d`).
    pub data: Option<Box<ResourceLimit>>,
    /// The hard limit of RLIMIT_CPU, in seconds: beyond it the kernel kills.
    pub cpu_seconds: Option<u64>,
    /// The process is in strict seccomp: any other call than read, write, exit and sigreturn kills it.
    pub strict_seccomp: bool,
    /// Its own cgroup, below the root of the hierarchy that limits memory; `None` in recordings of earlier versions.
    pub own_cgroup: Option<String>,
    /// oom_score_adj; `None` in recordings of earlier versions.
    pub oom_score_adj: Option<i32>,
}

/// A runtime with a heap limit, besides V8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeapRuntime {
    /// A Java virtual machine: beyond its limit it throws OutOfMemoryError.
    Jvm,
    /// Go with GOMEMLIMIT: beyond it the garbage collector runs without end, and nothing is killed.
    Go,
}

/// The heap limit of such a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapCeiling {
    /// Whose.
    pub runtime: HeapRuntime,
    /// The limit.
    pub max: Bytes,
    /// Set in argv or the environment; otherwise it is the runtime's default.
    pub stated: bool,
}

/// A resource limit that counts more than resident memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimit {
    /// The soft limit.
    pub max: Bytes,
    /// What the kernel counts against it.
    pub used: Bytes,
    /// Anonymous, shared and swapped memory at that time.
    pub charged: Bytes,
}

impl ResourceLimit {
    /// The memory at which growth meets the limit: what else is counted stays as it was.
    #[must_use]
    pub fn reached_at(&self) -> Bytes {
        Bytes(self.max.0.saturating_sub(self.used.0) + self.charged.0)
    }
}

/// A cgroup with a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupLimit {
    /// Its path below the root of the hierarchy: `/user.slice/…`.
    pub path: String,
    /// memory.max, or memory.limit_in_bytes of version 1.
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

    /// Whether a cgroup is this one, or below it.
    #[must_use]
    pub fn holds(&self, path: &str) -> bool {
        let below = path.strip_prefix(self.path.trim_end_matches('/'));
        below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    }
}
