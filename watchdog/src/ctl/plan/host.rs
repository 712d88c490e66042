//! What this host tells of itself without a daemon.

use std::fs;

use procfs::{Current, Meminfo};

use super::advice::{Settings, node_heap};
use super::sums::Place;
use crate::host::HostError;
use crate::host::meminfo::host_memory;

/// What is kept free where no daemon says how much: one in so many parts of the memory, as by default.
const RESERVE: u64 = 10;

/// A host of this size on which nothing runs yet.
pub(super) fn empty(name: String, total: u64) -> Place {
    Place { name, total, room: total - total / RESERVE }
}

/// This host, by /proc/meminfo.
///
/// # Errors
/// When it cannot be read.
pub(super) fn this_host() -> Result<Place, HostError> {
    let memory = host_memory()?;
    let room = memory.available.0.saturating_sub(memory.total.0 / RESERVE);
    Ok(Place { name: "this host".into(), total: memory.total.0, room })
}

/// What this host is set to. What cannot be read is not known.
pub(super) fn settings() -> Settings {
    let info = Meminfo::current().ok();
    let commit_left = info.as_ref().and_then(|info| Some(info.commit_limit?.saturating_sub(info.committed_as)));
    let number = |file| fs::read_to_string(file).ok()?.trim().parse().ok();
    Settings {
        shm: rustix::fs::statvfs("/dev/shm").ok().map(|shm| shm.f_blocks.saturating_mul(shm.f_frsize)),
        swap: info.map_or(0, |info| info.swap_total),
        overcommit: number("/proc/sys/vm/overcommit_memory"),
        commit_left,
        node_heap: std::env::var("NODE_OPTIONS").ok().as_deref().and_then(node_heap),
    }
}
