//! What the engine shows: its state as the types of the control API.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::Engine;
use super::finding::Key;
use super::id::{BootTime, Bytes, ProcessId, SessionId, Uid};
use super::process::{Process, Verdict};
use super::session::Session;
use super::standing::Standing;
use crate::api::{self, Counts, FindingKind, Findings, ProcessState, SessionState, Tree};

/// Who looks. Decided by SO_PEERCRED, never by what the client says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// Sees everything.
    Root,
    /// Sees processes of this user only.
    User(Uid),
}

impl Viewer {
    /// Whether this viewer may see a process of that user.
    #[must_use]
    pub fn sees(self, owner: Uid) -> bool {
        match self {
            Self::Root => true,
            Self::User(uid) => uid == owner,
        }
    }
}

/// How moments and users are written.
pub struct Naming<'a> {
    /// Wall-clock time of the boot: `UNIX_EPOCH + boot` is when CLOCK_BOOTTIME was 0.
    pub boot: Duration,
    /// A user's name, or the number in digits.
    pub user: &'a dyn Fn(Uid) -> String,
}

/// The numbers that the metrics show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Sessions by profile and state.
    pub sessions: BTreeMap<(String, &'static str), u64>,
    /// Living processes by profile and kind.
    pub processes: BTreeMap<(String, &'static str), u64>,
    /// Memory by profile, shared pages counted once.
    pub memory: BTreeMap<String, u64>,
    /// Growth of what leaks, in bytes per second, by profile.
    pub leaks: BTreeMap<String, f64>,
    /// Open findings by kind.
    pub findings_open: BTreeMap<&'static str, u64>,
    /// Findings ever opened by kind.
    pub findings_total: BTreeMap<&'static str, u64>,
    /// Zombies of all sessions.
    pub zombies: u64,
    /// Victims of the OOM killer that were seen.
    pub oom_kills: u64,
    /// Times that the table was brought back into line.
    pub reconciles: u64,
}

impl Naming<'_> {
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
    pub fn tree(&self, viewer: Viewer, naming: &Naming<'_>) -> Tree {
        let mut members: BTreeMap<SessionId, Vec<&Process>> = BTreeMap::new();
        for process in self.table.iter().filter(|process| shown(process) && viewer.sees(process.uid)) {
            members.entry(process.session).or_default().push(process);
        }
        let sessions = self
            .sessions
            .iter()
            .filter(|session| viewer.sees(session.uid) || members.contains_key(&session.id))
            .map(|session| self.session(session, members.get(&session.id).map_or(&[][..], Vec::as_slice), naming))
            .collect();
        Tree { sessions }
    }

    /// `GET /v1/findings`: the open ones, or all that are remembered.
    #[must_use]
    pub fn findings(&self, viewer: Viewer, naming: &Naming<'_>, all: bool) -> Findings {
        let chosen: Vec<&super::finding::Finding> =
            if all { self.findings.all() } else { self.findings.open().collect() };
        let seen = chosen.into_iter().filter(|finding| viewer.sees(finding.seen.uid));
        Findings { findings: seen.map(|finding| shown_finding(finding, naming)).collect() }
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
        for process in self.table.iter().filter(|process| viewer.sees(process.uid)) {
            counts.processes += u64::from(process.alive());
            counts.zombies += u64::from(process.zombie());
            counts.memory_bytes += self.charged(process).0;
        }
        counts.findings_open = self.findings.open().filter(|finding| viewer.sees(finding.seen.uid)).count() as u64;
        counts
    }

    /// The numbers of `/metrics`.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let mut gauges = Gauges { oom_kills: self.oom_kills, reconciles: self.merge.reconciles, ..Gauges::default() };
        for session in self.sessions.iter() {
            *gauges.sessions.entry((session.profile.clone(), self.state(session).name())).or_default() += 1;
        }
        for process in self.table.iter() {
            gauges.zombies += u64::from(process.zombie());
            if let Some(session) = self.sessions.get(process.session).filter(|_| process.alive()) {
                *gauges.processes.entry((session.profile.clone(), process.kind.name())).or_default() += 1;
                *gauges.memory.entry(session.profile.clone()).or_default() += self.charged(process).0;
            }
        }
        for (session, rate) in self.leaks.rates() {
            if let Some(session) = self.sessions.get(session) {
                *gauges.leaks.entry(session.profile.clone()).or_default() += rate;
            }
        }
        for finding in self.findings.open() {
            *gauges.findings_open.entry(finding.seen.key.kind.name()).or_default() += 1;
        }
        for (kind, total) in self.findings.totals() {
            gauges.findings_total.insert(kind.name(), *total);
        }
        gauges
    }

    fn session(&self, session: &Session, members: &[&Process], naming: &Naming<'_>) -> api::Session {
        let mut rows: Vec<api::Process> = Vec::with_capacity(members.len());
        let by_id: HashMap<ProcessId, &Process> = members.iter().map(|process| (process.id, *process)).collect();
        for id in self.in_order(session) {
            if let Some(process) = by_id.get(&id) {
                rows.push(self.row(process));
            }
        }
        api::Session {
            id: session.id.0,
            profile: session.profile.clone(),
            state: self.state(session),
            gated: session.granted.is_some(),
            user: (naming.user)(session.uid),
            uid: session.uid.0,
            started_at: naming.moment(BootTime::from(session.root.start_time)),
            memory_bytes: members.iter().map(|process| self.charged(process)).sum::<Bytes>().0,
            parent_session: session.parent.map(|parent| parent.0),
            zombies: members.iter().filter(|process| process.zombie()).count() as u64,
            processes: rows,
        }
    }

    /// The processes of a session, each before what it forked, siblings by age; through the dead,
    /// and through sessions in between, since a process may be started from inside a nested one.
    fn in_order(&self, session: &Session) -> Vec<ProcessId> {
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

    pub(super) fn row(&self, process: &Process) -> api::Process {
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
            argv: process.image.argv.clone(),
            state: self.process_state(process),
            rss_bytes: memory.rss().0,
            anon_bytes: memory.anon.0,
            shmem_bytes: memory.shmem.0,
            swap_bytes: memory.swap.0,
            peak_bytes: process.peak.0,
            kept_because,
        }
    }

    fn process_state(&self, process: &Process) -> ProcessState {
        if !process.alive() {
            return ProcessState::Zombie;
        }
        match self.standing(process) {
            Standing::Kept => ProcessState::Kept,
            Standing::Orphan { .. } => ProcessState::Orphaned,
            Standing::InOrder if self.findings.is_open(Key { kind: FindingKind::Detached, about: process.id }) => {
                ProcessState::Detached
            }
            Standing::InOrder if self.stale.contains(process.id) => ProcessState::Stale,
            Standing::InOrder => ProcessState::Running,
        }
    }

    /// A session runs while its agent does, unless that agent was itself left behind by the one around it.
    pub(super) fn state(&self, session: &Session) -> SessionState {
        let orphan = |process: &Process| matches!(self.standing(process), Standing::Orphan { .. });
        match self.agent_of(session.id) {
            Some(agent) if orphan(agent) => SessionState::Orphaned,
            Some(_) => SessionState::Running,
            None if session.members == 0 => SessionState::Ended,
            None => {
                let left = self.table.living().any(|process| process.session == session.id && orphan(process));
                if left { SessionState::Orphaned } else { SessionState::Ended }
            }
        }
    }
}

/// The living, and the zombies; the other dead are only remembered for their children.
fn shown(process: &Process) -> bool {
    process.alive() || process.zombie()
}

pub(super) fn shown_finding(finding: &super::finding::Finding, naming: &Naming<'_>) -> api::Finding {
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
