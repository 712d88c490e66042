//! Who is still in the cgroup that holds its session. Membership of a session is by lineage, so a process that leaves the
//! cgroup stays in the session, and is seen.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, json};

use super::Confinement;
use crate::api::{FindingKind, Severity};
use crate::engine::Step;
use crate::engine::effect::Effect;
use crate::engine::finding::{Key, Observation, Proposal};
use crate::engine::id::{BootTime, Pid, ProcessId, SessionId};

/// How often each session's cgroup is looked into.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// The cgroups of granted sessions.
#[derive(Debug, Default)]
pub(super) struct Confined {
    sessions: BTreeMap<SessionId, Cgroup>,
    /// Those who are outside, and in whose stead a finding stands.
    outside: BTreeSet<ProcessId>,
}

#[derive(Debug)]
struct Cgroup {
    path: String,
    asked: BootTime,
    /// Who was outside at the last look: a single one may have crossed a fork or a move.
    suspects: BTreeSet<ProcessId>,
}

impl Confined {
    /// The cgroup that holds a session.
    pub(super) fn path(&self, session: SessionId) -> Option<String> {
        self.sessions.get(&session).map(|cgroup| cgroup.path.clone())
    }

    pub(super) fn is_outside(&self, process: ProcessId) -> bool {
        self.outside.contains(&process)
    }

    pub(super) fn gone(&mut self, process: ProcessId) {
        for cgroup in self.sessions.values_mut() {
            cgroup.suspects.remove(&process);
        }
    }
}

impl Step<'_> {
    /// What became of the cgroup of a session.
    pub(in crate::engine) fn confined(&mut self, session: SessionId, confinement: Confinement) {
        let Some(path) = confinement.cgroup else { return };
        let cgroup = Cgroup { path, asked: self.now, suspects: BTreeSet::new() };
        self.engine.gate.confined.sessions.insert(session, cgroup);
    }

    pub(super) fn tick_confined(&mut self) {
        let now = self.now;
        let sessions = &self.engine.sessions;
        let confined = &mut self.engine.gate.confined;
        confined.sessions.retain(|session, _| sessions.get(*session).is_some_and(|known| known.members > 0));
        let mut looks = Vec::new();
        for (session, cgroup) in &mut confined.sessions {
            if now.since(cgroup.asked) >= LOOK_EVERY {
                cgroup.asked = now;
                looks.push(Effect::LookIntoCgroup(*session, cgroup.path.clone()));
            }
        }
        let table = &self.engine.table;
        let (kept, gone): (BTreeSet<ProcessId>, BTreeSet<ProcessId>) =
            confined.outside.iter().partition(|process| table.alive(**process).is_some());
        confined.outside = kept;
        looks.into_iter().for_each(|look| self.effect(look));
        for process in gone {
            self.close(Key { kind: FindingKind::Ungated, about: process }, "gone");
        }
    }

    /// The processes that are in a session's cgroup.
    pub(in crate::engine) fn cgroup_members(&mut self, session: SessionId, members: &[Pid]) {
        let inside: BTreeSet<Pid> = members.iter().copied().collect();
        let table = &self.engine.table;
        let Some(cgroup) = self.engine.gate.confined.sessions.get_mut(&session) else { return };
        let outside: BTreeSet<ProcessId> = table
            .living()
            .filter(|process| {
                process.session == session && process.seen < cgroup.asked && !inside.contains(&process.id.pid)
            })
            .map(|process| process.id)
            .collect();
        let sure: Vec<ProcessId> = outside.intersection(&cgroup.suspects).copied().collect();
        let path = cgroup.path.clone();
        cgroup.suspects = outside;
        let back: Vec<ProcessId> = self
            .engine
            .gate
            .confined
            .outside
            .iter()
            .copied()
            .filter(|process| {
                table.alive(*process).is_some_and(|known| known.session == session && inside.contains(&known.id.pid))
            })
            .collect();
        for process in back {
            self.engine.gate.confined.outside.remove(&process);
            self.close(Key { kind: FindingKind::Ungated, about: process }, "back in its cgroup");
        }
        for process in sure {
            self.left_cgroup(session, process, &path);
        }
    }

    fn left_cgroup(&mut self, session: SessionId, process: ProcessId, path: &str) {
        let bounds = self.bounds_of(session);
        let Some(known) = self.engine.table.get(process) else { return };
        let mut evidence = Map::new();
        evidence.insert("name".into(), json!(known.label()));
        evidence.insert("cgroup".into(), json!(path));
        evidence.insert("max_memory_bytes".into(), json!(bounds.max_memory));
        evidence.insert("max_helpers".into(), json!(bounds.max_helpers));
        evidence.insert("memory_bytes".into(), json!(known.cost()));
        let cap = bounds.max_memory.map(|max| format!(" of {}", crate::units::size(max.0))).unwrap_or_default();
        let seen = Observation {
            key: Key { kind: FindingKind::Ungated, about: process },
            severity: Severity::Warning,
            session: Some(session),
            subject: process,
            members: Vec::new(),
            uid: known.uid,
            cause: self.now,
            summary: format!(
                "{} (pid {}) left its session's cgroup: the cap{cap} no longer applies",
                known.label(),
                process.pid
            ),
            evidence,
            proposal: Proposal::Report,
        };
        self.engine.gate.confined.outside.insert(process);
        self.observe(seen);
    }
}
