//! The OOM killer's choices: where memory ran out, and who held it at that moment.
//!
//! The kernel's event names a victim and whose allocation failed. That neither of them need be the cause is the point of
//! keeping what every session held. Where memory ran out is asked of the counters of the cgroups above the victim; where
//! these are gone already (a scope goes with its last process), what is known of limits and of the host has to do.

use std::collections::BTreeMap;

use crate::api::{Certainty, Holder, Large, OomKill, OomScope};
use crate::engine::effect::Effect;
use crate::engine::id::{BootTime, Bytes, Pid, ProcessId, SessionId, Ticks, Uid};
use crate::engine::input::{CgroupLimit, HostMemory, Oom, OomCgroup, OomSeen};
use crate::engine::process::Process;
use crate::engine::standing::Standing;
use crate::engine::{Engine, Step};

use super::dead::Dead;

/// How many choices are remembered.
const REMEMBERED: usize = 128;
/// How many holders and large processes are told.
const TOLD: usize = 5;
/// How many large processes are looked at, so that five are left when those outside of a cgroup are taken away.
const LARGEST: usize = 16;

/// One choice.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) number: u64,
    pub(super) at: BootTime,
    pub(super) pid: Pid,
    /// The victim, where it belongs to a session.
    pub(super) process: Option<ProcessId>,
    trigger: Pid,
    trigger_comm: Option<String>,
    host: HostMemory,
    /// The tightest limit above the victim.
    limit: Option<CgroupLimit>,
    /// What the victim held when it was last looked at.
    victim: (Option<SessionId>, Bytes),
    holdings: Vec<Holding>,
    largest: Vec<(Large, Option<String>)>,
    seen: Option<OomSeen>,
}

/// What a session held, of one cgroup.
#[derive(Clone, Debug)]
struct Holding {
    session: SessionId,
    profile: String,
    uid: Uid,
    cgroup: Option<String>,
    processes: u64,
    memory: Bytes,
    orphans: u64,
    orphaned: Bytes,
}

impl Step<'_> {
    /// The OOM killer chose a victim: this process, where that can be told.
    pub(in crate::engine) fn note_oom(&mut self, oom: &Oom, process: Option<ProcessId>) {
        let number = self.engine.oom_kills;
        let choice = self.engine.choice(number, oom, process);
        let others = choice.largest.iter().map(|(large, _)| Pid(large.pid)).collect();
        let cgroup = choice.limit.as_ref().map(|limit| limit.path.clone());
        if choice.process.is_none() {
            let id = oom.process.unwrap_or(ProcessId { pid: oom.pid, start_time: Ticks(0) });
            let mut dead = Dead::stranger(id, oom.uid, oom.comm.clone(), oom.at, self.now, choice.host);
            dead.oom = Some(number);
            self.engine.deaths.bury(dead);
        }
        let choices = &mut self.engine.deaths.choices;
        if choices.len() == REMEMBERED {
            choices.pop_front();
        }
        choices.push_back(choice);
        self.effect(Effect::LookIntoOom { number, victim: oom.pid, cgroup, others });
    }

    /// The answer to [`Effect::LookIntoOom`].
    pub(in crate::engine) fn oom_seen(&mut self, seen: OomSeen) {
        if let Some(comm) = seen.comm.clone() {
            self.engine.deaths.name_stranger(seen.number, &comm);
        }
        if let Some(choice) = self.engine.deaths.choices.iter_mut().find(|choice| choice.number == seen.number) {
            choice.seen = Some(seen);
        }
    }
}

impl Engine {
    fn choice(&self, number: u64, oom: &Oom, process: Option<ProcessId>) -> Choice {
        let victim = process.and_then(|process| self.table.get(process));
        let mut holdings: BTreeMap<(SessionId, Option<String>), Holding> = BTreeMap::new();
        let mut largest: Vec<(&Process, Option<String>)> = Vec::new();
        for process in self.table.living() {
            let Some(session) = self.sessions.get(process.session) else { continue };
            let cgroup = self.limit_of(process).map(|limit| limit.path.clone());
            let orphan = matches!(self.standing(process), Standing::Orphan { .. });
            let (cost, orphans) = (process.cost(), u64::from(orphan));
            let holding = holdings.entry((session.id, cgroup.clone())).or_insert_with(|| Holding {
                session: session.id,
                profile: session.profile.clone(),
                uid: session.uid,
                cgroup: cgroup.clone(),
                processes: 0,
                memory: Bytes(0),
                orphans: 0,
                orphaned: Bytes(0),
            });
            holding.processes += 1;
            holding.memory += cost;
            holding.orphans += orphans;
            holding.orphaned += if orphan { cost } else { Bytes(0) };
            largest.push((process, cgroup));
        }
        largest.sort_by_key(|(process, _)| (std::cmp::Reverse(process.cost()), process.id));
        let largest = largest.into_iter().take(LARGEST).map(|(process, cgroup)| (large(process), cgroup)).collect();
        let trigger = self.table.by_pid(oom.trigger);
        Choice {
            number,
            at: oom.at,
            pid: oom.pid,
            process: victim.map(|victim| victim.id),
            trigger: oom.trigger,
            trigger_comm: trigger.map(|trigger| trigger.comm.clone()),
            host: self.close_watch.host,
            limit: victim.and_then(|victim| self.limit_of(victim)).cloned(),
            victim: (victim.map(|victim| victim.session), victim.map(Process::cost).unwrap_or_default()),
            holdings: holdings.into_values().collect(),
            largest,
            seen: None,
        }
    }

