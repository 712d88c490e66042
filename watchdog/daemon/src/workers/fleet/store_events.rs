//! Forwards events of the store's threads to the engine, the shared state, and the log.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::fleet_facts::FleetFacts;
use super::fleet_host::FleetHostId;
use crate::log_throttle::ThrottledWarning;
use crate::workers::event_sender::EventSender;
use watchdog_engine::gate::AnsweredAsk;
use watchdog_engine::input::Input;
use watchdog_fleet::{FleetEvent, FleetStoreError, Restated};
use watchdog_types::{FleetAnswer, FleetShares, units};

/// After a shorter outage, launches retry by themselves.
const WAKE_AFTER: Duration = Duration::from_secs(1);

pub(super) struct StoreEvents {
    host: FleetHostId,
    facts: Arc<FleetFacts>,
    events: EventSender,
    log: Mutex<StoreLog>,
}

#[derive(Debug, Default)]
struct StoreLog {
    lost: ThrottledWarning,
    problem: ThrottledWarning,
    /// Shares are in the state directory. They count only while the store is lost.
    shares_stored: bool,
}

impl StoreEvents {
    pub(super) fn new(host: FleetHostId, facts: Arc<FleetFacts>, events: EventSender) -> Self {
        let log = Mutex::new(StoreLog { shares_stored: host.shares.hosts > 0, ..StoreLog::default() });
        Self { host, facts, events, log }
    }

    /// Called by each of the store's threads. Only responses wait for the event loop, so that it never delays a renewal.
    pub(super) fn report(&self, event: FleetEvent) {
        match event {
            FleetEvent::Answered(number, answer) => {
                self.facts.answered(&answer);
                // One slow response is no reason to grant without the store. The workers start a renewal at once, and its
                // result decides whether the store is lost.
                let unconfirmed = matches!(answer, FleetAnswer::StoreLost { .. }) && !self.facts.is_lost();
                let answer = if unconfirmed { FleetAnswer::Void } else { answer };
                let lost = matches!(answer, FleetAnswer::StoreLost { .. });
                let shares = if lost { self.facts.shares() } else { FleetShares::default() };
                let answered = AnsweredAsk { number, answer, shares };
                // There is no receiver when the daemon is stopping.
                let _ = self.events.send_input(Input::FleetAnswer(Box::new(answered)));
            }
            FleetEvent::Restated(result) => self.restated(result),
            FleetEvent::Called => self.events.offer_input(Input::FleetWake),
        }
    }

    fn restated(&self, result: Result<Restated, FleetStoreError>) {
        let (hosts, shares, problem) = match result {
            Ok(Restated::Done { hosts, paused, shares }) => {
                let paused =
                    paused.map(|left| format!("the store is new or lost data: grants pause for {}", units::span(left)));
                (hosts, shares, paused)
            }
            Ok(Restated::Superseded) => {
                let host = &self.host.name;
                let problem = format!("another daemon runs as host {host}; set [fleet] host");
                (self.facts.hosts(), FleetShares::default(), Some(problem))
            }
            Ok(Restated::DuplicateMachine { host }) => {
                let problem = format!("{host} has the same name or machine id: nothing is granted to either");
                (self.facts.hosts(), FleetShares::default(), Some(problem))
            }
            Err(error) => {
                self.facts.renewal_failed();
                self.lost(error.to_string());
                return;
            }
        };
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(problem) = &problem {
            log.problem.warn(format_args!("fleet: {problem}"));
        }
        if std::mem::take(&mut log.shares_stored) {
            self.host.store(&FleetShares::default());
        }
        if let Some(outage) = self.facts.renewed(hosts, shares, problem) {
            // Calls that fail while renewals succeed must not repeat themselves without a pause.
            if outage >= WAKE_AFTER {
                tracing::info!("the fleet's store is back after {}", units::span(outage));
                self.events.offer_input(Input::FleetWake);
            }
        }
    }

    fn lost(&self, why: String) {
        let warning = format!("{why}. Running sessions continue; `watchdogctl fleet` shows what this host may launch");
        if self.facts.lost(why) {
            let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            log.lost.warn(warning);
            log.shares_stored = true;
            self.host.store(&self.facts.shares());
        }
    }
}
