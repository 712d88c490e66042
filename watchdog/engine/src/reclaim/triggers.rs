//! When the daemon starts a page-out by itself, and when it stops.

use std::collections::BTreeSet;
use std::time::Duration;

use super::candidates::SessionChoice;
use crate::{Engine, Step};
use watchdog_api::ReclaimTrigger;
use watchdog_config::ReclaimMode;
use watchdog_types::{BootTime, Bytes, ProcessId, SessionId};

/// How long an emergency waits for page-out before it terminates processes.
const EMERGENCY_WAIT: Duration = Duration::from_secs(10);
/// The same, below `emergency_kill`.
const KILL_WAIT: Duration = Duration::from_secs(2);
/// Position between `breaker_close` (0) and `breaker_open` (100) above which idle sessions are paged out.
const BEFORE_BREAKER: f64 = 50.0;

impl Engine {
    /// The trigger that starts a run now, and its sessions.
    pub(super) fn due_trigger(&self, now: BootTime) -> Option<(ReclaimTrigger, SessionChoice)> {
        self.config.shortest_reclaim_idle()?;
        // Without swap, only pages of files would be dropped, which count as available already.
        if self.swap_room() == Bytes(0) || self.reclaim.halted_until.is_some_and(|until| now < until) {
            return None;
        }
        let due = [ReclaimTrigger::Launch, ReclaimTrigger::Pressure, ReclaimTrigger::Proactive];
        let begins = |trigger: &ReclaimTrigger| match trigger {
            ReclaimTrigger::Pressure => self.breaker_is_near(BEFORE_BREAKER),
            ReclaimTrigger::Proactive => self.any_proactive(),
            other => self.trigger_holds(*other),
        };
        due.into_iter().filter(begins).find_map(|trigger| {
            let choice = self.choice_of(trigger);
            (!self.reclaimable(now, choice).is_empty()).then_some((trigger, choice))
        })
    }

    /// Whether the reason of a run still holds.
    pub(super) fn trigger_holds(&self, trigger: ReclaimTrigger) -> bool {
        match trigger {
            ReclaimTrigger::Request => true,
            ReclaimTrigger::Launch => self.gate.waits_for_host_memory(),
            ReclaimTrigger::Pressure => self.breaker_is_near(0.0),
            ReclaimTrigger::Emergency => self.in_emergency() || self.breaker_is_near(0.0),
            ReclaimTrigger::Proactive => self.any_proactive(),
        }
    }

    fn choice_of(&self, trigger: ReclaimTrigger) -> SessionChoice {
        let short = trigger == ReclaimTrigger::Emergency || self.breaker_open() || self.close_watch.host.is_short();
        SessionChoice::Idle { user: None, short, proactive: trigger == ReclaimTrigger::Proactive }
    }

    fn any_proactive(&self) -> bool {
        let config = &self.config;
        config.reclaim.mode == ReclaimMode::Proactive
            || config.profiles.iter().any(|profile| profile.reclaim.mode == Some(ReclaimMode::Proactive))
    }

    /// Whether the daemon may start a page-out soon: there is swap, and sessions are paged out without a shortage of memory,
    /// or memory is short.
    fn page_out_is_near(&self) -> bool {
        let short = || self.breaker_is_near(0.0) || self.in_emergency() || self.gate.waits_for_host_memory();
        self.close_watch.host.swap_total > Bytes(0) && (self.any_proactive() || short())
    }

    /// Whether memory in use is above this position between `breaker_close` (0) and `breaker_open` (100).
    fn breaker_is_near(&self, position: f64) -> bool {
        let gate = &self.config.gate;
        let (open, close) = (f64::from(gate.breaker_open), f64::from(gate.breaker_close));
        crate::gate::used_percent(&self.close_watch.host)
            .is_some_and(|used| used > close + (open - close) * position / 100.0)
    }
}

impl Step<'_> {
    /// Requests the activity of processes that may be paged out, when due.
    pub(super) fn watch_activity(&mut self) {
        let is_near = self.engine.page_out_is_near();
        let Engine { reclaim, config, .. } = &mut *self.engine;
        if !reclaim.idle.is_due(self.now, config.shortest_reclaim_idle(), is_near) {
            return;
        }
        let is_watched = |session: &crate::session::TrackedSession| {
            self.engine.config.reclaim_of(&session.profile).0 != ReclaimMode::Off
        };
        let sessions: BTreeSet<SessionId> =
            self.engine.sessions.iter().filter(|session| is_watched(session)).map(|session| session.id).collect();
        let watched: BTreeSet<ProcessId> = self
            .engine
            .table
            .living()
            .filter(|process| sessions.contains(&process.session) && !process.verdict.is_kept())
            .map(|process| process.id)
            .collect();
        let idle = &mut self.engine.reclaim.idle;
        idle.retain(&watched);
        let wanted: Vec<ProcessId> = watched.into_iter().filter(|process| idle.wants(*process, self.now)).collect();
        self.ask_for_activity(&wanted);
    }

    /// The first action of an emergency. Returns whether the other actions must wait for it.
    pub(crate) fn reclaim_before_termination(&mut self, kill: bool) -> bool {
        let now = self.now;
        let wait = if kill { KILL_WAIT } else { EMERGENCY_WAIT };
        if let Some(began) = self.engine.reclaim.emergency {
            return now.since(began) < wait && self.engine.reclaim.run.is_some();
        }
        let choice = self.engine.choice_of(ReclaimTrigger::Emergency);
        let possible = self.engine.config.shortest_reclaim_idle().is_some()
            && self.engine.swap_room() > Bytes(0)
            && !self.engine.reclaimable(now, choice).is_empty();
        if !possible {
            return false;
        }
        self.engine.reclaim.emergency = Some(now);
        if self.engine.reclaim.run.is_none() {
            self.begin_run(ReclaimTrigger::Emergency, choice, None);
            self.tick_reclaim();
        }
        true
    }

    /// The next emergency pages out first again.
    pub(crate) fn emergency_ended(&mut self) {
        self.engine.reclaim.emergency = None;
    }
}
