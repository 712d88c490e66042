use std::fs;

use procfs::{Current, Meminfo};

use super::advice::{HostSettings, node_heap};
use super::capacity::HostCapacity;
use watchdog_host::HostError;
use watchdog_host::meminfo::host_memory;

/// Without a daemon one part in this many is reserved, as by default.
const RESERVE_DIVISOR: u64 = 10;

pub(super) fn empty(name: String, total: u64) -> HostCapacity {
    HostCapacity { name, total, free: total - total / RESERVE_DIVISOR }
}

/// This host, from /proc/meminfo.
pub(super) fn this_host() -> Result<HostCapacity, HostError> {
    let memory = host_memory()?;
    let free = memory.available.0.saturating_sub(memory.total.0 / RESERVE_DIVISOR);
    Ok(HostCapacity { name: "this host".into(), total: memory.total.0, free })
}

pub(super) fn settings() -> HostSettings {
    let info = Meminfo::current().ok();
    let commit_left = info.as_ref().and_then(|info| Some(info.commit_limit?.saturating_sub(info.committed_as)));
    let number = |file| fs::read_to_string(file).ok()?.trim().parse().ok();
    HostSettings {
        shm: rustix::fs::statvfs("/dev/shm").ok().map(|shm| shm.f_blocks.saturating_mul(shm.f_frsize)),
        swap: info.map_or(0, |info| info.swap_total),
        overcommit: number("/proc/sys/vm/overcommit_memory"),
        commit_left,
        node_heap: std::env::var("NODE_OPTIONS").ok().as_deref().and_then(node_heap),
    }
}
