//! Tasks near a limit: at pids.max of a cgroup, RLIMIT_NPROC or threads-max, forks and new threads fail in every session
//! that the limit holds for, and nothing else says why.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::{Conclusions, Detector, Facts};
use crate::effect::{Effect, ScanRequest};
use crate::finding::{Detection, Key, Proposal};
use crate::process::TrackedProcess;
use watchdog_api::evidence::{TaskHolder, TasksEvidence, UnreapedChildren};
use watchdog_api::{Evidence, FindingKind, Severity};
use watchdog_types::{BootTime, ProcessId, SessionId, TaskLimit, TaskLimitScope, TaskReading};

/// A look costs 60 µs for each agent.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// A finding closes below this share of its limit, in per cent.
const CLOSES_BELOW: u64 = 70;
const CRITICAL_PERCENT: u64 = 95;
/// Agents, and processes whose threads are counted, of one look.
const AGENTS: usize = 256;
const MEMBERS: usize = 8_192;
/// How many sessions and parents the evidence lists.
const LISTED: usize = 10;

/// Findings by the limit that they are about.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    asked: Option<BootTime>,
    open: BTreeMap<TaskLimitScope, (Key, BootTime)>,
}

impl Detector for Tasks {
    fn tick(&mut self, facts: &Facts<'_>, out: &mut Conclusions) {
        let wait = if self.open.is_empty() { LOOK_EVERY } else { LOOK_AGAIN };
        if self.asked.is_some_and(|asked| facts.now.since(asked) < wait) {
            return;
        }
        let mut agents: Vec<ProcessId> = Vec::new();
        let mut members = Vec::new();
        for process in facts.table.living() {
            if process.is_agent() && agents.len() < AGENTS {
                agents.push(process.id);
            }
            if members.len() < MEMBERS {
                members.push(process.id);
            }
        }
        if agents.is_empty() {
            self.open.values().for_each(|(key, _)| out.close(*key, "gone"));
            self.open.clear();
            return;
        }
        self.asked = Some(facts.now);
        out.ask(Effect::Scan(ScanRequest::Tasks { agents, members }));
    }

    fn tasks_read(&mut self, reading: &TaskReading, facts: &Facts<'_>, out: &mut Conclusions) {
        let over: BTreeSet<&TaskLimitScope> = reading
            .limits
            .iter()
            .filter(|limit| limit.is_near() || limit.percent() >= CLOSES_BELOW && self.open.contains_key(&limit.of))
            .map(|limit| &limit.of)
            .collect();
        self.open.retain(|of, (key, _)| {
            let stays = over.contains(of) && facts.table.alive(key.about).is_some();
            if !stays {
                out.close(*key, "below its limit");
            }
            stays
        });
        let threads: HashMap<ProcessId, u64> = reading.threads.iter().copied().collect();
        // The nearest first: an agent is the subject of one finding.
        let mut near: Vec<&TaskLimit> = reading.limits.iter().filter(|limit| over.contains(&limit.of)).collect();
        near.sort_by_key(|limit| Reverse(limit.percent()));
        for limit in near {
            let known = self.open.get(&limit.of).copied();
            let taken = |id: &ProcessId| self.open.values().any(|(key, _)| key.about == *id);
            let free = || limit.agents.iter().copied().find(|id| facts.table.alive(*id).is_some() && !taken(id));
            let key = known.map(|(key, _)| key).or_else(|| Some(Key { kind: FindingKind::Tasks, about: free()? }));
            let Some(key) = key else { continue };
            let (_, since) = *self.open.entry(limit.of.clone()).or_insert((key, facts.now));
            if let Some(seen) = observation(key, since, limit, &threads, facts) {
                out.report(seen);
            }
        }
    }
}

fn observation(
    key: Key,
    since: BootTime,
    limit: &TaskLimit,
    threads: &HashMap<ProcessId, u64>,
    facts: &Facts<'_>,
) -> Option<Detection> {
    let agent = facts.table.alive(key.about)?;
    let of = |id: &ProcessId| facts.table.get(*id).map(|agent| agent.session);
    let sessions: BTreeSet<SessionId> = limit.agents.iter().filter_map(of).collect();
    let evidence = Evidence::Tasks(Box::new(TasksEvidence {
        holders: holders(&sessions, threads, facts),
        limit_cgroup: match &limit.of {
            TaskLimitScope::Cgroup(path) => Some(path.clone()),
            TaskLimitScope::User(_) | TaskLimitScope::Host => None,
        },
        limit_uid: match limit.of {
            TaskLimitScope::User(uid) => Some(uid),
            TaskLimitScope::Cgroup(_) | TaskLimitScope::Host => None,
        },
        tasks: limit.used,
        tasks_limit: limit.max,
        unreaped_by: unreaped(&sessions, facts),
    }));
    Some(Detection {
        key,
        severity: if limit.percent() >= CRITICAL_PERCENT { Severity::Critical } else { Severity::Warning },
        session: Some(agent.session),
        subject: agent.id,
        members: Vec::new(),
        uid: agent.uid,
        cause: since,
        summary: evidence.to_string(),
        evidence,
        proposal: Proposal::Report,
    })
}

/// The sessions that hold most tasks.
fn holders(sessions: &BTreeSet<SessionId>, threads: &HashMap<ProcessId, u64>, facts: &Facts<'_>) -> Vec<TaskHolder> {
    let mut holders: BTreeMap<SessionId, TaskHolder> = BTreeMap::new();
    for process in facts.table.iter().filter(|process| sessions.contains(&process.session)) {
        let Some(session) = facts.sessions.get(process.session) else { continue };
        let holder = holders.entry(session.id).or_insert_with(|| TaskHolder {
            processes: 0,
            profile: session.profile.clone(),
            session: session.id.0,
            tasks: 0,
            zombies: 0,
        });
        if process.alive() {
            holder.processes += 1;
            holder.tasks += threads.get(&process.id).copied().unwrap_or(1);
        } else if process.zombie() {
            holder.zombies += 1;
            holder.tasks += 1;
        }
    }
    let mut holders: Vec<TaskHolder> = holders.into_values().collect();
    holders.sort_by_key(|holder| (Reverse(holder.tasks), holder.session));
    holders.truncate(LISTED);
    holders
}

/// The processes that have most zombies.
fn unreaped(sessions: &BTreeSet<SessionId>, facts: &Facts<'_>) -> Vec<UnreapedChildren> {
    let mut zombies: BTreeMap<ProcessId, u64> = BTreeMap::new();
    let of = |process: &&TrackedProcess| process.zombie() && sessions.contains(&process.session);
    for parent in facts.table.iter().filter(of).filter_map(|zombie| zombie.forked_by) {
        *zombies.entry(parent).or_default() += 1;
    }
    let named = zombies.into_iter().filter_map(|(parent, zombies)| {
        let parent = facts.table.alive(parent)?;
        Some(UnreapedChildren { name: parent.label(), pid: parent.id.pid, zombies })
    });
    let mut named: Vec<UnreapedChildren> = named.collect();
    named.sort_by_key(|parent| (Reverse(parent.zombies), parent.pid));
    named.truncate(LISTED);
    named
}
