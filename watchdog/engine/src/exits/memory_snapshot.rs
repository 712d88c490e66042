//! The sessions that held memory at one time.

use std::collections::BTreeMap;

use crate::Engine;
use crate::ownership::Ownership;
use crate::process::TrackedProcess;
use watchdog_api::{Holder, Large, MemoryHolders};
use watchdog_types::{Bytes, CgroupLimit, Pid, ProcessId, SessionId, Uid};

/// Holders and large processes listed.
const MAX_LISTED: usize = 5;
/// More than are listed, because those outside a cgroup are dropped later.
const MAX_LARGEST_READ: usize = 16;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MemorySnapshot {
    holdings: Vec<SessionHolding>,
    /// With the cgroup of the tightest limit.
    largest: Vec<(Large, Option<String>)>,
}

/// Memory of a session within one cgroup.
#[derive(Clone, Debug, PartialEq)]
struct SessionHolding {
    session: SessionId,
    profile: String,
    uid: Uid,
    cgroup: Option<String>,
    processes: u64,
    memory: Bytes,
    orphans: u64,
    orphaned: Bytes,
}

/// A victim whose last sample is lower than what it held in the end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SnapshotVictim {
    pub(super) process: Option<ProcessId>,
    pub(super) session: Option<SessionId>,
    /// In the snapshot.
    pub(super) sampled: Bytes,
    pub(super) peak: Bytes,
}

impl MemorySnapshot {
    pub(super) fn large_pids(&self) -> impl Iterator<Item = Pid> {
        self.largest.iter().map(|(large, _)| Pid(large.pid))
    }

    /// `inside` selects by the cgroup; `score` is the oom_score_adj of a process.
    pub(super) fn to_api(
        &self,
        inside: impl Fn(Option<&str>) -> bool,
        victim: SnapshotVictim,
        score: impl Fn(Pid) -> Option<i32>,
    ) -> MemoryHolders {
        let mut by_session: BTreeMap<SessionId, Holder> = BTreeMap::new();
        let (mut orphans, mut orphaned) = (0, Bytes(0));
        for holding in self.holdings.iter().filter(|holding| inside(holding.cgroup.as_deref())) {
            let holder = by_session.entry(holding.session).or_insert_with(|| Holder {
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
        if let Some(holder) = victim.session.and_then(|session| by_session.get_mut(&session)) {
            holder.memory_bytes += victim.peak.0.saturating_sub(victim.sampled.0);
        }
        let mut holders: Vec<Holder> = by_session.into_values().collect();
        holders.sort_by_key(|holder| (std::cmp::Reverse(holder.memory_bytes), holder.session));
        let sessions_bytes = holders.iter().map(|holder| holder.memory_bytes).sum();
        holders.truncate(MAX_LISTED);
        let largest = self.largest(inside, victim, score);
        MemoryHolders { holders, sessions_bytes, orphaned_bytes: orphaned.0, orphans, largest }
    }

    fn largest(
        &self,
        inside: impl Fn(Option<&str>) -> bool,
        victim: SnapshotVictim,
        score: impl Fn(Pid) -> Option<i32>,
    ) -> Vec<Large> {
        let memory = |large: &Large| match victim.process {
            Some(process) if process.pid.0 == large.pid => large.memory_bytes.max(victim.peak.0),
            _ => large.memory_bytes,
        };
        let mut largest: Vec<Large> = self
            .largest
            .iter()
            .filter(|(large, path)| inside(path.as_deref()) && large.memory_bytes > 0)
            .map(|(large, _)| Large {
                memory_bytes: memory(large),
                oom_score_adj: score(Pid(large.pid)).or(large.oom_score_adj),
                ..large.clone()
            })
            .collect();
        largest.sort_by_key(|large| (std::cmp::Reverse(large.memory_bytes), large.pid));
        largest.truncate(MAX_LISTED);
        largest
    }
}

impl Engine {
    /// Reads the whole table.
    pub(super) fn memory_snapshot(&self) -> MemorySnapshot {
        let mut holdings: BTreeMap<(SessionId, Option<String>), SessionHolding> = BTreeMap::new();
        let mut largest: Vec<(&TrackedProcess, Option<String>)> = Vec::new();
        for process in self.table.living() {
            let Some(session) = self.sessions.get(process.session) else { continue };
            let cgroup = self.limit_of(process).map(|limit| limit.path.clone());
            let orphan = matches!(self.ownership(process), Ownership::Orphan { .. });
            let (cost, orphans) = (process.cost(), u64::from(orphan));
            let holding = holdings.entry((session.id, cgroup.clone())).or_insert_with(|| SessionHolding {
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
        let largest =
            largest.into_iter().take(MAX_LARGEST_READ).map(|(process, cgroup)| (large(process), cgroup)).collect();
        MemorySnapshot { holdings: holdings.into_values().collect(), largest }
    }

    /// The tightest limit above a process, or above its nearest ancestor with known limits.
    pub(super) fn limit_of<'a>(&'a self, process: &'a TrackedProcess) -> Option<&'a CgroupLimit> {
        let known = |process: &&TrackedProcess| process.limits.is_some();
        let looked_at = std::iter::once(process).chain(self.table.above(process.id)).find(known)?;
        looked_at.limits.as_deref()?.cgroup.as_ref()
    }
}

fn large(process: &TrackedProcess) -> Large {
    Large {
        pid: process.id.pid.0,
        start_time: process.id.start_time.0,
        name: process.label(),
        uid: process.uid.0,
        session: process.session.0,
        memory_bytes: process.cost().0,
        oom_score_adj: process.oom_score_adj,
    }
}
