//! A choice of the OOM killer, and where memory ran out.

use super::memory_snapshot::{MemorySnapshot, SnapshotVictim};
use watchdog_api::{Certainty, OomKill, OomScope};
use watchdog_types::{BootTime, Bytes, CgroupLimit, HostMemory, OomCgroup, OomSeen, Pid, ProcessId, SessionId};

/// A host with this share of its memory available, in per cent, did not run out of it.
const AMPLE_PERCENT: u64 = 25;

#[derive(Clone, Debug)]
pub(super) struct OomChoice {
    pub(super) number: u64,
    pub(super) at: BootTime,
    pub(super) pid: Pid,
    /// The victim if it is in a session.
    pub(super) process: Option<ProcessId>,
    pub(super) trigger: Pid,
    pub(super) trigger_comm: Option<String>,
    pub(super) host: HostMemory,
    /// The tightest limit above the victim.
    pub(super) limit: Option<CgroupLimit>,
    /// The victim's session, and its last sample.
    pub(super) victim: (Option<SessionId>, Bytes),
    pub(super) memory: MemorySnapshot,
    pub(super) seen: Option<OomSeen>,
}

impl OomChoice {
    /// `peak` is the victim's: its last sample may be far lower.
    pub(super) fn to_api(&self, peak: Bytes) -> OomKill {
        let (scope, scope_is, cgroup) = self.scope(peak);
        let inside = |path: Option<&str>| match (&cgroup, path) {
            (None, _) => true,
            (Some((cgroup, _)), Some(path)) => {
                path.strip_prefix(cgroup.as_str()).is_some_and(|below| below.is_empty() || below.starts_with('/'))
            }
            (Some(_), None) => false,
        };
        let (session, sampled) = self.victim;
        let victim = SnapshotVictim { process: self.process, session, sampled, peak };
        OomKill {
            scope,
            scope_is,
            cgroup_max_bytes: cgroup.as_ref().and_then(|(_, max)| *max).map(|max| max.0),
            cgroup: cgroup.as_ref().map(|(path, _)| path.clone()),
            trigger_pid: self.trigger.0,
            trigger_comm: self.trigger_comm.clone(),
            memory: self.memory.to_api(inside, victim, |pid| self.score(pid)),
            oom_score_adj: self.score(self.pid),
        }
    }

    fn score(&self, pid: Pid) -> Option<i32> {
        let scores = &self.seen.as_ref()?.scores;
        scores.iter().find(|(of, _)| *of == pid).map(|(_, score)| *score)
    }

    /// Where memory ran out, how certain that is, and the cgroup's path and limit.
    fn scope(&self, peak: Bytes) -> (OomScope, Certainty, Option<(String, Option<Bytes>)>) {
        let host = &self.host;
        let plenty = host.total.0 > 0 && !host.is_short();
        let Some(seen) = &self.seen else { return self.likely(plenty, peak, &[]) };
        let all_read = seen.complete && !seen.cgroups.is_empty();
        let named = |cgroup: &OomCgroup| Some((cgroup.path.clone(), cgroup.max));
        if let Some(hit) = seen.cgroups.iter().find(|cgroup| cgroup.hit == Some(true)) {
            return (OomScope::Cgroup, Certainty::Reported, named(hit));
        }
        // A cgroup without an earlier count that has run out of memory at some time.
        match seen.cgroups.iter().find(|cgroup| cgroup.hit.is_none()) {
            Some(may_be) if plenty => (OomScope::Cgroup, Certainty::Inferred, named(may_be)),
            None if all_read || (seen.complete && !plenty) => (OomScope::Global, Certainty::Reported, None),
            _ => self.likely(plenty, peak, &seen.cgroups),
        }
    }

    /// Without counters: a cgroup that was removed, a host that is short of memory, or an unknown limit (of a version 1
    /// cgroup) on a host that the victim cannot have filled since the last reading.
    fn likely(
        &self,
        plenty: bool,
        peak: Bytes,
        there: &[OomCgroup],
    ) -> (OomScope, Certainty, Option<(String, Option<Bytes>)>) {
        let gone = self.limit.as_ref().filter(|limit| there.iter().all(|cgroup| cgroup.path != limit.path));
        let grown = peak.0.saturating_sub(self.victim.1.0);
        let left = self.host.available.0.saturating_sub(grown);
        let (scope, cgroup) = match gone {
            Some(limit) if plenty => (OomScope::Cgroup, Some((limit.path.clone(), Some(limit.max)))),
            _ if !plenty && self.host.total.0 > 0 => (OomScope::Global, None),
            _ if plenty && Bytes(left) >= self.host.total.percent(AMPLE_PERCENT) => (OomScope::Cgroup, None),
            _ => (OomScope::Unknown, None),
        };
        (scope, Certainty::Inferred, cgroup)
    }
}
