//! What clients ask of the gate, and what they are told.

use std::collections::BTreeSet;

use super::Core;
use crate::api::{self, Cancelled, LaunchUpdate, SubagentAnswer, Waiting};
use crate::config::Config;
use crate::daemon::clients::{Answer, Ticket};
use crate::daemon::request::{CancelError, NoProfile, Reply};
use crate::engine::effect::Effect;
use crate::engine::gate::{GateRecord, Granted, Launch, Obstacle, Refused, SubagentDecision, Waits, Withdrawal};
use crate::engine::id::{BootTime, LastIds, Pid, ProcessId, SessionId, Uid};
use crate::engine::input::Input;
use crate::engine::view::Viewer;

impl Core {
    /// A process asks for a launch. Whoever has gone by now is not told to the gate.
    pub(super) fn launch(
        &mut self,
        now: BootTime,
        launch: Box<Launch>,
        reply: Reply<Result<Ticket, NoProfile>>,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(name) = launch.profile.as_ref().filter(|name| !self.profiles.contains(*name)) {
            let known = self.profiles.iter().cloned().collect();
            drop(reply.send(Err(NoProfile { name: name.clone(), known })));
            return;
        }
        let ticket = self.clients.enter(launch.process);
        let number = ticket.number;
        if reply.send(Ok(ticket)).is_err() {
            self.clients.left(launch.process, number);
            return;
        }
        self.tell(now, Input::Launch(launch), effects);
    }

    /// Takes a launch out of the queue.
    pub(super) fn cancel(
        &mut self,
        now: BootTime,
        viewer: Viewer,
        pid: u32,
        effects: &mut Vec<Effect>,
    ) -> Result<Cancelled, CancelError> {
        let (process, owner) = self.engine.waiting(Pid(pid)).ok_or(CancelError::NobodyWaits(pid))?;
        if !viewer.sees(owner) {
            return Err(CancelError::NotYours);
        }
        self.tell(now, Input::Withdraw(process, Withdrawal::Cancelled), effects);
        Ok(Cancelled { pid })
    }

    /// A launch was granted: the way to its client, if there is one.
    pub(in crate::daemon) fn granted(&mut self, granted: &Granted) -> Option<Answer> {
        self.clients.leave(granted.lease.process)
    }

    /// Tells a client that its launch is refused.
    pub(in crate::daemon) fn refused(&mut self, refused: Refused) {
        let Refused { process, uid, profile, obstacle } = refused;
        self.metrics.launch_refused(self.label(&profile), obstacle.reason);
        let Some(client) = self.clients.leave(process) else { return };
        let viewer = if uid == Uid::ROOT { Viewer::Root } else { Viewer::User(uid) };
        let Obstacle { reason, detail, bound, holders, retry_after } = obstacle;
        let holders = self.with_naming(|engine, naming| engine.occupants(&holders, viewer, naming));
        let retry_after_seconds = retry_after.map(|span| span.as_secs_f64());
        client.give(LaunchUpdate::Refused(api::Refused {
            granted: false,
            reason,
            detail,
            retry_after_seconds,
            bound,
            holders,
        }));
    }

    /// Tells a client where it stands.
    pub(in crate::daemon) fn waits(&self, waits: Waits) {
        let Waits { process, position, obstacle, estimate } = waits;
        let Obstacle { reason, detail, bound: _, holders: _, retry_after: _ } = obstacle;
        let estimate_seconds = estimate.map(|span| span.as_secs_f64());
        self.clients.tell(process, LaunchUpdate::Waiting(Waiting { position, reason, detail, estimate_seconds }));
    }

    /// The session that a process is in.
    pub(in crate::daemon) fn session_of(&self, process: ProcessId) -> Option<SessionId> {
        self.engine.session_of(process)
    }

    /// The last ids that the engine gave.
    pub(in crate::daemon) fn last_ids(&self) -> LastIds {
        self.engine.last_ids()
    }

    /// What the gate knows now, for a file that is to be written anew.
    pub(in crate::daemon) fn gate_records(&self) -> Vec<GateRecord> {
        self.engine.gate_records()
    }

    /// A profile as metrics name it: a lease may be of one that is configured no more.
    pub(super) fn label<'a>(&self, profile: &'a str) -> &'a str {
        if self.profiles.contains(profile) { profile } else { "other" }
    }
}

/// The names of the profiles that there are.
pub(super) fn names(config: &Config) -> BTreeSet<String> {
    config.profiles.iter().map(|profile| profile.name.clone()).collect()
}

/// The answer to an agent's hook.
pub(super) fn subagent_answer(decision: SubagentDecision) -> SubagentAnswer {
    let SubagentDecision { obstacle, session, running, max_subagents } = decision;
    SubagentAnswer {
        allowed: obstacle.is_none(),
        reason: obstacle.as_ref().map(|obstacle| obstacle.reason),
        retry_after_seconds: obstacle.as_ref().and_then(|obstacle| obstacle.retry_after).map(|span| span.as_secs_f64()),
        detail: obstacle.map(|obstacle| obstacle.detail).unwrap_or_default(),
        running,
        max_subagents,
        session: session.map(|session| session.0),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::daemon::core::Facts;
    use crate::daemon::metrics::Metrics;
    use crate::daemon::set_aside::StateNotes;
    use crate::daemon::{chronicle, historian};
    use crate::engine::id::{Bytes, Ticks};
    use crate::engine::input::{HostMemory, Image};
    use crate::host::clock;

    #[test]
    fn who_asks_again_since_the_answer_was_lost_is_told_again_and_counted_once() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::default();
        let (history, _) =
            historian::start(historian::Origin::now(dir.path(), StateNotes::default()), chronicle::limits(&config))
                .unwrap();
        let mut core = Core::new(Arc::new(config), Arc::new(Metrics::new().unwrap()), history, Facts::default());
        let (now, gib) = (clock::now(), 1 << 30);
        let host = HostMemory { total: Bytes(64 * gib), available: Bytes(60 * gib), ..HostMemory::default() };
        core.tell(now, Input::Host(host), &mut Vec::new());
        let launch = Launch {
            process: ProcessId { pid: Pid(4_000), start_time: Ticks(1) },
            ppid: Pid(1),
            uid: Uid(1_000),
            comm: "claude".to_owned(),
            image: Image { path: "/usr/bin/claude".to_owned(), argv: vec!["claude".to_owned()], truncated: false },
            profile: None,
            priority: 0,
            timeout: Some(Duration::from_secs(60)),
            waits: true,
            memory: None,
            cgroups: Vec::new(),
        };
        for asked in 1..=2 {
            let mut effects = Vec::new();
            core.tell(now, Input::Launch(Box::new(launch.clone())), &mut effects);
            let granted = effects.iter().filter(|effect| matches!(effect, Effect::Granted(_))).count();
            assert_eq!(granted, 1, "asked {asked} times: {effects:?}");
        }
        let scraped = String::from_utf8(core.metrics.render(&core.scrape()).unwrap()).unwrap();
        let line = scraped.lines().find(|line| line.contains("launches_total{outcome=\"granted\"")).unwrap();
        assert!(line.ends_with(" 1"), "{line}");
    }
}
