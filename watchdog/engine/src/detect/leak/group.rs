//! Roles and sessions: what no process of them shows alone.
//!
//! A helper that is started again and again is one series over all its lives: each end is a drop. Where the earlier ones
//! are never ended, the sum of them grows although each is flat. Both are judged by long windows only: what starts up
//! grows, and many helpers at once are another detector's business.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::ceiling::Ceilings;
use super::demand::Demand;
use super::watch::{Change, Watch};
use watchdog_types::{BootTime, Bytes, ExitStatus, ProcessId, SessionId};

/// How many roles of a session are remembered.
const ROLES_MAX: usize = 256;
/// Lives of at most this length predict what the next may take: a tool's, not a server's.
const SHORT_LIFE: Duration = Duration::from_secs(900);
/// The number of such lives that a prediction needs.
const ELDERS: u32 = 2;
/// A process is like its predecessors up to this multiple of their memory.
const LIKE_ELDERS: f64 = 1.25;

/// A session, and the program that the role's players run.
pub(super) type RoleKey = (SessionId, Arc<str>);

/// All groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    pub(super) roles: BTreeMap<RoleKey, WatchedRole>,
    pub(super) sessions: BTreeMap<SessionId, WatchedSum>,
    pub(super) looked: BootTime,
}

/// The helpers of a session that run the same program.
#[derive(Debug)]
pub(super) struct WatchedRole {
    pub(super) group: WatchedSum,
    elders: Elders,
    /// How many there were, the living included.
    pub(super) instances: u32,
    /// When one was last alive.
    pub(super) played: BootTime,
}

/// Those that have ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Elders {
    /// How many in a row ended by themselves after a short life.
    pub(super) count: u32,
    /// The most that one of them held.
    pub(super) largest: Bytes,
}

/// A sum under watch.
#[derive(Debug, Default)]
pub(super) struct WatchedSum {
    pub(super) watch: Option<Box<Watch>>,
    /// The process that the open finding is about.
    pub(super) about: Option<ProcessId>,
}

/// A process under watch.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) watch: Box<Watch>,
    pub(super) session: SessionId,
    /// What it runs: a role is the helpers of a session that run the same.
    pub(super) program: Arc<str>,
    pub(super) peak: Bytes,
}

/// The members whose growth a group's finding reports.
#[derive(Clone, Debug)]
pub(super) enum Scope {
    Role(SessionId, Arc<str>),
    Session(SessionId),
}

impl Elders {
    /// Whether this much is what others of the role took before.
    pub(super) fn are_like(&self, memory: Bytes) -> bool {
        self.count >= ELDERS && memory.0 as f64 <= self.largest.0 as f64 * LIKE_ELDERS
    }
}

impl WatchedSum {
    /// Takes the sum. The host was asleep until `awake`, if it ever was. Gives why the growth is over, when it is.
    pub(super) fn take(
        &mut self,
        at: BootTime,
        awake: BootTime,
        memory: Bytes,
        demand: Demand,
        ceilings: &Ceilings,
    ) -> Option<&'static str> {
        let Some(watch) = &mut self.watch else {
            self.watch = Some(Box::new(Watch::new(at, memory)));
            return None;
        };
        watch.skip(awake);
        match watch.push(at, memory, ceilings, demand) {
            Some(Change::Closed(because)) => Some(because),
            Some(Change::Opened | Change::Moved) | None => None,
        }
    }
}

impl Groups {
    pub(super) fn elders(&self, watched: &Watched) -> Option<Elders> {
        Some(self.roles.get(&(watched.session, Arc::clone(&watched.program)))?.elders)
    }

    /// Growth of open findings in bytes per second.
    pub(super) fn rates(&self) -> impl Iterator<Item = (SessionId, f64)> {
        let rate = |group: &WatchedSum| group.about.and(group.watch.as_ref()?.found()).map(|found| found.growth.rate);
        let roles = self.roles.iter().filter_map(move |((session, _), role)| Some((*session, rate(&role.group)?)));
        roles.chain(self.sessions.iter().filter_map(move |(session, group)| Some((*session, rate(group)?))))
    }

    /// A process's series is over.
    pub(super) fn lost(&mut self, watched: &Watched, status: Option<ExitStatus>, now: BootTime) {
        let Some(role) = self.roles.get_mut(&(watched.session, Arc::clone(&watched.program))) else { return };
        role.played = now;
        let short = now.since(watched.watch.series().began()) <= SHORT_LIFE;
        if short && matches!(status, Some(ExitStatus::Code(_))) {
            role.elders.count += 1;
            role.elders.largest = role.elders.largest.max(watched.peak);
        } else {
            role.elders = Elders::default();
        }
    }

    /// A process of this role is under watch now.
    pub(super) fn join(&mut self, watched: &Watched) {
        let roles = &mut self.roles;
        let key = (watched.session, Arc::clone(&watched.program));
        let of_session =
            roles.range((watched.session, Arc::from(""))..).take_while(|((id, _), _)| *id == watched.session);
        if !roles.contains_key(&key) && of_session.count() >= ROLES_MAX {
            return;
        }
        let role = roles.entry(key).or_insert_with(|| WatchedRole {
            group: WatchedSum::default(),
            elders: Elders::default(),
            instances: 0,
            played: watched.watch.series().began(),
        });
        role.instances += 1;
    }

    pub(super) fn get(&self, scope: &Scope) -> Option<&WatchedSum> {
        match scope {
            Scope::Role(session, program) => self.roles.get(&(*session, Arc::clone(program))).map(|role| &role.group),
            Scope::Session(session) => self.sessions.get(session),
        }
    }

    pub(super) fn get_mut(&mut self, scope: &Scope) -> Option<&mut WatchedSum> {
        match scope {
            Scope::Role(session, program) => {
                self.roles.get_mut(&(*session, Arc::clone(program))).map(|role| &mut role.group)
            }
            Scope::Session(session) => self.sessions.get_mut(session),
        }
    }

    /// How many played a role so far.
    pub(super) fn instances(&self, session: SessionId, program: &str) -> u32 {
        self.roles.get(&(session, Arc::from(program))).map_or(0, |role| role.instances)
    }
}
