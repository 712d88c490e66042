//! What the daemon restates to the store: the slots of its living sessions. The store is only a copy.

use crate::Step;
use crate::effect::Effect;
use watchdog_api::{RefusalReason, SessionState};
use watchdog_types::{FleetName, HostRow, HostSummary};

impl Step<'_> {
    /// Sends the row if it has changed.
    pub(crate) fn restate_fleet(&mut self) {
        let fleet = &mut self.engine.gate.fleet;
        if !fleet.on || !std::mem::take(&mut fleet.changed) {
            return;
        }
        let row = self.fleet_row();
        self.effect(Effect::RestateFleet(Box::new(row)));
    }

    fn fleet_row(&self) -> HostRow {
        let engine = &*self.engine;
        let host = &engine.close_watch.host;
        let running = engine.sessions.iter().filter(|session| engine.state(session) == SessionState::Running).count();
        let memory = engine.gate_memory(self.now);
        let labels = engine.config.fleet.labels.iter();
        HostRow {
            held: engine.fleet_held(),
            limits: engine.fleet_limits(),
            user_limit: engine.config.fleet.max_sessions_per_user,
            settled: engine.gate.fleet.settled(),
            waiting: self.waiting_for_fleet(),
            summary: HostSummary {
                agents: count(running),
                waiting: count(engine.gate.queue.len()),
                findings: count(engine.findings.open().count()),
                memory_available: memory.map(|memory| memory.free()).unwrap_or_default(),
                memory_total: host.total,
                memory_pressure: host.pressure_some_avg10.unwrap_or_default() as f32,
                host_available: host.available,
                breaker_open: engine.gate.breaker.open().is_some(),
                labels: labels.filter_map(|label| FleetName::new(label).ok()).collect(),
                version: String::new(),
            },
        }
    }

    /// Launches that the fleet blocks, or whose request is pending.
    fn waiting_for_fleet(&self) -> u32 {
        let gate = &self.engine.gate;
        let waits = gate.queue.iter().filter(|(_, waiter)| {
            let blocked = waiter.blocker.as_ref().is_some_and(|blocker| blocker.reason == RefusalReason::Fleet);
            blocked || gate.reserved.contains_key(&waiter.launch.process)
        });
        count(waits.count())
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
