//! Launches: what clients request of the gate, and what they are answered.

use std::collections::BTreeSet;

use super::DaemonState;
use crate::launch_waiters::{LaunchTicket, ReplySender};
use crate::request::{CancelError, Reply, UnknownProfile};
use watchdog_api::{self as api, Cancelled, LaunchUpdate, SubagentAnswer, Waiting};
use watchdog_config::Config;
use watchdog_engine::effect::Effect;
use watchdog_engine::gate::{
    Blocker, Cancellation, GateRecord, Launch, LaunchGrant, LaunchRefusal, QueuePosition, SubagentDecision, UNPROFILED,
};
use watchdog_engine::input::Input;
use watchdog_types::{BootTime, LastIds, Pid, ProcessId, SessionId, Uid, Viewer};

impl DaemonState {
    /// A process requests a launch. The gate does not see a client that has disconnected already.
    pub(super) fn launch(
        &mut self,
        now: BootTime,
        launch: Box<Launch>,
        reply: Reply<Result<LaunchTicket, UnknownProfile>>,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(name) = launch.profile.as_ref().filter(|name| !self.profiles.contains(*name)) {
            let known = self.profiles.iter().cloned().collect();
            drop(reply.send(Err(UnknownProfile { name: name.clone(), known })));
            return;
        }
        let ticket = self.waiters.join(launch.process);
        let number = ticket.number;
        if reply.send(Ok(ticket)).is_err() {
            self.waiters.remove(launch.process, number);
            return;
        }
        self.feed(now, Input::Launch(launch), effects);
    }

    pub(super) fn cancel(
        &mut self,
        now: BootTime,
        viewer: Viewer,
        pid: u32,
        effects: &mut Vec<Effect>,
    ) -> Result<Cancelled, CancelError> {
        let (process, owner) = self.engine.waiting(Pid(pid)).ok_or(CancelError::NotQueued(pid))?;
        if !viewer.sees(owner) {
            return Err(CancelError::OtherUser);
        }
        self.feed(now, Input::CancelLaunch(process, Cancellation::Cancelled), effects);
        Ok(Cancelled { pid })
    }

    /// Returns the sender for the client's answer, if a client waits.
    pub(crate) fn take_granted_client(&mut self, granted: &LaunchGrant) -> Option<ReplySender> {
        self.waiters.take_sender(granted.lease.process)
    }

    pub(crate) fn refuse(&mut self, refused: LaunchRefusal) {
        let LaunchRefusal { process, uid, profile, blocker } = refused;
        self.metrics.launch_refused(self.label(&profile), blocker.reason);
        let Some(client) = self.waiters.take_sender(process) else { return };
        let viewer = if uid == Uid::ROOT { Viewer::Root } else { Viewer::User(uid) };
        let Blocker { reason, detail, bound, holders, retry_after } = blocker;
        let holders = self.with_naming(|engine, naming| engine.occupants(&holders, viewer, naming));
        let retry_after_seconds = retry_after.map(|span| span.as_secs_f64());
        client.send(LaunchUpdate::Refused(api::Refused {
            granted: false,
            reason,
            detail,
            retry_after_seconds,
            bound,
            holders,
        }));
    }

    pub(crate) fn update_waiting(&self, position: QueuePosition) {
        let QueuePosition { process, position, blocker, estimate } = position;
        let Blocker { reason, detail, bound: _, holders: _, retry_after: _ } = blocker;
        let estimate_seconds = estimate.map(|span| span.as_secs_f64());
        self.waiters.update(process, LaunchUpdate::Waiting(Waiting { position, reason, detail, estimate_seconds }));
    }

    pub(crate) fn session_of(&self, process: ProcessId) -> Option<SessionId> {
        self.engine.session_of(process)
    }

    pub(crate) fn last_ids(&self) -> LastIds {
        self.engine.last_ids()
    }

    /// The state of the gate, to rewrite its file.
    pub(crate) fn gate_records(&self) -> Vec<GateRecord> {
        self.engine.gate_records()
    }

    /// The profile's metric label: a lease may be of a profile that is no longer configured.
    pub(super) fn label<'a>(&self, profile: &'a str) -> &'a str {
        if self.profiles.contains(profile) { profile } else { UNPROFILED }
    }
}

pub(super) fn names(config: &Config) -> BTreeSet<String> {
    config.profiles.iter().map(|profile| profile.name.clone()).collect()
}

pub(super) fn subagent_answer(decision: SubagentDecision) -> SubagentAnswer {
    let SubagentDecision { blocker, session, running, max_subagents } = decision;
    SubagentAnswer {
        allowed: blocker.is_none(),
        reason: blocker.as_ref().map(|blocker| blocker.reason),
        retry_after_seconds: blocker.as_ref().and_then(|blocker| blocker.retry_after).map(|span| span.as_secs_f64()),
        detail: blocker.map(|blocker| blocker.detail).unwrap_or_default(),
        running,
        max_subagents,
        session: session.map(|session| session.0),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use watchdog_engine::effect::ClientReply;
    use watchdog_host::clock;
    use watchdog_types::{Bytes, HostMemory, Image, Ticks};

    #[test]
    fn regranted_launch_counted_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = DaemonState::for_test(dir.path());
        let (now, gib) = (clock::now(), 1 << 30);
        let host = HostMemory { total: Bytes(64 * gib), available: Bytes(60 * gib), ..HostMemory::default() };
        state.feed(now, Input::Host(host), &mut Vec::new());
        let launch = Launch {
            process: ProcessId { pid: Pid(4_000), start_time: Ticks(1) },
            ppid: Pid(1),
            uid: Uid(1_000),
            comm: "claude".to_owned(),
            image: Image::new("/usr/bin/claude", ["claude"]),
            profile: None,
            priority: 0,
            timeout: Some(Duration::from_secs(60)),
            waits: true,
            memory: None,
            cgroups: Vec::new(),
            tasks: Vec::new(),
            ticket: None,
        };
        for asked in 1..=2 {
            let mut effects = Vec::new();
            state.feed(now, Input::Launch(Box::new(launch.clone())), &mut effects);
            let granted =
                effects.iter().filter(|effect| matches!(effect, Effect::Reply(ClientReply::Granted(_)))).count();
            assert_eq!(granted, 1, "asked {asked} times: {effects:?}");
        }
        let scraped = String::from_utf8(state.metrics.render(&state.scrape(now)).unwrap()).unwrap();
        let granted = "agent_watchdog_launches_total{outcome=\"granted\",profile=\"claude-code\"} 1";
        assert!(scraped.lines().any(|line| line == granted), "{scraped}");
    }
}
