//! Queue positions, wait estimates, and their notifications.

use std::time::Duration;

use super::gate_state::GateState;
use super::launch::{Blocker, DEFAULT_RETRY, QueuePosition};
use super::queue::{QueuedLaunch, ServiceOrder};
use crate::effect::{ClientReply, Effect};
use crate::{Engine, Step};
use watchdog_api::RefusalReason;
use watchdog_types::{BootTime, ProcessId};

/// Positions up to this are notified at once when they change, others with the next tick.
const NOTIFY_AT_ONCE: u64 = 16;

impl Step<'_> {
    pub(super) fn queue_order_blocker(&self) -> Blocker {
        let detail = format!("waiting behind {} launches", self.engine.gate.queue.len());
        Blocker::new(RefusalReason::Quota, detail, "queue order", DEFAULT_RETRY)
    }

    pub(super) fn pace(&self) -> Option<Duration> {
        self.engine.gate.pace(self.now)
    }

    /// Notifies the first launches; the next tick notifies the others.
    pub(super) fn notify_first_positions(&mut self) {
        self.notify_positions(NOTIFY_AT_ONCE);
    }

    /// Notifies clients up to this position whose position or blocker changed.
    pub(super) fn notify_positions(&mut self, up_to: u64) {
        let order = self.engine.order(self.now);
        for (position, number) in (1..=up_to).zip(order) {
            self.notify_position(number, position);
        }
    }

    pub(super) fn notify_position_of(&mut self, process: ProcessId) {
        let Some(number) = self.engine.gate.queue.of(process) else { return };
        let position = self.engine.order(self.now).position(|one| one == number);
        if let Some(position) = position {
            self.notify_position(number, position as u64 + 1);
        }
    }

    fn notify_position(&mut self, number: u64, position: u64) {
        let pace = self.pace();
        let behind = self.queue_order_blocker();
        let gate = &mut self.engine.gate;
        // Launches that the fleet is asked about have no blocker to show.
        let shown = |waiter: &&mut QueuedLaunch| {
            !waiter.client_disconnected && !gate.reserved.contains_key(&waiter.launch.process)
        };
        let Some(waiter) = gate.queue.get_mut(number).filter(shown) else { return };
        let blocker = waiter.blocker.clone().unwrap_or(behind);
        let same = waiter.last_notified.as_ref().is_some_and(|(notified, reason)| {
            *notified == position && (reason.reason, &reason.bound) == (blocker.reason, &blocker.bound)
        });
        if same {
            return;
        }
        waiter.last_notified = Some((position, blocker.clone()));
        let process = waiter.launch.process;
        let estimate = pace.map(|pace| pace * u32::try_from(position).unwrap_or(u32::MAX));
        self.effect(Effect::Reply(ClientReply::Queued(Box::new(QueuePosition {
            process,
            position,
            blocker,
            estimate,
        }))));
    }
}

impl GateState {
    /// Average time between recent grants to queued launches.
    pub(super) fn pace(&self, now: BootTime) -> Option<Duration> {
        let (first, last) = (*self.served.front()?, *self.served.back()?);
        let gaps = u32::try_from(self.served.len()).ok()?.checked_sub(1).filter(|gaps| *gaps > 0)?;
        // A pause in grants lengthens the average.
        Some((last.since(first) / gaps).max(now.since(first) / (gaps + 1)))
    }
}

impl Engine {
    pub(super) fn order(&self, now: BootTime) -> ServiceOrder {
        self.gate.queue.order(now, &self.occupied_slots())
    }
}
