//! Selects when the largest sessions and processes are recorded beside the host's memory.

use std::collections::BTreeMap;
use std::time::Duration;

use watchdog_api::{Host, HostRecord, ProcessMemory, SessionMemory};
use watchdog_types::BootTime;

/// The longest time between two records that name them.
const FULL_INTERVAL: Duration = Duration::from_secs(60);
/// A change that is recorded: at least this many bytes, and this part of the former value.
const CHANGE_BYTES: u64 = 4 << 20;
const CHANGE_PART: u64 = 16;

/// The sessions and processes of the last record that named them.
#[derive(Debug, Default)]
pub(super) struct LargestHolders {
    at: Option<BootTime>,
    sessions: BTreeMap<u64, u64>,
    processes: BTreeMap<(u32, u64), u64>,
}

impl LargestHolders {
    /// A record of the host. It names sessions and processes when one of them changed enough, when memory is short, and
    /// once a minute.
    pub(super) fn record(
        &mut self,
        now: BootTime,
        memory: Host,
        sessions: Vec<SessionMemory>,
        processes: Vec<ProcessMemory>,
    ) -> HostRecord {
        let by_session = sessions.iter().map(|session| (session.session, session.memory_bytes)).collect();
        let by_process =
            processes.iter().map(|process| ((process.pid, process.start_time), process.memory_bytes)).collect();
        let is_due = self.at.is_none_or(|at| now.since(at) >= FULL_INTERVAL);
        let is_short = memory.memory_available_bytes < memory.memory_total_bytes / 5;
        let changed = differ(&self.sessions, &by_session) || differ(&self.processes, &by_process);
        if !(is_due || is_short || changed) {
            return HostRecord { memory, sessions: Vec::new(), processes: Vec::new() };
        }
        *self = Self { at: Some(now), sessions: by_session, processes: by_process };
        HostRecord { memory, sessions, processes }
    }
}

/// Whether one was added or removed, or changed enough.
fn differ<K: Ord>(before: &BTreeMap<K, u64>, now: &BTreeMap<K, u64>) -> bool {
    let changed = |held: u64, other: Option<&u64>| {
        let other = other.copied().unwrap_or(0);
        held.abs_diff(other) >= CHANGE_BYTES.max(held.max(other) / CHANGE_PART)
    };
    now.iter().any(|(key, held)| changed(*held, before.get(key)))
        || before.iter().any(|(key, held)| changed(*held, now.get(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn at(seconds: u64) -> BootTime {
        BootTime(seconds * 1_000_000_000)
    }

    fn host(available: u64) -> Host {
        Host {
            memory_total_bytes: 1_000 * MIB,
            memory_available_bytes: available,
            swap_total_bytes: 0,
            swap_free_bytes: 0,
            shmem_bytes: 0,
            pressure_some_avg10: None,
            pressure_full_avg10: None,
        }
    }

    fn session(memory_bytes: u64) -> Vec<SessionMemory> {
        vec![SessionMemory { session: 1, profile: "p".to_owned(), uid: 1, memory_bytes, processes: 2 }]
    }

    #[test]
    fn unchanged_sessions_logged_once_a_minute() {
        let mut largest = LargestHolders::default();
        let mut named = |seconds, available, held| {
            let record = largest.record(at(seconds), host(available), session(held), Vec::new());
            assert_eq!(record.memory.memory_available_bytes, available);
            !record.sessions.is_empty()
        };
        assert!(named(0, 900 * MIB, 100 * MIB));
        assert!(!named(10, 900 * MIB, 105 * MIB));
        assert!(named(20, 900 * MIB, 107 * MIB), "slow growth adds up");
        assert!(!named(30, 900 * MIB, 107 * MIB));
        assert!(named(40, 100 * MIB, 107 * MIB), "memory is short");
        assert!(named(100, 900 * MIB, 107 * MIB));
    }
}
