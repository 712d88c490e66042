//! Roles and sessions: what no process of them shows alone.
//!
//! A helper that is started again and again is one series over all its lives: each end is a drop. Where the earlier ones
//! are never ended, the sum of them grows although each is flat. Both are judged by long windows only: what starts up
//! grows, and many helpers at once are another detector's business.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::feed::{Watched, leak_key};
use super::series::Demand;
use super::watch::{Change, Watch};
use crate::api::ProcessKind;
use crate::engine::Step;
use crate::engine::id::{BootTime, Bytes, ProcessId, SessionId};
use crate::engine::input::ExitStatus;
use crate::engine::process::Process;

/// Sums are taken this often: a sixteenth of the shortest window has several.
const EVERY: Duration = Duration::from_secs(12);
/// The shortest windows in which growth of a sum is a leak.
const ROLE_WINDOW: Duration = Duration::from_secs(800);
const SESSION_WINDOW: Duration = Duration::from_secs(3_200);
/// Sessions below this are not watched.
const WORTH_WATCHING: Bytes = Bytes::from_mib(64);
/// A role that nobody plays is remembered for this long.
const REMEMBER: Duration = Duration::from_secs(3_600);
/// How many roles of a session are remembered.
const ROLES_MAX: usize = 256;
/// Lives of at most this length tell what the next may take: a tool's, not a server's.
const SHORT_LIFE: Duration = Duration::from_secs(900);
/// So many of them, and so much more than they took is still like them.
const ELDERS: u32 = 2;
const LIKE_ELDERS: f64 = 1.25;

/// Why a group's finding closes when somebody says it better.
const EXPLAINED: &str = "one of its processes leaks";

/// A session, and the program that the role's players run.
type RoleKey = (SessionId, Arc<str>);

/// All groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    roles: BTreeMap<RoleKey, Role>,
    sessions: BTreeMap<SessionId, Group>,
    looked: BootTime,
}

