//! The holders of memory between two records that list them.
//!
//! The daemon names sessions and processes when one of them has changed, and once a minute. Other records of the host leave
//! them out: they stand for the last ones.

use jiff::Timestamp;
use watchdog_api::{Host, HostRecord, Past, ProcessMemory, Session, SessionMemory};

/// The daemon names them once a minute; after that they are not known.
pub(crate) const VALID: i64 = 75;

/// The host at a moment.
#[derive(Clone, Debug)]
pub(crate) struct HostSample {
    /// Seconds since 1970.
    pub(crate) at: i64,
    pub(crate) host: HostRecord,
}

impl HostSample {
    /// The present, as the last sample of a period.
    pub(crate) fn now(memory: Host, sessions: &[Session]) -> Self {
        let sessions = sessions.iter().map(|session| SessionMemory {
            session: session.id,
            profile: session.profile.clone(),
            uid: session.uid,
            memory_bytes: session.memory_bytes,
            processes: session.process_count,
        });
        let host = HostRecord { memory, sessions: sessions.collect(), processes: Vec::new() };
        Self { at: Timestamp::now().as_second(), host }
    }
}

/// Fills in what records leave out. It must see all records in their order.
#[derive(Debug, Default)]
pub(crate) struct LastHolders {
    at: i64,
    sessions: Vec<SessionMemory>,
    processes: Vec<ProcessMemory>,
}

impl LastHolders {
    /// The sample of a record of the host; `None` for other records.
    pub(crate) fn sample(&mut self, when: Timestamp, what: &Past) -> Option<HostSample> {
        let at = when.as_second();
        match what {
            Past::Host(host) if host.sessions.is_empty() && at - self.at <= VALID => {
                let (sessions, processes) = (self.sessions.clone(), self.processes.clone());
                Some(HostSample { at, host: HostRecord { memory: host.memory, sessions, processes } })
            }
            Past::Host(host) => {
                *self = Self { at, sessions: host.sessions.clone(), processes: host.processes.clone() };
                Some(HostSample { at, host: host.clone() })
            }
            Past::SessionEnded(summary) => {
                self.sessions.retain(|session| session.session != summary.start.session);
                self.processes.retain(|process| process.session != summary.start.session);
                None
            }
            Past::DaemonStarted { .. } | Past::DaemonStopped => {
                *self = Self::default();
                None
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn held(holders: &mut LastHolders, second: i64, record: Value) -> Option<Vec<u64>> {
        let what: Past = serde_json::from_value(record).unwrap();
        let sample = holders.sample(Timestamp::from_second(1_000 + second).unwrap(), &what)?;
        Some(sample.host.sessions.iter().map(|session| session.session).collect())
    }

    fn host(sessions: &[u64]) -> Value {
        let session = |id: &u64| json!({"session": id, "profile": "p", "uid": 0, "memory_bytes": 1, "processes": 1});
        json!({
            "type": "host", "memory_total_bytes": 9, "memory_available_bytes": 5, "swap_total_bytes": 0,
            "swap_free_bytes": 0, "shmem_bytes": 1, "pressure_some_avg10": null, "pressure_full_avg10": null,
            "sessions": sessions.iter().map(session).collect::<Vec<_>>(),
        })
    }

    #[test]
    fn unlisted_holders_are_the_previous_ones() {
        let mut holders = LastHolders::default();
        assert_eq!(held(&mut holders, 0, host(&[1, 2])), Some(vec![1, 2]));
        assert_eq!(held(&mut holders, 10, host(&[])), Some(vec![1, 2]));
        let ended = json!({
            "type": "session_ended", "session": 2, "profile": "p", "user": "u", "started_at": "x", "pid": 1,
            "start_time": 1, "ended_at": "x", "peak_memory_bytes": 1, "largest_process_peak_bytes": 1, "helpers": 0,
        });
        assert_eq!(held(&mut holders, 15, ended), None);
        assert_eq!(held(&mut holders, 20, host(&[])), Some(vec![1]));
        assert_eq!(held(&mut holders, 90, host(&[])), Some(vec![]), "too long ago");
        assert_eq!(held(&mut holders, 100, host(&[3])), Some(vec![3]));
        assert_eq!(held(&mut holders, 101, json!({"type": "daemon_stopped"})), None);
        assert_eq!(held(&mut holders, 110, host(&[])), Some(vec![]));
    }
}
