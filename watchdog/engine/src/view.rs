//! The engine's state as types of the control API.

use std::time::Duration;
use watchdog_types::Viewer;

use super::Engine;
use super::ownership::{self, Ownership};
use super::process::{TrackedProcess, Verdict};
use super::session::TrackedSession;
use super::session_sums::SessionSums;
use watchdog_api::{self as api, Counts, Findings, ProcessState, SessionState, Tree};
use watchdog_types::{BootTime, HostMemory, ProcessId, SessionId, Uid};

/// How moments and users are written.
pub struct DisplayContext<'a> {
    /// Wall-clock time of the boot: `UNIX_EPOCH + boot` is when CLOCK_BOOTTIME was 0.
    pub boot: Duration,
    /// A user's name, or the number in digits.
    pub user: &'a dyn Fn(Uid) -> String,
}

impl DisplayContext<'_> {
    /// The moment as RFC 3339, in UTC, with milliseconds.
    #[must_use]
    pub fn moment(&self, at: BootTime) -> String {
        let since_epoch = self.boot + Duration::from_nanos(at.0);
        let millis = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
        jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX).to_string()
    }
}

impl Engine {
    /// `GET /v1/tree`
    #[must_use]
    pub fn tree(&self, viewer: Viewer, naming: &DisplayContext<'_>) -> Tree {
        self.tree_listing(viewer, naming, |_| true)
    }

    /// The same, with processes of the sessions that `lists` chooses only. The others cost a fiftieth.
    #[must_use]
    pub fn tree_listing(&self, viewer: Viewer, naming: &DisplayContext<'_>, lists: impl Fn(SessionId) -> bool) -> Tree {
        let all = self.session_sums(viewer);
        let sessions = self
            .sessions
            .iter()
            .filter(|session| viewer.sees(session.uid) || all.contains_key(&session.id))
            .map(|session| {
                let sums = all.get(&session.id).copied().unwrap_or_default();
                let rows = if lists(session.id) { self.rows(session, viewer) } else { Vec::new() };
                let peak = if viewer.sees(session.uid) { session.tally.peak.0 } else { 0 };
                api::Session { peak_memory_bytes: peak, processes: rows, ..self.session(session, &sums, naming) }
            })
            .collect();
        Tree { sessions }
    }

    /// `GET /v1/findings`: the open ones, or all that are remembered.
    #[must_use]
    pub fn findings(&self, viewer: Viewer, naming: &DisplayContext<'_>, all: bool) -> Findings {
        let chosen: Vec<&super::finding::TrackedFinding> =
            if all { self.findings.all() } else { self.findings.open().collect() };
        let seen = chosen.into_iter().filter(|finding| viewer.sees(finding.seen.uid));
        Findings { findings: seen.map(|finding| to_api_finding(finding, naming)).collect() }
    }

    /// The counts of `GET /v1/status`.
    #[must_use]
    pub fn counts(&self, viewer: Viewer) -> Counts {
        let mut counts = Counts::default();
        for session in self.sessions.iter().filter(|session| viewer.sees(session.uid)) {
            match self.state(session) {
                SessionState::Running => counts.sessions_running += 1,
                SessionState::Orphaned => counts.sessions_orphaned += 1,
                SessionState::Ended => {}
            }
        }
        for sums in self.session_sums(viewer).values() {
            counts.processes += sums.living;
            counts.zombies += sums.zombies;
            counts.memory_bytes += sums.memory.0;
        }
        counts.findings_open = self.findings.open().filter(|finding| viewer.sees(finding.seen.uid)).count() as u64;
        counts
    }

    /// Memory of the host, as last reported.
    #[must_use]
    pub const fn host(&self) -> &HostMemory {
        &self.close_watch.host
    }

    fn rows(&self, session: &TrackedSession, viewer: Viewer) -> Vec<api::Process> {
        let members = self.in_order(session).into_iter().filter_map(|id| self.table.get(id));
        let seen = members.filter(|process| process.is_shown() && viewer.sees(process.uid));
        seen.map(|process| self.row(process)).collect()
    }

