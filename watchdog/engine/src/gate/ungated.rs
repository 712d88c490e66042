//! The ungated finding: an agent that bypassed the gate, or a process that left the cgroup of its session.

use crate::actions::Authority;
use crate::effect::{ConfineCommand, Effect};
use crate::finding::{Detection, Key, Proposal};
use crate::{Engine, Step};
use watchdog_api::evidence::{UngatedEvidence, UngatedPolicy};
use watchdog_api::{Evidence, FindingKind, Severity};
use watchdog_config::Ungated;
use watchdog_types::{ProcessId, SessionId};

impl Step<'_> {
    pub(crate) fn update_ungated_finding(&mut self, session: SessionId) {
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
            // A root that left its cgroup uses the same key.
            if !engine.gate.cgroup_membership.is_reported(known.root) {
                self.close(key, because);
            }
            return;
        }
        let evidence = Evidence::Ungated(Box::new(UngatedEvidence {
            name: agent.label(),
            policy: if policy == Ungated::Deny { UngatedPolicy::Deny } else { UngatedPolicy::Warn },
            ppid: agent.ppid,
            profile: known.profile.clone(),
        }));
        let seen = Detection {
            key,
            severity: if policy == Ungated::Deny { Severity::Warning } else { Severity::Info },
            session: Some(session),
            subject: known.root,
            members: Vec::new(),
            uid: known.uid,
            // The agent may have started days before the daemon: report no latency.
            cause: self.now,
            summary: evidence.to_string(),
            evidence,
            proposal: Proposal::Report,
        };
        self.observe(seen);
    }

    pub(crate) fn update_ungated_findings(&mut self) {
        let sessions: Vec<SessionId> = self.engine.sessions.iter().map(|session| session.id).collect();
        sessions.into_iter().for_each(|session| self.update_ungated_finding(session));
    }

    /// Kills an agent that bypassed the gate, where the kernel could not match it by file name.
    pub(crate) fn enforce_ungated_policy(&mut self, process: ProcessId) {
        let engine = &*self.engine;
        let session = engine.table.get(process).and_then(|known| engine.sessions.get(known.session));
        let Some(known) = session.filter(|session| session.root == process) else { return };
        let adopted = engine.table.get(process).is_some_and(|known| known.adopted);
        if known.granted.is_none() && !adopted && engine.ungated_policy(&known.profile) == Ungated::Deny {
            let authority = Authority::Session(known.uid);
            self.effect(Effect::Confine(ConfineCommand::KillUngated(process, authority)));
        }
    }
}

impl Engine {
    fn ungated_policy(&self, profile: &str) -> Ungated {
        let of_profile = self.config.profile(profile).and_then(|known| known.limits.ungated);
        let default = if self.uses_gate() { Ungated::Warn } else { Ungated::Allow };
        of_profile.or(self.config.gate.ungated).unwrap_or(default)
    }

    /// A limit is configured, or a launch was granted since the host booted.
    fn uses_gate(&self) -> bool {
        let config = &self.config;
        let limited = || config.gate.has_limit() || config.profiles.iter().any(|profile| profile.limits.has_limit());
        self.gate.granted_once || config.fleet.store.is_some() || limited()
    }
}
