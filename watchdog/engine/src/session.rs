//! Sessions: an agent and everything forked below it.

use std::collections::BTreeMap;
use std::time::Duration;

use watchdog_types::{BootTime, Bytes, ProcessId, SessionId, Uid};

/// How long an ended session is still shown, and how many of them.
const REMEMBER: Duration = Duration::from_secs(300);
const REMEMBER_MAX: usize = 100;

/// Totals of a session up to now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Highest memory of its processes together.
    pub(super) peak: Bytes,
    /// Highest resident set of a single process.
    pub(super) largest: Bytes,
    /// Number of its processes so far, including the agent.
    pub(super) entered: u64,
}

impl Tally {
    pub(super) fn include(&mut self, peak: Bytes) {
        self.largest = self.largest.max(peak);
    }
}

#[derive(Clone, Debug)]
pub(super) struct TrackedSession {
    pub(super) id: SessionId,
    /// The agent, or the launcher in front of it.
    pub(super) root: ProcessId,
    pub(super) profile: String,
    /// The profiles that recognise its commands, where another was named at the launch: their limits hold too.
    pub(super) matched: Vec<String>,
    /// The session in which this agent was started.
    pub(super) parent: Option<SessionId>,
    pub(super) uid: Uid,
    /// The root of the session that was granted: its own, or that of the one inside which it began.
    pub(super) granted: Option<ProcessId>,
    /// Living processes.
    pub(super) members: usize,
    /// The agent itself ignores SIGHUP; `None` before the first inspection.
    pub(super) ignores_hup: Option<bool>,
    /// The last inspection of the agent because it started a helper, and their number.
    pub(super) looked: (BootTime, u32),
    /// What it has been so far.
    pub(super) tally: Tally,
    pub(super) ended: Option<BootTime>,
}

#[derive(Debug, Default)]
pub(super) struct Sessions {
    sessions: BTreeMap<SessionId, TrackedSession>,
    last: SessionId,
}

impl Sessions {
    pub(super) fn get(&self, id: SessionId) -> Option<&TrackedSession> {
        self.sessions.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: SessionId) -> Option<&mut TrackedSession> {
        self.sessions.get_mut(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &TrackedSession> {
        self.sessions.values()
    }

    pub(super) fn last(&self) -> SessionId {
        self.last
    }

    /// Later ids are above this one.
    pub(super) fn raise(&mut self, last: SessionId) {
        self.last = self.last.max(last);
    }

    /// Begins a session under the id that it had in an earlier run, or else under a new one.
    pub(super) fn begin(
        &mut self,
        root: ProcessId,
        profile: &str,
        parent: Option<SessionId>,
        uid: Uid,
        had: Option<SessionId>,
    ) -> SessionId {
        let id = had.filter(|id| !self.sessions.contains_key(id)).unwrap_or(SessionId(self.last.0 + 1));
        self.raise(id);
        let profile = profile.to_owned();
        self.sessions.insert(
            id,
            TrackedSession {
                id,
                root,
                profile,
                matched: Vec::new(),
                parent,
                uid,
                granted: None,
                members: 0,
                ignores_hup: None,
                looked: (BootTime(0), 0),
                tally: Tally::default(),
                ended: None,
            },
        );
        id
    }

    /// The session whose root this is, the youngest if several ended ones share it.
    pub(super) fn of_root(&self, root: ProcessId) -> Option<SessionId> {
        self.sessions.values().rev().find(|session| session.root == root).map(|session| session.id)
    }

    /// Removes sessions that ended long ago.
    pub(super) fn sweep(&mut self, now: BootTime) {
        let ended = self.sessions.values().filter(|session| session.ended.is_some()).count();
        let mut surplus = ended.saturating_sub(REMEMBER_MAX);
        self.sessions.retain(|_, session| match session.ended {
            Some(_) if surplus > 0 => {
                surplus -= 1;
                false
            }
            Some(at) => now.since(at) < REMEMBER,
            None => true,
        });
    }
}
