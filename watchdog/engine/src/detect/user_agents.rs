//! The agents of each user together: each may be in order, and all of them too much. A person sees them in `status`; idle
//! ones that nothing is attached to are a finding once they weigh.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::idle::IdleTracker;
use super::memory_by_day::HourlyMinima;
use super::{Conclusions, Detector, Facts, protected};
use crate::effect::{Effect, ScanRequest};
use crate::finding::{Detection, Key, Proposal};
use crate::ownership::Ownership;
use crate::process::TrackedProcess;
use watchdog_api::evidence::{UnattendedAgent, UnattendedEvidence};
use watchdog_api::{Evidence, FindingKind, ProcessKind, Severity, SharedAncestor, UserAgents};
use watchdog_types::{
    Activity, AgentTerminal, Ancestor, BootTime, Bytes, HostMemory, Pid, ProcessId, SessionId, Surroundings, Uid,
};

const LOOK_EVERY: Duration = Duration::from_secs(60);
/// New agents are looked at after this time.
const LOOK_SOON: Duration = Duration::from_secs(2);
/// Agents of one look.
const AGENTS: usize = 256;
const DAY: Duration = Duration::from_secs(86_400);
/// This many idle and detached agents with [`HEAVY_PERCENT`] of the host's memory are a finding; it closes below half of that.
const MANY: usize = 5;
const HEAVY_PERCENT: u64 = 10;
/// A trend that meets the host within this time is a warning.
const SOON_FULL: u64 = 7 * 86_400;
/// How many agents the evidence lists.
const LISTED: usize = 20;
/// What starts everything, and ends with the host or its login only.
const SERVICE_MANAGERS: &[&str] =
    &["containerd-shim", "containerd-shim-runc-v2", "init", "sshd", "sshd-session", "systemd"];

#[derive(Debug, Default)]
pub(crate) struct AgentsByUser {
    asked: Option<BootTime>,
    surroundings: BTreeMap<ProcessId, Surroundings>,
    rest: IdleTracker,
    members: BTreeSet<ProcessId>,
    memory: BTreeMap<Uid, HourlyMinima>,
    /// Findings, by user.
    open: BTreeMap<Uid, Key>,
}

/// An agent with its session.
struct AgentOf<'a> {
    agent: &'a TrackedProcess,
    terminal: AgentTerminal,
    idle: bool,
    memory: Bytes,
    swap: Bytes,
}

impl Detector for AgentsByUser {
    fn activity_read(&mut self, activities: &[Activity], facts: &Facts<'_>) {
        self.rest.read(activities, facts, |process| self.members.contains(&process.id));
    }

    fn surroundings_read(&mut self, seen: &[Surroundings], facts: &Facts<'_>, out: &mut Conclusions) {
        self.surroundings.retain(|agent, _| facts.table.alive(*agent).is_some());
        self.surroundings.extend(seen.iter().map(|seen| (seen.agent, seen.clone())));
        self.review(facts, out);
    }

    fn tick(&mut self, facts: &Facts<'_>, out: &mut Conclusions) {
        let due = self.asked.is_none_or(|asked| facts.now.since(asked) >= LOOK_SOON);
        if !due {
            return;
        }
        let agents: Vec<ProcessId> = facts.living_agents().map(|agent| agent.id).take(AGENTS).collect();
        let rested = self.asked.is_none_or(|asked| facts.now.since(asked) >= LOOK_EVERY);
        let is_new = |agent: &ProcessId| !self.surroundings.contains_key(agent) && is_settled(*agent, facts.now);
        if agents.is_empty() {
            self.close_all(out);
        } else if rested || agents.iter().any(is_new) {
            self.asked = Some(facts.now);
            if rested {
                self.look_at_memory(facts);
                let sessions = of_several(facts.living_agents());
                let of = |process: &&TrackedProcess| sessions.contains(&process.session);
                self.members = facts.table.living().filter(of).map(|process| process.id).collect();
                self.rest.ask(self.members.clone(), out);
            }
            out.ask(Effect::Scan(ScanRequest::Surroundings(agents)));
        }
    }
}

/// The sessions of users with several agents: only these are watched for rest.
fn of_several<'a>(agents: impl Iterator<Item = &'a TrackedProcess>) -> BTreeSet<SessionId> {
    let mut by_user: BTreeMap<Uid, Vec<SessionId>> = BTreeMap::new();
    agents.for_each(|agent| by_user.entry(agent.uid).or_default().push(agent.session));
    by_user.into_values().filter(|sessions| sessions.len() > 1).flatten().collect()
}

/// A new agent has been handed to its terminal by then.
fn is_settled(agent: ProcessId, now: BootTime) -> bool {
    now.since(BootTime::from(agent.start_time)) >= LOOK_SOON
}

