//! Summaries of ended sessions, and the largest holders of memory.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::process::TrackedProcess;
use super::view::{DisplayContext, to_api_finding};
use super::{Engine, Step};
use watchdog_api::{self as api, ProcessMemory, SessionMemory, SessionStart, SessionSummary};
use watchdog_types::{BootTime, Bytes, FindingId, ProcessId, SessionId, Uid};

impl Step<'_> {
    /// Adds up what each session holds.
    pub(super) fn tally(&mut self) {
        let Engine { table, tallied, .. } = &mut *self.engine;
        if !tallied.is_due(table.generation(), self.now) {
            return;
        }
        let mut sums: BTreeMap<SessionId, (Bytes, Bytes)> = BTreeMap::new();
        for process in self.engine.table.living() {
            let (sum, largest) = sums.entry(process.session).or_default();
            *sum += self.engine.charged(process);
            *largest = process.peak.max(*largest);
        }
        for (session, (sum, largest)) in sums {
            if let Some(session) = self.engine.sessions.get_mut(session) {
                session.tally.peak = session.tally.peak.max(sum);
                session.tally.include(largest);
            }
        }
    }
}

impl Engine {
    /// The process's part of the memory of its session, and of all sessions together.
    pub(crate) fn charged(&self, process: &TrackedProcess) -> Bytes {
        if self.uncharged.contains(&process.id) { Bytes(0) } else { process.cost() }
    }

    /// How a session began, and its user.
    #[must_use]
    pub fn session_start(&self, session: SessionId, naming: &DisplayContext<'_>) -> Option<(Uid, SessionStart)> {
        let session = self.sessions.get(session)?;
        let start = SessionStart {
            session: session.id.0,
            profile: session.profile.clone(),
            user: (naming.user)(session.uid),
            started_at: naming.moment(BootTime::from(session.root.start_time)),
            pid: session.root.pid.0,
            start_time: session.root.start_time.0,
        };
        Some((session.uid, start))
    }

    /// The summary of an ended session, and its user.
    #[must_use]
    pub fn session_summary(&self, session: SessionId, naming: &DisplayContext<'_>) -> Option<(Uid, SessionSummary)> {
        let (uid, start) = self.session_start(session, naming)?;
        let session = self.sessions.get(session)?;
        let tally = session.tally;
        let summary = SessionSummary {
            start,
            ended_at: naming.moment(session.ended?),
            peak_memory_bytes: tally.peak.0,
            largest_process_peak_bytes: tally.largest.0,
            helpers: tally.entered.saturating_sub(1),
        };
        Some((uid, summary))
    }

    #[must_use]
    pub fn session_of(&self, process: ProcessId) -> Option<SessionId> {
        self.table.get(process).map(|process| process.session)
    }

    /// A finding, open or closed, and whose it is.
    #[must_use]
    pub fn finding(&self, id: FindingId, naming: &DisplayContext<'_>) -> Option<(Uid, api::Finding)> {
        let finding = self.findings.get(id)?;
        Some((finding.seen.uid, to_api_finding(finding, naming)))
    }

    /// The sessions and the processes that hold the most memory now, largest first, up to the given numbers.
    #[must_use]
    pub fn largest(&self, sessions: usize, processes: usize) -> (Vec<SessionMemory>, Vec<ProcessMemory>) {
        let mut totals = BTreeMap::<SessionId, (Bytes, u64)>::new();
        let mut heaviest: Vec<(Bytes, ProcessId)> = Vec::new();
        for process in self.table.living() {
            let total = totals.entry(process.session).or_default();
            *total = (total.0 + self.charged(process), total.1 + 1);
            heaviest.push((process.cost(), process.id));
        }
        let mut totals: Vec<(SessionId, (Bytes, u64))> = totals.into_iter().collect();
        totals.sort_by_key(|(session, (bytes, _))| (Reverse(*bytes), *session));
        heaviest.sort_unstable_by_key(|(bytes, process)| (Reverse(*bytes), *process));
        let sessions = totals.into_iter().take(sessions).filter_map(|(id, (memory, count))| {
            let session = self.sessions.get(id)?;
            Some(SessionMemory {
                session: id.0,
                profile: session.profile.clone(),
                uid: session.uid.0,
                memory_bytes: memory.0,
                processes: count,
            })
        });
        let processes = heaviest.into_iter().take(processes).filter_map(|(memory, id)| {
            let process = self.table.get(id)?;
            Some(ProcessMemory {
                pid: id.pid.0,
                start_time: id.start_time.0,
                session: process.session.0,
                uid: process.uid.0,
                name: process.label(),
                memory_bytes: memory.0,
            })
        });
        (sessions.collect(), processes.collect())
    }
}
