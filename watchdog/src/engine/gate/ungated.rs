//! Ungated: an agent that was started past the gate, or a process that left what its session is held by.

use serde_json::{Map, json};

use crate::api::{FindingKind, Severity};
use crate::config::Ungated;
use crate::engine::act::Authority;
use crate::engine::effect::Effect;
use crate::engine::finding::{Key, Observation, Proposal};
use crate::engine::id::{ProcessId, SessionId};
use crate::engine::{Engine, Step};

impl Step<'_> {
    /// Opens or closes the finding about a session that did not come through the gate.
    pub(in crate::engine) fn gated_or_not(&mut self, session: SessionId) {
        let engine = &*self.engine;
        let Some(known) = engine.sessions.get(session) else { return };
        let key = Key { kind: FindingKind::Ungated, about: known.root };
        if engine.agent_of(session).is_none() {
            self.close(key, "gone");
            return;
        }
        let policy = engine.ungated_policy(&known.profile);
        let Some(agent) = engine.table.get(known.root) else { return };
        let in_order = match policy {
            _ if known.granted.is_some() => Some("granted"),
            _ if agent.adopted => Some("adopted"),
            Ungated::Allow => Some("allowed"),
            Ungated::Warn | Ungated::Deny => None,
        };
        if let Some(because) = in_order {
            // The same key stands for a root that left its cgroup.
            if !engine.gate.confined.is_outside(known.root) {
                self.close(key, because);
            }
            return;
        }
        let mut evidence = Map::new();
        evidence.insert("profile".into(), json!(known.profile));
        evidence.insert("name".into(), json!(agent.label()));
        evidence.insert("ppid".into(), json!(agent.ppid));
        evidence.insert("policy".into(), json!(if policy == Ungated::Deny { "deny" } else { "warn" }));
        let seen = Observation {
            key,
            severity: if policy == Ungated::Deny { Severity::Warning } else { Severity::Info },
            session: Some(session),
            subject: known.root,
            members: Vec::new(),
            uid: known.uid,
            // It may have run for days when the daemon began: no latency is to be told.
            cause: self.now,
            summary: format!("{} was started past the gate: not by `watchdogctl launch`", known.profile),
            evidence,
            proposal: Proposal::Report,
        };
        self.observe(seen);
    }

    /// Another configuration may allow what the one before did not.
    pub(in crate::engine) fn judge_ungated(&mut self) {
        let sessions: Vec<SessionId> = self.engine.sessions.iter().map(|session| session.id).collect();
        sessions.into_iter().for_each(|session| self.gated_or_not(session));
    }

    /// An agent executed its program past the gate, and the kernel could not tell by the file's name alone.
    pub(in crate::engine) fn deny_ungated(&mut self, process: ProcessId) {
        let engine = &*self.engine;
        let session = engine.table.get(process).and_then(|known| engine.sessions.get(known.session));
        let Some(known) = session.filter(|session| session.root == process) else { return };
        let adopted = engine.table.get(process).is_some_and(|known| known.adopted);
        if known.granted.is_none() && !adopted && engine.ungated_policy(&known.profile) == Ungated::Deny {
            let authority = Authority::Session(known.uid);
            self.effect(Effect::EndUngated(process, authority));
        }
    }
}

impl Engine {
    fn ungated_policy(&self, profile: &str) -> Ungated {
        self.config.profile(profile).and_then(|known| known.bounds.ungated).unwrap_or(self.config.gate.ungated)
    }
}