impl<'a> Facts<'a> {
    /// The agents of running sessions: at their roots, or behind their launchers. An agent that another one left behind is
    /// an orphan.
    pub(super) fn living_agents(&self) -> impl Iterator<Item = &'a TrackedProcess> {
        let facts = *self;
        let living = facts.sessions.iter().filter(|session| session.ended.is_none());
        let agents = living.filter_map(move |session| facts.agent_of(session.id));
        agents.filter(move |agent| {
            agent.kind == ProcessKind::Agent && !matches!(facts.ownership(agent), Ownership::Orphan { .. })
        })
    }
}

impl AgentsByUser {
    /// As last read; none of an agent with a terminal, or of another process.
    pub(super) fn above_unattended(&self, agent: ProcessId) -> Vec<Pid> {
        let seen = self.surroundings.get(&agent).filter(|seen| seen.terminal == AgentTerminal::Absent);
        seen.into_iter().flat_map(|seen| &seen.ancestors).map(|ancestor| ancestor.process.pid).collect()
    }

    /// The summary of each user whose agents `sees` accepts.
    pub(crate) fn summaries(
        &self,
        facts: &Facts<'_>,
        sees: impl Fn(Uid) -> bool,
        name: impl Fn(Uid) -> String,
    ) -> Vec<UserAgents> {
        let by_user = self.by_user(facts);
        let spared = protected::helpers_by_user(facts);
        by_user
            .iter()
            .filter(|(uid, _)| sees(**uid))
            .map(|(uid, of)| UserAgents {
                user: name(*uid),
                protected_helpers: spared.get(uid).copied().unwrap_or_default(),
                ..self.summary(*uid, of, facts)
            })
            .collect()
    }