/// The helpers of a session that run the same program.
#[derive(Debug)]
struct Role {
    group: Group,
    elders: Elders,
    /// How many there were, the living included.
    instances: u32,
    /// When one was last alive.
    played: BootTime,
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
pub(super) struct Group {
    pub(super) watch: Option<Box<Watch>>,
    /// The process that the open finding is about.
    pub(super) about: Option<ProcessId>,
}

/// What a group holds at one moment.
#[derive(Clone, Debug, Default)]
struct Sum {
    memory: Bytes,
    /// The living, the oldest first.
    members: Vec<ProcessId>,
    /// One of them leaks by itself: that says it better.
    explained: bool,
}

/// Whose growth a group's finding tells of.
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

impl Group {
    /// Takes the sum. Gives why the growth is over, when it is.
    fn take(&mut self, at: BootTime, memory: Bytes, demand: Demand, step: &Step<'_>) -> Option<&'static str> {
        let Some(watch) = &mut self.watch else {
            self.watch = Some(Box::new(Watch::new(at, memory)));
            return None;
        };
        match watch.push(at, memory, &step.host_ceiling(), demand) {
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
        let rate = |group: &Group| group.about.and(group.watch.as_ref()?.found()).map(|found| found.growth.rate);
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

    pub(super) fn get(&self, scope: &Scope) -> Option<&Group> {
        match scope {
            Scope::Role(session, program) => self.roles.get(&(*session, Arc::clone(program))).map(|role| &role.group),
            Scope::Session(session) => self.sessions.get(session),
        }
    }

    pub(super) fn get_mut(&mut self, scope: &Scope) -> Option<&mut Group> {
        match scope {
            Scope::Role(session, program) => {
                self.roles.get_mut(&(*session, Arc::clone(program))).map(|role| &mut role.group)
            }
            Scope::Session(session) => self.sessions.get_mut(session),
        }
    }

    /// How many played a role so far.
    pub(super) fn instances(&self, session: SessionId, program: &Arc<str>) -> u32 {
        self.roles.get(&(session, Arc::clone(program))).map_or(0, |role| role.instances)
    }
}

impl Step<'_> {
    /// A process of this role is under watch now.
    pub(super) fn join_role(&mut self, watched: &Watched) {
        let roles = &mut self.engine.leaks.groups.roles;
        let key = (watched.session, Arc::clone(&watched.program));
        let of_session =
            roles.range((watched.session, Arc::from(""))..).take_while(|((id, _), _)| *id == watched.session);
        if !roles.contains_key(&key) && of_session.count() >= ROLES_MAX {
            return;
        }
        let role = roles.entry(key).or_insert_with(|| Role {
            group: Group::default(),
            elders: Elders::default(),
            instances: 0,
            played: watched.watch.series().began(),
        });
        role.instances += 1;
    }

    pub(super) fn tick_leaks_of_groups(&mut self) {
        let now = self.now;
        if now.since(self.engine.leaks.groups.looked) < EVERY {
            return;
        }
        self.engine.leaks.groups.looked = now;
        let (roles, sessions) = self.sums();
        self.take_roles(roles);
        self.take_sessions(sessions);
    }

    fn sums(&self) -> (BTreeMap<RoleKey, Sum>, BTreeMap<SessionId, Sum>) {
        let mut roles: BTreeMap<RoleKey, Sum> = BTreeMap::new();
        let mut sessions: BTreeMap<SessionId, Sum> = BTreeMap::new();
        let table = &self.engine.table;
        for (id, watched) in &self.engine.leaks.processes {
            let Some(process) = table.alive(*id) else { continue };
            let leaks = watched.watch.found().is_some();
            sessions.entry(process.session).or_default().explained |= leaks;
            if counts_alone(process) {
                continue;
            }
            let role = roles.entry((watched.session, Arc::clone(&watched.program))).or_default();
            role.memory += process.cost();
            role.members.push(*id);
            role.explained |= leaks;
        }
        for process in table.living().filter(|process| !counts_alone(process)) {
            let session = sessions.entry(process.session).or_default();
            session.memory += process.cost();
            session.members.push(process.id);
        }
        for sum in roles.values_mut().chain(sessions.values_mut()) {
            sum.members.sort_unstable_by_key(|id| (id.start_time, id.pid));
        }
        (roles, sessions)
    }

    fn take_roles(&mut self, mut sums: BTreeMap<RoleKey, Sum>) {
        let now = self.now;
        let demand = Demand { window: ROLE_WINDOW, ..self.leak_demand() };
        let mut roles = std::mem::take(&mut self.engine.leaks.groups.roles);
        let mut over = Vec::new();
        roles.retain(|key, role| {
            if sums.contains_key(key) {
                role.played = now;
            }
            let remembered = now.since(role.played) < REMEMBER && self.engine.sessions.get(key.0).is_some();
            if !remembered {
                over.extend(role.group.about.map(|about| (about, "gone")));
            }
            remembered
        });
        let mut growing = Vec::new();
        for (key, role) in &mut roles {
            let sum = sums.remove(key).unwrap_or_default();
            // One process alone is judged by its own series.
            if role.instances < 2 {
                continue;
            }
            let because = role.group.take(now, sum.memory, demand, self);
            growing.push((Scope::Role(key.0, Arc::clone(&key.1)), sum, because));
        }
        self.engine.leaks.groups.roles = roles;
        over.into_iter().for_each(|(about, because)| self.close(leak_key(about), because));
        growing.into_iter().for_each(|(scope, sum, because)| self.settle_group(&scope, &sum, because));
    }

    fn take_sessions(&mut self, mut sums: BTreeMap<SessionId, Sum>) {
        let now = self.now;
        let demand = Demand { window: SESSION_WINDOW, ..self.leak_demand() };
        for ((session, _), role) in &self.engine.leaks.groups.roles {
            if role.group.about.is_some()
                && let Some(sum) = sums.get_mut(session)
            {
                sum.explained = true;
            }
        }
        let mut sessions = std::mem::take(&mut self.engine.leaks.groups.sessions);
        let mut over = Vec::new();
        sessions.retain(|session, group| {
            let there = sums.contains_key(session);
            if !there {
                over.extend(group.about.map(|about| (about, "gone")));
            }
            there
        });
        let mut growing = Vec::new();
        for (session, sum) in sums {
            if sum.memory >= WORTH_WATCHING || sessions.contains_key(&session) {
                let because = sessions.entry(session).or_default().take(now, sum.memory, demand, self);
                growing.push((Scope::Session(session), sum, because));
            }
        }
        self.engine.leaks.groups.sessions = sessions;
        over.into_iter().for_each(|(about, because)| self.close(leak_key(about), because));
        growing.into_iter().for_each(|(scope, sum, because)| self.settle_group(&scope, &sum, because));
    }

    /// Opens, brings up to date or closes the finding of a group.
    fn settle_group(&mut self, scope: &Scope, sum: &Sum, because: Option<&'static str>) {
        let Some(group) = self.engine.leaks.groups.get_mut(scope) else { return };
        let found = group.watch.as_ref().and_then(|watch| watch.found()).is_some();
        match (found && !sum.explained, sum.members.first()) {
            (true, Some(oldest)) => {
                let about = *group.about.get_or_insert(*oldest);
                // A role says it better than its session, and both may be about the same process.
                if let Scope::Role(session, _) = scope {
                    self.yield_group(&Scope::Session(*session), EXPLAINED);
                }
                self.report_group_leak(scope, about, &sum.members, sum.memory);
            }
            _ => self.yield_group(scope, because.unwrap_or(if sum.explained { EXPLAINED } else { "gone" })),
        }
    }

    /// A process leaks: what was said of its role and session was this.
    pub(super) fn groups_yield(&mut self, session: SessionId, program: &Arc<str>) {
        for scope in [Scope::Role(session, Arc::clone(program)), Scope::Session(session)] {
            self.yield_group(&scope, EXPLAINED);
        }
    }

    fn yield_group(&mut self, scope: &Scope, because: &'static str) {
        if let Some(about) = self.engine.leaks.groups.get_mut(scope).and_then(|group| group.about.take()) {
            self.close(leak_key(about), because);
        }
    }
}

/// Each worktree has its language servers: many of them are no leak of anybody.
fn counts_alone(process: &Process) -> bool {
    process.kind == ProcessKind::LanguageServer
}
