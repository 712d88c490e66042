//! What roles and sessions hold together, taken now and then, and what is found of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::demand::Demand;
use super::group::{RoleKey, Scope};
use super::known_ceilings::host_ceiling;
use super::state::{Leaks, leak_key, usual_demand};
use crate::detect::{Conclusions, Facts};
use crate::process::TrackedProcess;
use watchdog_api::ProcessKind;
use watchdog_types::{Bytes, ProcessId, SessionId};

/// Sums are taken this often: a sixteenth of the shortest window has several.
const EVERY: Duration = Duration::from_secs(12);
/// The shortest windows in which growth of a sum is a leak.
const ROLE_WINDOW: Duration = Duration::from_secs(800);
const SESSION_WINDOW: Duration = Duration::from_secs(3_200);
/// Sessions below this are not watched.
const WORTH_WATCHING: Bytes = Bytes::from_mib(64);
/// A role without processes is remembered for this long.
const REMEMBER: Duration = Duration::from_secs(3_600);

/// Why a group's finding closes when a process of it has its own.
const EXPLAINED: &str = "one of its processes leaks";

/// What a group holds at one moment.
#[derive(Clone, Debug, Default)]
struct Sum {
    memory: Bytes,
    /// The living, the oldest first.
    members: Vec<ProcessId>,
    /// One of them leaks by itself: that says it better.
    explained: bool,
}

impl Leaks {
    pub(super) fn tick_groups(&mut self, facts: &Facts<'_>, out: &mut Conclusions) {
        let now = facts.now;
        if now.since(self.groups.looked) < EVERY {
            return;
        }
        self.groups.looked = now;
        let (roles, sessions) = self.sums(facts);
        self.take_roles(roles, facts, out);
        self.take_sessions(sessions, facts, out);
    }

    fn sums(&self, facts: &Facts<'_>) -> (BTreeMap<RoleKey, Sum>, BTreeMap<SessionId, Sum>) {
        let mut roles: BTreeMap<RoleKey, Sum> = BTreeMap::new();
        let mut sessions: BTreeMap<SessionId, Sum> = BTreeMap::new();
        let table = facts.table;
        let crowd = facts.crowd();
        for (id, watched) in &self.processes {
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
            sum.explained |= sum.members.iter().any(|member| crowd.contains(member));
            sum.members.sort_unstable_by_key(|id| (id.start_time, id.pid));
        }
        (roles, sessions)
    }

    fn take_roles(&mut self, mut sums: BTreeMap<RoleKey, Sum>, facts: &Facts<'_>, out: &mut Conclusions) {
        let now = facts.now;
        let demand = Demand { window: ROLE_WINDOW, ..usual_demand(facts) };
        let mut roles = std::mem::take(&mut self.groups.roles);
        let mut over = Vec::new();
        roles.retain(|key, role| {
            if sums.contains_key(key) {
                role.played = now;
            }
            let remembered = now.since(role.played) < REMEMBER && facts.sessions.get(key.0).is_some();
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
            let because = role.group.take(now, self.awake, sum.memory, demand, &host_ceiling(facts));
            growing.push((Scope::Role(key.0, Arc::clone(&key.1)), sum, because));
        }
        self.groups.roles = roles;
        over.into_iter().for_each(|(about, because)| out.close(leak_key(about), because));
        growing.into_iter().for_each(|(scope, sum, because)| self.settle_group(&scope, &sum, because, facts, out));
    }

    fn take_sessions(&mut self, mut sums: BTreeMap<SessionId, Sum>, facts: &Facts<'_>, out: &mut Conclusions) {
        let now = facts.now;
        let demand = Demand { window: SESSION_WINDOW, ..usual_demand(facts) };
        for ((session, _), role) in &self.groups.roles {
            if role.group.about.is_some()
                && let Some(sum) = sums.get_mut(session)
            {
                sum.explained = true;
            }
        }
        let mut sessions = std::mem::take(&mut self.groups.sessions);
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
                let because = sessions.entry(session).or_default().take(
                    now,
                    self.awake,
                    sum.memory,
                    demand,
                    &host_ceiling(facts),
                );
                growing.push((Scope::Session(session), sum, because));
            }
        }
        self.groups.sessions = sessions;
        over.into_iter().for_each(|(about, because)| out.close(leak_key(about), because));
        growing.into_iter().for_each(|(scope, sum, because)| self.settle_group(&scope, &sum, because, facts, out));
    }

    /// Opens, brings up to date or closes the finding of a group.
    fn settle_group(
        &mut self,
        scope: &Scope,
        sum: &Sum,
        because: Option<&'static str>,
        facts: &Facts<'_>,
        out: &mut Conclusions,
    ) {
        let Some(group) = self.groups.get_mut(scope) else { return };
        let found = group.watch.as_ref().and_then(|watch| watch.found()).is_some();
        match (found && !sum.explained, sum.members.first()) {
            (true, Some(oldest)) => {
                let about = *group.about.get_or_insert(*oldest);
                // A role says it better than its session, and both may be about the same process.
                if let Scope::Role(session, _) = scope {
                    self.yield_group(&Scope::Session(*session), EXPLAINED, out);
                }
                self.report_group(scope, about, &sum.members, sum.memory, facts, out);
            }
            _ => self.yield_group(scope, because.unwrap_or(if sum.explained { EXPLAINED } else { "gone" }), out),
        }
    }

    /// A process leaks, which explains the growth of its role and session.
    pub(super) fn groups_yield(&mut self, session: SessionId, program: &Arc<str>, out: &mut Conclusions) {
        for scope in [Scope::Role(session, Arc::clone(program)), Scope::Session(session)] {
            self.yield_group(&scope, EXPLAINED, out);
        }
    }

    fn yield_group(&mut self, scope: &Scope, because: &'static str, out: &mut Conclusions) {
        if let Some(about) = self.groups.get_mut(scope).and_then(|group| group.about.take()) {
            out.close(leak_key(about), because);
        }
    }
}

/// Each worktree has its language servers: many of them are no leak.
fn counts_alone(process: &TrackedProcess) -> bool {
    process.kind == ProcessKind::LanguageServer
}
