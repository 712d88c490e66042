//! Leases: from the grant over the enforced limits to the agent's exit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::estimates;
use super::gate_record::GateRecord;
use super::gate_state::ActiveLease;
use super::launch::{Cancellation, Launch, LaunchGrant, LaunchLease, UNPROFILED};
use super::profiles::LimitingProfiles;
use super::queue::QueuedLaunch;
use super::recent::{RecentGrant, push_bounded};
use crate::Step;
use crate::effect::{BpfCommand, ClientReply, ConfineCommand, Effect, JournalEvent, PersistCommand};
use crate::membership::Newcomer;
use crate::session::TrackedSession;
use watchdog_api::ProcessKind;
use watchdog_config::Profile;
use watchdog_types::{BootTime, Bounds, Bytes, ProcessId, SessionId, Uid};

/// Grants that wait estimates are based on.
const ESTIMATE_GRANTS: usize = 8;
/// Default for agents: the OOM killer prefers them to the host's services,
const AGENT_OOM_SCORE_ADJ: i32 = 300;
/// and their helpers to them.
const HELPER_OOM_SCORE_OFFSET: i32 = 200;

impl Step<'_> {
    /// Makes the launched process the root of a session.
    pub(super) fn grant(&mut self, waiter: QueuedLaunch) {
        let QueuedLaunch { launch, profiles, queued, .. } = waiter;
        let expected = self.engine.expected(&launch, &profiles);
        let LimitingProfiles { own: profile, matched } = profiles;
        let Launch { process, ppid, uid, comm, image, cgroups, .. } = launch;
        let cgroups = cgroups.into_iter().map(|limit| limit.path).collect();
        let lease = LaunchLease { process, profile: profile.clone(), uid, granted: self.now, expected, cgroups };
        self.engine.gate.queue.served(uid, self.now);
        self.engine.gate.fleet.changed = true;
        let is_first = !std::mem::replace(&mut self.engine.gate.granted_once, true);
        self.engine.gate.recent.push_back(RecentGrant { lease: lease.clone(), matched: matched.clone() });
        if self.now > queued {
            push_bounded(&mut self.engine.gate.served, self.now, ESTIMATE_GRANTS);
        }
        let held = ActiveLease { lease: lease.clone(), matched: matched.clone(), session: None, shown: Bytes(0) };
        self.engine.gate.leases.insert(process, held);
        self.effect(Effect::Persist(PersistCommand::Gate(GateRecord::Granted(lease.clone()))));
        for profile in matched {
            self.effect(Effect::Persist(PersistCommand::Gate(GateRecord::Matched { root: process, profile })));
        }
        match self.engine.table.alive(process).map(|known| known.session) {
            Some(outer) if self.engine.sessions.get(outer).is_some_and(|outer| outer.root == process) => {
                // The agent requested its own launch: its session exists already.
                if let Some(session) = self.engine.sessions.get_mut(outer) {
                    session.profile.clone_from(&profile);
                }
                self.grant_session(outer);
                self.apply_limits(outer);
                self.update_ungated_finding(outer);
            }
            Some(outer) => self.split_session(process, &profile, Some(outer)),
            None => {
                let image = Arc::new(image);
                let newcomer = Newcomer { process, forked_by: None, ppid, uid, comm, image, forked: false };
                self.begin(newcomer, &profile, None);
            }
        }
        if is_first {
            // Agents that were started without the gate are findings from now on.
            self.update_ungated_findings();
        }
        let waited = self.now.since(queued);
        if let Some(session) = self.engine.table.get(process).map(|known| known.session) {
            let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            self.journal(self.now, Some(process), JournalEvent::LaunchGranted { profile, waited_ms });
            self.send_grant(lease, session, waited);
        }
    }

    pub(super) fn send_grant(&mut self, lease: LaunchLease, session: SessionId, waited: Duration) {
        let limiting = self.engine.sessions.get(session).map(|known| known.profiles());
        let limiting: Vec<&Profile> = limiting.iter().flat_map(|known| known.of(&self.engine.config)).collect();
        let mut environment = BTreeMap::new();
        // Later entries win: the first profile takes precedence.
        for profile in limiting.iter().rev() {
            environment.extend(profile.limits.environment.clone());
        }
        let oom_score_adj = limiting.iter().filter_map(|profile| profile.limits.oom_score_adj).max();
        let oom_score_adj = oom_score_adj.unwrap_or(AGENT_OOM_SCORE_ADJ);
        let limits = self.limits_of(session);
        let granted = LaunchGrant { lease, session, waited, environment, oom_score_adj, limits };
        self.effect(Effect::Reply(ClientReply::Granted(Box::new(granted))));
    }

    /// Starts a session, which its own lease or that of an outer session may cover.
    pub(crate) fn begin_session(
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

    /// Enforces the limits of a granted session in the kernel. Nested sessions share them.
    pub(crate) fn apply_limits(&mut self, session: SessionId) {
        let Some(known) = self.engine.sessions.get(session).filter(|known| known.granted == Some(known.root)) else {
            return;
        };
        let (root, bounds) = (known.root, self.limits_of(session));
        self.effect(Effect::Bpf(BpfCommand::ApplyLimits(root, bounds)));
    }

    pub(crate) fn apply_all_limits(&mut self) {
        let sessions: Vec<SessionId> =
            self.engine.sessions.iter().filter(|session| session.members > 0).map(|session| session.id).collect();
        sessions.into_iter().for_each(|session| self.apply_limits(session));
    }

    /// Ends the lease when the agent has exited.
    pub(crate) fn gate_process_exited(&mut self, process: ProcessId) {
        if self.engine.gate.queue.of(process).is_some() {
            self.cancel_launch(process, Cancellation::ClientGone);
        }
        let Some(dead) = self.engine.table.get(process) else { return };
        self.engine.gate.cgroup_membership.gone(process);
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
        self.update_ungated_finding(session);
        if !self.engine.gate.queue.is_empty() {
            // Its memory is free now; the next regular read may be a second away.
            self.effect(Effect::Bpf(BpfCommand::ReadHost));
            self.grant_ready();
        }
    }

    /// Records the peak for later estimates.
    pub(crate) fn gate_session_ended(&mut self, session: SessionId) {
        self.engine.gate.subagents.forget(session);
        let Some(over) = self.engine.sessions.get(session) else { return };
        let (profile, peak, granted) = (over.profile.clone(), over.tally.peak, over.granted);
        // The process may have waited in the queue for hours.
        let since = granted
            .and(self.engine.gate.leases.get(&over.root).map(|held| held.lease.granted))
            .unwrap_or(BootTime::from(over.root.start_time));
        let lasted = self.now.since(since);
        if let Some(root) = granted {
            let goes_on = |other: &TrackedSession| other.members > 0 && other.granted == Some(root);
            if !self.engine.sessions.iter().any(goes_on) {
                self.effect(Effect::Bpf(BpfCommand::ClearLimits(root)));
            }
        }
        if lasted >= estimates::MIN_DURATION && peak > Bytes(0) && profile != UNPROFILED {
            estimates::record(&mut self.engine.gate.peaks, &profile, peak);
            self.effect(Effect::Persist(PersistCommand::Peaks(self.engine.gate.peaks.clone())));
        }
    }

    pub(super) fn end_lease(&mut self, process: ProcessId) {
        if self.engine.gate.leases.remove(&process).is_some() {
            self.engine.gate.fleet.changed = true;
            self.effect(Effect::Persist(PersistCommand::Gate(GateRecord::Ended(process))));
        }
    }

    pub(super) fn limits_of(&self, session: SessionId) -> Bounds {
        let engine = &*self.engine;
        let gate = &engine.config.gate;
        let known = engine.sessions.get(session);
        let limiting: Vec<&Profile> = known.into_iter().flat_map(|known| known.limited_by(&engine.config)).collect();
        let total = engine.close_watch.host.total;
        let memory = limiting.iter().filter_map(|profile| profile.max_memory);
        let max_memory = memory.map(|size| size.on_host(total)).filter(|bytes| bytes.0 > 0).min();
        let max_helpers = limiting.iter().filter_map(|profile| profile.limits.max_helpers).min();
        Bounds {
            max_memory,
            max_helpers,
            max_depth: limiting.iter().filter_map(|profile| profile.limits.max_depth).min().or(gate.max_depth),
            cgroup: gate.cgroups && (max_memory.is_some() || max_helpers.is_some()),
        }
    }

    /// Makes the OOM killer prefer helpers to their agent.
    pub(crate) fn raise_helper_oom_score(&mut self, process: ProcessId) {
        let table = &self.engine.table;
        let Some(helper) = table.get(process) else { return };
        let Some(agent) = helper.parent.and_then(|parent| table.get(parent)) else { return };
        let granted = |session: &&TrackedSession| agent.kind == ProcessKind::Agent && session.granted.is_some();
        let Some(session) = self.engine.sessions.get(helper.session).filter(granted) else { return };
        // This is the agent behind its launcher.
        let launches = agent.id == session.root
            && self.engine.config.profile(&session.profile).is_some_and(|profile| profile.is_launcher)
            && !self.has_agent_behind(agent);
        if launches {
            return;
        }
        // Descendants inherit the value.
        let own = session.limited_by(&self.engine.config).filter_map(|profile| profile.limits.oom_score_adj).max();
        let raised = own.unwrap_or(AGENT_OOM_SCORE_ADJ) + HELPER_OOM_SCORE_OFFSET;
        self.effect(Effect::Confine(ConfineCommand::RaiseOomScore(process, raised)));
    }
}