    /// The tightest limit above a process; of one that nobody has looked at yet, that of whoever forked it.
    fn limit_of<'a>(&'a self, process: &'a Process) -> Option<&'a CgroupLimit> {
        let known = |process: &&Process| process.limits.is_some();
        let looked_at = std::iter::once(process).chain(self.table.above(process.id)).find(known)?;
        looked_at.limits.as_deref()?.cgroup.as_ref()
    }
}

fn large(process: &Process) -> Large {
    Large {
        pid: process.id.pid.0,
        start_time: process.id.start_time.0,
        name: process.label(),
        uid: process.uid.0,
        session: process.session.0,
        memory_bytes: process.cost().0,
        oom_score_adj: None,
    }
}

impl Choice {
    /// What is told of it; `peak` is the victim's, which its last sample may be far behind.
    pub(super) fn told(&self, peak: Bytes) -> OomKill {
        let (scope, scope_is, cgroup) = self.scope();
        let inside = |path: &Option<String>| match (&cgroup, path) {
            (None, _) => true,
            (Some((cgroup, _)), Some(path)) => {
                path.strip_prefix(cgroup.as_str()).is_some_and(|below| below.is_empty() || below.starts_with('/'))
            }
            (Some(_), None) => false,
        };
        let (victims_session, victims_memory) = self.victim;
        let mut holders: BTreeMap<SessionId, Holder> = BTreeMap::new();
        let (mut orphans, mut orphaned) = (0, Bytes(0));
        for holding in self.holdings.iter().filter(|holding| inside(&holding.cgroup)) {
            let holder = holders.entry(holding.session).or_insert_with(|| Holder {
                session: Some(holding.session.0),
                profile: Some(holding.profile.clone()),
                uid: holding.uid.0,
                processes: 0,
                orphans: 0,
                memory_bytes: 0,
            });
            holder.processes += holding.processes;
            holder.orphans += holding.orphans;
            holder.memory_bytes += holding.memory.0;
            orphans += holding.orphans;
            orphaned += holding.orphaned;
        }
        let unseen = peak.0.saturating_sub(victims_memory.0);
        if let Some(holder) = victims_session.and_then(|session| holders.get_mut(&session)) {
            holder.memory_bytes += unseen;
        }
        let mut holders: Vec<Holder> = holders.into_values().collect();
        holders.sort_by_key(|holder| (std::cmp::Reverse(holder.memory_bytes), holder.session));
        let sessions_bytes = holders.iter().map(|holder| holder.memory_bytes).sum();
        holders.truncate(TOLD);
        OomKill {
            scope,
            scope_is,
            cgroup_max_bytes: cgroup.as_ref().and_then(|(_, max)| *max).map(|max| max.0),
            cgroup: cgroup.as_ref().map(|(path, _)| path.clone()),
            trigger_pid: self.trigger.0,
            trigger_comm: self.trigger_comm.clone(),
            holders,
            sessions_bytes,
            orphaned_bytes: orphaned.0,
            orphans,
            largest: self.largest(inside, peak),
            oom_score_adj: self.score(self.pid),
        }
    }

    fn largest(&self, inside: impl Fn(&Option<String>) -> bool, peak: Bytes) -> Vec<Large> {
        let own_peak = |large: &Large| match self.process {
            Some(victim) if victim.pid.0 == large.pid => large.memory_bytes.max(peak.0),
            _ => large.memory_bytes,
        };
        let mut largest: Vec<Large> = self
            .largest
            .iter()
            .filter(|(large, path)| inside(path) && large.memory_bytes > 0)
            .map(|(large, _)| Large {
                memory_bytes: own_peak(large),
                oom_score_adj: self.score(Pid(large.pid)),
                ..large.clone()
            })
            .collect();
        largest.sort_by_key(|large| (std::cmp::Reverse(large.memory_bytes), large.pid));
        largest.truncate(TOLD);
        largest
    }

    fn score(&self, pid: Pid) -> Option<i32> {
        let scores = &self.seen.as_ref()?.scores;
        scores.iter().find(|(of, _)| *of == pid).map(|(_, score)| *score)
    }

    /// Where memory ran out, how that is known, and of a cgroup its path and limit.
    fn scope(&self) -> (OomScope, Certainty, Option<(String, Option<Bytes>)>) {
        let host = &self.host;
        let plenty = host.total.0 > 0 && !host.is_short();
        let Some(seen) = &self.seen else { return self.likely(plenty, &[]) };
        let named = |cgroup: &OomCgroup| Some((cgroup.path.clone(), cgroup.max));
        if let Some(hit) = seen.cgroups.iter().find(|cgroup| cgroup.hit == Some(true)) {
            return (OomScope::Cgroup, Certainty::Told, named(hit));
        }
        // One that nobody had counted before, and that has run out at some time.
        match seen.cgroups.iter().find(|cgroup| cgroup.hit.is_none()) {
            Some(may_be) if plenty => (OomScope::Cgroup, Certainty::Inferred, named(may_be)),
            None if seen.complete => (OomScope::Global, Certainty::Told, None),
            _ => self.likely(plenty, &seen.cgroups),
        }
    }

    /// Where memory ran out, when the counters do not tell: in the cgroup that is gone, or on a host that is short of it.
    fn likely(&self, plenty: bool, there: &[OomCgroup]) -> (OomScope, Certainty, Option<(String, Option<Bytes>)>) {
        let gone = self.limit.as_ref().filter(|limit| there.iter().all(|cgroup| cgroup.path != limit.path));
        let (scope, cgroup) = match gone {
            Some(limit) if plenty => (OomScope::Cgroup, Some((limit.path.clone(), Some(limit.max)))),
            _ if !plenty && self.host.total.0 > 0 => (OomScope::Global, None),
            _ => (OomScope::Unknown, None),
        };
        (scope, Certainty::Inferred, cgroup)
    }
}
