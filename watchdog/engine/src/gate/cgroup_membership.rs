//! Detects processes that left the cgroup of their session, or another one whose memory limit held for them. Sessions follow
//! lineage, so such a process stays in its session but escapes its limits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::effect::{Effect, ScanRequest};
use crate::finding::{Detection, Key, Proposal};
use crate::process::TrackedProcess;
use crate::{Engine, Step};
use watchdog_api::evidence::{LeftCgroupEvidence, OutsideProcess};
use watchdog_api::{Evidence, FindingKind, Severity};
use watchdog_types::{BootTime, Bounds, Bytes, CgroupLimit, Confinement, Limits, Pid, ProcessId, SessionId};

const CHECK_INTERVAL: Duration = Duration::from_secs(3);
/// How many processes the evidence lists; the rest is counted.
const LISTED: usize = 50;

#[derive(Debug, Default)]
pub(super) struct CgroupMembership {
    sessions: BTreeMap<SessionId, SessionCgroup>,
    /// Processes outside, by session and the cgroup that they left: one finding for each.
    outside: BTreeMap<(SessionId, String), OutsideGroup>,
}

/// The processes of a session that left a cgroup.
#[derive(Debug)]
struct OutsideGroup {
    /// The oldest when the finding opened.
    about: ProcessId,
    members: BTreeSet<ProcessId>,
    /// The memory limit, where the gate has not set it.
    max: Option<Bytes>,
}

#[derive(Debug)]
struct SessionCgroup {
    path: String,
    checked_at: BootTime,
    /// Processes outside at the last check. A single miss may be a race with a fork or a move.
    suspects: BTreeSet<ProcessId>,
}

impl CgroupMembership {
    pub(super) fn path(&self, session: SessionId) -> Option<String> {
        self.sessions.get(&session).map(|cgroup| cgroup.path.clone())
    }

    /// An open finding about processes outside has the key of this process.
    pub(super) fn is_reported(&self, process: ProcessId) -> bool {
        self.outside.values().any(|group| group.about == process)
    }

    pub(super) fn gone(&mut self, process: ProcessId) {
        for cgroup in self.sessions.values_mut() {
            cgroup.suspects.remove(&process);
        }
    }
}

