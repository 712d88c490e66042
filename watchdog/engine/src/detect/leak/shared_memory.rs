//! Shared memory, counted once for the processes of a session.
//!
//! A worker that touches pages which its parent filled grows, and the host does not. So only the process that maps the
//! most shared memory in its session is judged with it; the others are judged by private and swapped memory.

use std::collections::BTreeMap;

use crate::process::TrackedProcess;
use watchdog_types::{Bytes, ProcessId, SessionId};

/// Another process becomes the holder when it maps this much more: two that grow together are sampled at two moments.
const MORE: Bytes = Bytes::from_mib(8);
/// The same, as a fraction of what the holder maps: one in this many.
const MORE_PART: u64 = 8;

/// The process of each session that maps the most shared memory, and how much that is.
#[derive(Debug, Default)]
pub(super) struct SharedHolders(BTreeMap<SessionId, (ProcessId, Bytes)>);

impl SharedHolders {
    /// The memory of a process that growth is judged by.
    pub(super) fn judged(&mut self, process: &TrackedProcess) -> Bytes {
        let memory = process.memory;
        let private = memory.anon + memory.swap;
        if memory.shmem == Bytes(0) {
            self.forget(process.session, process.id);
            return private;
        }
        let (holder, most) = self.0.entry(process.session).or_insert((process.id, memory.shmem));
        let more = memory.shmem.0.saturating_sub(most.0) > MORE.0.max(most.0 / MORE_PART);
        if *holder != process.id && !more {
            return private;
        }
        (*holder, *most) = (process.id, memory.shmem);
        private + memory.shmem
    }

    /// A process has exited or runs another program.
    pub(super) fn forget(&mut self, session: SessionId, process: ProcessId) {
        if self.0.get(&session).is_some_and(|(holder, _)| *holder == process) {
            self.0.remove(&session);
        }
    }
}
