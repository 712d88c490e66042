//! A lease: from the grant, through what its session is held to, to its agent's exit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::line::Waiter;
use super::profiles::Profiles;
use super::{
    Bounds, ESTIMATE_BY, GateRecord, Granted, Held, Launch, Lease, Recent, UNPROFILED, Withdrawal, learned,
    push_bounded,
};
use crate::api::ProcessKind;
use crate::config::Profile;
use crate::engine::Step;
use crate::engine::effect::{Effect, Happening};
use crate::engine::id::{BootTime, Bytes, ProcessId, SessionId, Uid};
use crate::engine::membership::Newcomer;
use crate::engine::session::Session;

/// The agent's oom_score_adj where its profile gives none: it goes before the host's services,
const OOM_SCORE_ADJ: i32 = 300;
/// and its helpers before it.
const HELPERS_ABOVE: i32 = 200;

impl Step<'_> {
    /// Grants a launch: its process is the root of a session from now on.
    pub(super) fn grant(&mut self, waiter: Waiter) {
        let Waiter { launch, profiles, queued, .. } = waiter;
        let expected = self.engine.expected(&launch, &profiles);
        let Profiles { own: profile, matched } = profiles;
        let Launch { process, ppid, uid, comm, image, cgroups, .. } = launch;
        let cgroups = cgroups.into_iter().map(|limit| limit.path).collect();
        let lease = Lease { process, profile: profile.clone(), uid, granted: self.now, expected, cgroups };
        self.engine.gate.line.served(uid, self.now);
        self.engine.gate.recent.push_back(Recent { lease: lease.clone(), matched: matched.clone() });
        if self.now > queued {
            push_bounded(&mut self.engine.gate.served, self.now, ESTIMATE_BY);
        }
        let held = Held { lease: lease.clone(), matched: matched.clone(), session: None, shown: Bytes(0) };
        self.engine.gate.leases.insert(process, held);
        self.effect(Effect::Remember(GateRecord::Granted(lease.clone())));
        for profile in matched {
            self.effect(Effect::Remember(GateRecord::Matched { root: process, profile }));
        }
        match self.engine.table.alive(process).map(|known| known.session) {
            Some(outer) if self.engine.sessions.get(outer).is_some_and(|outer| outer.root == process) => {
                // An agent that asks for itself: its session is granted after the fact.
                if let Some(session) = self.engine.sessions.get_mut(outer) {
                    session.profile.clone_from(&profile);
                }
                self.grant_session(outer);
                self.bind(outer);
                self.gated_or_not(outer);
            }
            Some(outer) => self.move_out(process, &profile, Some(outer)),
            None => {
                let image = Arc::new(image);
                let newcomer = Newcomer { process, forked_by: None, ppid, uid, comm, image, forked: false };
                self.begin(newcomer, &profile, None);
            }
        }
        let waited = self.now.since(queued);
        if let Some(session) = self.engine.table.get(process).map(|known| known.session) {
            let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            self.journal(self.now, Some(process), Happening::LaunchGranted { profile, waited_ms });
            self.tell_grant(lease, session, waited);
        }
    }

    pub(super) fn tell_grant(&mut self, lease: Lease, session: SessionId, waited: Duration) {
        let limiting = self.engine.sessions.get(session).map(|known| known.profiles());
        let limiting: Vec<&Profile> = limiting.iter().flat_map(|known| known.of(&self.engine.config)).collect();
        let mut environment = BTreeMap::new();
        // The first has precedence.
        for profile in limiting.iter().rev() {
            environment.extend(profile.bounds.environment.clone());
        }
        let oom_score_adj = limiting.iter().filter_map(|profile| profile.bounds.oom_score_adj).max();
        let oom_score_adj = oom_score_adj.unwrap_or(OOM_SCORE_ADJ);
        let limits = self.bounds_of(session);
        let granted = Granted { lease, session, waited, environment, oom_score_adj, limits };
        self.effect(Effect::Granted(Box::new(granted)));
    }

    /// A new session, which came through the gate, or inside one that did, or past it.
    pub(in crate::engine) fn begin_session(
        &mut self,
        root: ProcessId,
        profile: &str,
        parent: Option<SessionId>,
        uid: Uid,
    ) -> SessionId {
        let had = self.engine.remembered.session_id(root);
        let session = self.engine.sessions.begin(root, profile, parent, uid, had);
        self.grant_session(session);
        session
    }

    fn grant_session(&mut self, session: SessionId) {
        let Some((root, parent)) = self.engine.sessions.get(session).map(|new| (new.root, new.parent)) else { return };
        let held = self.engine.gate.leases.get_mut(&root);
        let matched = held.as_ref().map(|held| held.matched.clone()).unwrap_or_default();
        let own = held.map(|held| held.session = Some(session)).map(|()| root);
        let outer = || self.engine.sessions.get(parent?)?.granted;
        let granted = own.or_else(outer).or_else(|| self.engine.remembered.granted(root));
        if let Some(new) = self.engine.sessions.get_mut(session) {
            new.granted = granted;
            new.matched = matched;
        }
    }

    /// Has the kernel hold a granted session to its bounds. What begins inside of it stays under them.
    pub(in crate::engine) fn bind(&mut self, session: SessionId) {
        let Some(known) = self.engine.sessions.get(session).filter(|known| known.granted == Some(known.root)) else {
            return;
        };
        let (root, bounds) = (known.root, self.bounds_of(session));
        self.effect(Effect::Bound(root, bounds));
    }

    /// Another configuration has other bounds.
    pub(in crate::engine) fn bind_all(&mut self) {
        let sessions: Vec<SessionId> =
            self.engine.sessions.iter().filter(|session| session.members > 0).map(|session| session.id).collect();
        sessions.into_iter().for_each(|session| self.bind(session));
    }

    /// A process of a session is dead: its place may be free.
    pub(in crate::engine) fn gate_gone(&mut self, process: ProcessId) {
        if self.engine.gate.line.of(process).is_some() {
            self.withdraw(process, Withdrawal::Gone);
        }
        let Some(dead) = self.engine.table.get(process) else { return };
        self.engine.gate.confined.gone(process);
        if dead.kind != ProcessKind::Agent {
            return;
        }
        let session = dead.session;
        if self.engine.agent_of(session).is_some() {
            return;
        }
        let root = self.engine.sessions.get(session).map(|session| session.root);
        if let Some(root) = root.filter(|root| self.engine.gate.leases.contains_key(root)) {
            self.end_lease(root);
        }
        self.gated_or_not(session);
        if !self.engine.gate.line.is_empty() {
            // What it held is free by now; the next regular look may be a second away.
            self.effect(Effect::LookAtHost);
            self.decide();
        }
    }

    /// A session is over: what its sessions take is learned from it.
    pub(in crate::engine) fn gate_session_ended(&mut self, session: SessionId) {
        self.engine.gate.subagents.forget(session);
        let Some(over) = self.engine.sessions.get(session) else { return };
        let (profile, peak, granted) = (over.profile.clone(), over.tally.peak, over.granted);
        // A lease's process may have waited for hours before its session began.
        let since = granted
            .and(self.engine.gate.leases.get(&over.root).map(|held| held.lease.granted))
            .unwrap_or(BootTime::from(over.root.start_time));
        let lasted = self.now.since(since);
        if let Some(root) = granted {
            let goes_on = |other: &Session| other.members > 0 && other.granted == Some(root);
            if !self.engine.sessions.iter().any(goes_on) {
                self.effect(Effect::Unbound(root));
            }
        }
        if lasted >= learned::WORTH_LEARNING && peak > Bytes(0) && profile != UNPROFILED {
            learned::learn(&mut self.engine.gate.peaks, &profile, peak);
            self.effect(Effect::Learned(self.engine.gate.peaks.clone()));
        }
    }

    /// The agent of a lease is gone.
    pub(super) fn end_lease(&mut self, process: ProcessId) {
        if self.engine.gate.leases.remove(&process).is_some() {
            self.effect(Effect::Remember(GateRecord::Ended(process)));
        }
    }

    /// What a granted session is held to.
    pub(super) fn bounds_of(&self, session: SessionId) -> Bounds {
        let engine = &*self.engine;
        let gate = &engine.config.gate;
        let known = engine.sessions.get(session);
        let limiting: Vec<&Profile> = known.into_iter().flat_map(|known| known.limited_by(&engine.config)).collect();
        let total = engine.close_watch.host.total;
        let memory = limiting.iter().filter_map(|profile| profile.max_memory);
        let max_memory = memory.map(|size| size.on_host(total)).filter(|bytes| bytes.0 > 0).min();
        let max_helpers = limiting.iter().filter_map(|profile| profile.bounds.max_helpers).min();
        Bounds {
            max_memory,
            max_helpers,
            max_depth: limiting.iter().filter_map(|profile| profile.bounds.max_depth).min().or(gate.max_depth),
            cgroup: gate.cgroups && (max_memory.is_some() || max_helpers.is_some()),
        }
    }

    /// A helper of a granted session goes before its agent when memory runs out.
    pub(in crate::engine) fn expose_helper(&mut self, process: ProcessId) {
        let table = &self.engine.table;
        let Some(helper) = table.get(process) else { return };
        let Some(agent) = helper.parent.and_then(|parent| table.get(parent)) else { return };
        let granted = |session: &&Session| agent.kind == ProcessKind::Agent && session.granted.is_some();
        let Some(session) = self.engine.sessions.get(helper.session).filter(granted) else { return };
        // The agent itself, behind its launcher.
        let launches = agent.id == session.root
            && self.engine.config.profile(&session.profile).is_some_and(|profile| profile.relaunches)
            && !self.has_agent_behind(agent);
        if launches {
            return;
        }
        // What is below it inherits it.
        let own = session.limited_by(&self.engine.config).filter_map(|profile| profile.bounds.oom_score_adj).max();
        let raised = own.unwrap_or(OOM_SCORE_ADJ) + HELPERS_ABOVE;
        self.effect(Effect::RaiseOomScore(process, raised));
    }
}