impl Step<'_> {
    pub(crate) fn confined(&mut self, session: SessionId, confinement: Confinement) {
        let Some(path) = confinement.cgroup else { return };
        let cgroup = SessionCgroup { path, checked_at: self.now, suspects: BTreeSet::new() };
        self.engine.gate.cgroup_membership.sessions.insert(session, cgroup);
    }

    pub(super) fn check_cgroups(&mut self) {
        let now = self.now;
        let sessions = &self.engine.sessions;
        let confined = &mut self.engine.gate.cgroup_membership;
        confined.sessions.retain(|session, _| sessions.get(*session).is_some_and(|known| known.members > 0));
        let mut looks = Vec::new();
        for (session, cgroup) in &mut confined.sessions {
            if now.since(cgroup.checked_at) >= CHECK_INTERVAL {
                cgroup.checked_at = now;
                looks.push(Effect::Scan(ScanRequest::CgroupMembers(*session, cgroup.path.clone())));
            }
        }
        let table = &self.engine.table;
        let mut changed = Vec::new();
        for (key, group) in &mut confined.outside {
            let before = group.members.len();
            group.members.retain(|process| table.alive(*process).is_some());
            if group.members.len() < before {
                changed.push(key.clone());
            }
        }
        looks.into_iter().for_each(|look| self.effect(look));
        changed.into_iter().for_each(|key| self.update_left_cgroup(&key, "gone"));
    }

    /// Compares the cgroup of a process, just read, with the limit that held for it, or for its starter when that forked it.
    pub(crate) fn cgroup_limit_left(&mut self, process: ProcessId, found: &Limits) {
        let (now, table) = (self.now, &self.engine.table);
        let (Some(known), Some(own)) = (table.alive(process), &found.own_cgroup) else { return };
        let session = known.session;
        let before = match known.limits.as_deref() {
            Some(Limits { cgroup, own_cgroup: Some(_), .. }) => cgroup.clone(),
            _ => self.engine.limit_inherited(known),
        };
        self.came_back(process, session, own, found);
        let limited = found.cgroup.is_some();
        if let Some(known) = self.engine.table.get_mut(process) {
            known.limited_since = known.limited_since.filter(|_| limited).or(limited.then_some(now));
        }
        let Some(before) = before.filter(|before| !before.holds(own)) else { return };
        // The gate compares the cgroups that it made. A tighter limit is no escape.
        let by_gate = self.engine.gate.cgroup_of(session).is_some_and(|cgroup| before.holds(&cgroup));
        if by_gate || found.cgroup.as_ref().is_some_and(|limit| limit.max <= before.max) {
            return;
        }
        let key = (session, before.path);
        let group = self.engine.gate.cgroup_membership.outside.entry(key.clone()).or_insert_with(|| OutsideGroup {
            about: process,
            members: BTreeSet::new(),
            max: Some(before.max),
        });
        group.members.insert(process);
        self.update_left_cgroup(&key, "gone");
    }

    /// A process is in a cgroup that it had left, or in one with a limit that is no higher.
    fn came_back(&mut self, process: ProcessId, session: SessionId, own: &str, found: &Limits) {
        let mut changed = Vec::new();
        for (key, group) in &mut self.engine.gate.cgroup_membership.outside {
            let Some(max) = group.max.filter(|_| key.0 == session) else { continue };
            let left = CgroupLimit { path: key.1.clone(), max, ..CgroupLimit::default() };
            let limited = found.cgroup.as_ref().is_some_and(|limit| limit.max <= max);
            if (limited || left.holds(own)) && group.members.remove(&process) {
                changed.push(key.clone());
            }
        }
        changed.into_iter().for_each(|key| self.update_left_cgroup(&key, "back in its cgroup"));
    }

    pub(crate) fn cgroup_members(&mut self, session: SessionId, members: &[Pid]) {
        let inside: BTreeSet<Pid> = members.iter().copied().collect();
        let table = &self.engine.table;
        let Some(cgroup) = self.engine.gate.cgroup_membership.sessions.get_mut(&session) else { return };
        let outside: BTreeSet<ProcessId> = table
            .living()
            .filter(|process| {
                process.session == session && process.seen < cgroup.checked_at && !inside.contains(&process.id.pid)
            })
            .map(|process| process.id)
            .collect();
        let sure: Vec<ProcessId> = outside.intersection(&cgroup.suspects).copied().collect();
        cgroup.suspects = outside;
        let key = (session, cgroup.path.clone());
        let groups = &mut self.engine.gate.cgroup_membership.outside;
        if let Some(group) = groups.get_mut(&key) {
            group.members.retain(|process| !inside.contains(&process.pid));
            group.members.extend(sure);
        } else if let Some(about) = sure.iter().copied().min_by_key(|process| (process.start_time, process.pid)) {
            groups.insert(key.clone(), OutsideGroup { about, members: sure.into_iter().collect(), max: None });
        }
        self.update_left_cgroup(&key, "back in its cgroup");
    }

    /// Describes the processes of a session that left a cgroup, or closes the finding when there are none.
    fn update_left_cgroup(&mut self, left: &(SessionId, String), because: &'static str) {
        let Some(group) = self.engine.gate.cgroup_membership.outside.get(left) else { return };
        let session = left.0;
        let key = Key { kind: FindingKind::Ungated, about: group.about };
        let table = &self.engine.table;
        let living = group.members.iter().filter_map(|process| table.alive(*process));
        let mut members: Vec<&TrackedProcess> = living.filter(|process| process.session == session).collect();
        members.sort_unstable_by_key(|process| (process.id.start_time, process.id.pid));
        let Some(oldest) = members.first() else {
            self.engine.gate.cgroup_membership.outside.remove(left);
            self.close(key, because);
            return;
        };
        let set = group.max;
        let bounds = if set.is_some() { Bounds::default() } else { self.limits_of(session) };
        let listed = members.iter().take(LISTED).map(|process| OutsideProcess {
            memory_bytes: process.cost(),
            name: process.label(),
            pid: process.id.pid,
            start_time: process.id.start_time,
        });
        let evidence = Evidence::LeftCgroup(Box::new(LeftCgroupEvidence {
            cgroup: left.1.clone(),
            count: Some(members.len()),
            max_helpers: bounds.max_helpers,
            max_memory_bytes: set.or(bounds.max_memory),
            memory_bytes: members.iter().map(|process| process.cost()).sum(),
            name: oldest.label(),
            processes: listed.collect(),
        }));
        let seen = Detection {
            key,
            severity: Severity::Warning,
            session: Some(session),
            subject: oldest.id,
            members: members.iter().map(|process| process.id).collect(),
            uid: self.engine.sessions.get(session).map_or(oldest.uid, |session| session.uid),
            cause: self.now,
            summary: evidence.to_string(),
            evidence,
            proposal: Proposal::Report,
        };
        self.observe(seen);
    }
}

impl Engine {
    /// The limit that held for the nearest process above whose limits were known when this one was forked. Shells between an
    /// agent and its helpers end too soon to be read.
    fn limit_inherited(&self, process: &TrackedProcess) -> Option<CgroupLimit> {
        let mut above = process.forked_by;
        while let Some(parent) = above.and_then(|parent| self.table.get(parent)) {
            match parent.limits.as_deref() {
                Some(Limits { cgroup: Some(cgroup), .. })
                    if parent.limited_since.is_some_and(|since| since <= process.seen) =>
                {
                    return Some(cgroup.clone());
                }
                _ => above = parent.forked_by,
            }
        }
        None
    }
}