    /// Without its processes.
    fn session(&self, session: &TrackedSession, sums: &SessionSums, naming: &DisplayContext<'_>) -> api::Session {
        api::Session {
            id: session.id.0,
            profile: session.profile.clone(),
            state: self.state(session),
            gated: session.granted.is_some(),
            user: (naming.user)(session.uid),
            uid: session.uid.0,
            started_at: naming.moment(BootTime::from(session.root.start_time)),
            memory_bytes: sums.memory.0,
            peak_memory_bytes: 0,
            resident_bytes: sums.resident.0,
            swap_bytes: sums.swap.0,
            idle_since: sums.idle_since.map(|since| naming.moment(since)),
            process_count: sums.living,
            oom_score_adj: self.agent_of(session.id).and_then(|agent| agent.oom_score_adj),
            parent_session: session.parent.map(|parent| parent.0),
            zombies: sums.zombies,
            processes: Vec::new(),
        }
    }

    /// The processes of a session, each before what it forked, siblings by age; through the dead,
    /// and through sessions in between, since a process may be started from inside a nested one.
    fn in_order(&self, session: &TrackedSession) -> Vec<ProcessId> {
        let mut order = Vec::new();
        let mut open = vec![session.root];
        while let Some(id) = open.pop() {
            let Some(process) = self.table.get(id) else { continue };
            if process.session == session.id {
                order.push(id);
            }
            let mut children = process.children.clone();
            children.sort_by_key(|child| std::cmp::Reverse((child.start_time, child.pid)));
            open.extend(children);
        }
        order
    }

    pub(super) fn row(&self, process: &TrackedProcess) -> api::Process {
        let kept_because = match &process.verdict {
            Verdict::Kept(because) => Some(because.clone()),
            Verdict::Clear | Verdict::Unknown(_) => None,
        };
        let memory = &process.memory;
        api::Process {
            pid: process.id.pid.0,
            start_time: process.id.start_time.0,
            ppid: process.ppid.0,
            parent_pid: process.forked_by.map_or(process.first_ppid, |parent| parent.pid).0,
            depth: process.depth,
            kind: process.kind,
            comm: process.comm.clone(),
            name: process.label(),
            argv: process.image.argv.clone(),
            state: self.process_state(process),
            rss_bytes: memory.rss().0,
            anon_bytes: memory.anon.0,
            shmem_bytes: memory.shmem.0,
            swap_bytes: memory.swap.0,
            peak_bytes: process.peak.0,
            oom_score_adj: process.oom_score_adj,
            kept_because,
        }
    }

    fn process_state(&self, process: &TrackedProcess) -> ProcessState {
        if !process.alive() {
            return ProcessState::Zombie;
        }
        match self.ownership(process) {
            Ownership::Kept => ProcessState::Kept,
            Ownership::Orphan { .. } => ProcessState::Orphaned,
            Ownership::Owned if self.detectors.is_detached(process.id) => ProcessState::Detached,
            Ownership::Owned if self.detectors.is_stale(process.id) => ProcessState::Stale,
            Ownership::Owned => ProcessState::Running,
        }
    }

    /// A session runs while its agent does, unless that agent was itself left behind by the one around it.
    pub(super) fn state(&self, session: &TrackedSession) -> SessionState {
        let orphan = |process: &TrackedProcess| matches!(self.ownership(process), Ownership::Orphan { .. });
        match self.agent_of(session.id) {
            Some(agent) if orphan(agent) => SessionState::Orphaned,
            Some(_) => SessionState::Running,
            None if session.members == 0 => SessionState::Ended,
            None => {
                let left = ownership::living_of(&self.table, session).any(orphan);
                if left { SessionState::Orphaned } else { SessionState::Ended }
            }
        }
    }
}

pub(super) fn to_api_finding(finding: &super::finding::TrackedFinding, naming: &DisplayContext<'_>) -> api::Finding {
    let seen = &finding.seen;
    api::Finding {
        id: finding.id.0,
        kind: seen.key.kind,
        severity: seen.severity,
        session: seen.session.map(|session| session.0),
        pid: seen.subject.pid.0,
        start_time: seen.subject.start_time.0,
        opened_at: naming.moment(finding.opened),
        closed_at: finding.closed.map(|(at, _)| naming.moment(at)),
        closed_because: finding.closed.map(|(_, because)| because.to_owned()),
        summary: seen.summary.clone(),
        evidence: seen.evidence.clone(),
        proposed_action: seen.proposal.name().to_owned(),
        action_taken: finding.taken.clone(),
    }
}