    fn by_user<'a>(&self, facts: &Facts<'a>) -> BTreeMap<Uid, Vec<AgentOf<'a>>> {
        let idle = facts.config.stale.idle;
        let mut sums: BTreeMap<SessionId, (Bytes, Bytes, bool)> = BTreeMap::new();
        for process in facts.table.living() {
            let (memory, swap, rests) = sums.entry(process.session).or_insert((Bytes(0), Bytes(0), true));
            if !facts.uncharged.contains(&process.id) {
                *memory += process.cost();
                *swap += process.memory.swap;
            }
            let at_rest = |quiet: super::idle::IdleSince| quiet.seen.at.since(quiet.since) >= idle;
            *rests = *rests && self.rest.get(process.id).is_some_and(at_rest);
        }
        let mut by_user: BTreeMap<Uid, Vec<AgentOf<'a>>> = BTreeMap::new();
        for agent in facts.living_agents() {
            let (memory, swap, idle) = sums.get(&agent.session).copied().unwrap_or_default();
            let seen = self.surroundings.get(&agent.id);
            let terminal = seen.map_or(AgentTerminal::Unknown, |seen| seen.terminal);
            by_user.entry(agent.uid).or_default().push(AgentOf { agent, terminal, idle, memory, swap });
        }
        let age = |of: &AgentOf<'_>| (of.agent.id.start_time, of.agent.id.pid);
        by_user.values_mut().for_each(|agents| agents.sort_by_key(age));
        by_user
    }

    /// Without the user's name and protected helpers.
    fn summary(&self, uid: Uid, agents: &[AgentOf<'_>], facts: &Facts<'_>) -> UserAgents {
        let number = |is: &dyn Fn(&AgentOf<'_>) -> bool| agents.iter().filter(|of| is(of)).count() as u64;
        let at = |terminal: AgentTerminal| number(&|of| of.terminal == terminal);
        let age = |of: &AgentOf<'_>| facts.now.since(BootTime::from(of.agent.id.start_time));
        let (trend, full) = self.trend(uid, facts.host);
        UserAgents {
            uid: uid.0,
            agents: agents.len() as u64,
            attached: at(AgentTerminal::Attached),
            detached: at(AgentTerminal::Detached),
            without_terminal: at(AgentTerminal::Absent),
            idle: (agents.len() > 1).then(|| number(&|of| of.idle)),
            started_last_day: number(&|of| age(of) < DAY),
            protected: number(&|of| of.agent.is_protected()),
            oldest_age_seconds: agents.first().map_or(0, |of| age(of).as_secs()),
            oldest_pid: agents.first().map_or(0, |of| of.agent.id.pid.0),
            memory_bytes: agents.iter().map(|of| of.memory).sum::<Bytes>().0,
            swap_bytes: agents.iter().map(|of| of.swap).sum::<Bytes>().0,
            trend_bytes_per_day: trend,
            seconds_to_host_limit: full,
            depends_on: self.depends_on(agents),
            ..UserAgents::default()
        }
    }

    /// Growth per day, and when it meets the host.
    fn trend(&self, uid: Uid, host: &HostMemory) -> (Option<i64>, Option<u64>) {
        let trend = self.memory.get(&uid).and_then(HourlyMinima::bytes_per_day);
        let left = host.available + host.swap_free;
        let full = trend.filter(|trend| *trend >= 1.0 && host.total.0 > 0);
        #[expect(clippy::cast_precision_loss, reason = "no host has 2^52 bytes")]
        let full = full.map(|trend| left.0 as f64 / trend * DAY.as_secs_f64());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, and is positive")]
        (trend.map(|trend| trend as i64), full.map(|seconds| seconds as u64))
    }

    /// The deepest process above the most agents, if these are several, and more than half.
    fn depends_on(&self, agents: &[AgentOf<'_>]) -> Option<SharedAncestor> {
        let mut above: BTreeMap<ProcessId, (u64, usize, &Ancestor)> = BTreeMap::new();
        let surroundings = agents.iter().filter_map(|of| self.surroundings.get(&of.agent.id));
        for seen in surroundings {
            let height = seen.ancestors.len();
            for (at, ancestor) in seen.ancestors.iter().enumerate() {
                let entry = above.entry(ancestor.process).or_insert((0, height - at, ancestor));
                entry.0 += 1;
            }
        }
        let shared = |(count, _, ancestor): &(u64, usize, &Ancestor)| {
            *count > 1 && *count * 2 > agents.len() as u64 && !SERVICE_MANAGERS.contains(&ancestor.name.as_str())
        };
        let (agents, _, ancestor) =
            above.into_values().filter(shared).max_by_key(|(count, depth, _)| (*count, *depth))?;
        Some(SharedAncestor {
            agents,
            name: ancestor.name.clone(),
            oom_score_adj: ancestor.oom_score_adj,
            pid: ancestor.process.pid.0,
            start_time: ancestor.process.start_time.0,
        })
    }

    fn look_at_memory(&mut self, facts: &Facts<'_>) {
        let sums: BTreeMap<Uid, Bytes> =
            self.by_user(facts).iter().map(|(uid, of)| (*uid, of.iter().map(|of| of.memory).sum())).collect();
        self.memory.retain(|uid, _| sums.contains_key(uid));
        for (uid, sum) in sums {
            self.memory.entry(uid).or_default().add(facts.now, sum);
        }
    }

    fn close_all(&mut self, out: &mut Conclusions) {
        std::mem::take(&mut self.open).into_values().for_each(|key| out.close(key, "gone"));
        self.members.clear();
        self.memory.clear();
        self.surroundings.clear();
    }

    fn review(&mut self, facts: &Facts<'_>, out: &mut Conclusions) {
        let by_user = self.by_user(facts);
        self.open.retain(|uid, key| {
            let stays = by_user.contains_key(uid);
            if !stays {
                out.close(*key, "gone");
            }
            stays
        });
        for (uid, agents) in by_user {
            let unattended = |of: &&AgentOf<'_>| of.idle && of.terminal == AgentTerminal::Detached && !of.agent.adopted;
            let left: Vec<&AgentOf<'_>> = agents.iter().filter(unattended).collect();
            let memory: Bytes = left.iter().map(|of| of.memory).sum();
            let (many, percent) =
                if self.open.contains_key(&uid) { (MANY / 2, HEAVY_PERCENT / 2) } else { (MANY, HEAVY_PERCENT) };
            let total = facts.host.total;
            let weighs = left.len() >= many && total.0 > 0 && memory >= total.percent(percent);
            match left.first().filter(|_| weighs) {
                Some(oldest) => {
                    let key = Key { kind: FindingKind::Unattended, about: oldest.agent.id };
                    let key = *self.open.entry(uid).or_insert(key);
                    let seen = self.observation(key, uid, &agents, &left, facts);
                    out.report(seen);
                }
                None => {
                    if let Some(key) = self.open.remove(&uid) {
                        out.close(key, "fewer of them");
                    }
                }
            }
        }
    }

    fn observation(
        &self,
        key: Key,
        uid: Uid,
        agents: &[AgentOf<'_>],
        left: &[&AgentOf<'_>],
        facts: &Facts<'_>,
    ) -> Detection {
        let (trend, full) = self.trend(uid, facts.host);
        let age = |of: &AgentOf<'_>| facts.now.since(BootTime::from(of.agent.id.start_time)).as_secs();
        let listed = left.iter().take(LISTED).map(|of| UnattendedAgent {
            age_seconds: age(of),
            memory_bytes: of.memory,
            name: of.agent.label(),
            pid: of.agent.id.pid,
            session: of.agent.session,
            start_time: of.agent.id.start_time,
        });
        let evidence = Evidence::Unattended(Box::new(UnattendedEvidence {
            agents: agents.len() as u64,
            count: left.len(),
            depends_on: self.depends_on(agents),
            memory_bytes: left.iter().map(|of| of.memory).sum(),
            oldest_age_seconds: left.first().map_or(0, |of| age(of)),
            processes: listed.collect(),
            seconds_to_host_limit: full,
            swap_bytes: left.iter().map(|of| of.swap).sum(),
            trend_bytes_per_day: trend,
        }));
        let soon = full.is_some_and(|seconds| seconds < SOON_FULL);
        Detection {
            key,
            severity: if soon { Severity::Warning } else { Severity::Info },
            session: None,
            subject: left.first().map_or(key.about, |of| of.agent.id),
            members: left.iter().map(|of| of.agent.id).collect(),
            uid,
            cause: facts.now,
            summary: evidence.to_string(),
            evidence,
            proposal: Proposal::Report,
        }
    }
}
