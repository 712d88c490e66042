//! The state of the fleet in the gate. The daemon's workers talk to the store; see [`super::fleet_admission`].

use std::collections::BTreeMap;

use super::launch::Blocker;
use watchdog_types::{AskNumber, BootTime, PoolName, ProcessId};

/// Requests in flight. The store processes them in order, so that more would only queue there.
const MAX_ASKS: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct FleetGate {
    /// `[fleet] store` is set. Fixed at the start: no reload starts or stops the workers.
    pub(super) on: bool,
    last: AskNumber,
    /// Requests without a response. Their launches have a local reservation, unless they left the queue.
    asks: BTreeMap<AskNumber, FleetRequest>,
    /// Full pools. They are not requested until this time, or until the store reports free slots.
    closed: BTreeMap<PoolName, (BootTime, Blocker)>,
    /// What the daemon restates has changed.
    pub(super) changed: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FleetRequest {
    pub(super) process: ProcessId,
    pub(super) asked: BootTime,
}

impl FleetGate {
    pub(crate) fn new(on: bool) -> Self {
        Self { on, ..Self::default() }
    }

    pub(super) fn may_ask(&self) -> bool {
        self.asks.len() < MAX_ASKS
    }

    pub(super) fn begin(&mut self, process: ProcessId, now: BootTime) -> AskNumber {
        self.last = AskNumber(self.last.0 + 1);
        self.asks.insert(self.last, FleetRequest { process, asked: now });
        self.last
    }

    /// `None` for a request that timed out.
    pub(super) fn end(&mut self, number: AskNumber) -> Option<FleetRequest> {
        self.changed = true;
        self.asks.remove(&number)
    }

    pub(super) fn asks(&self) -> impl Iterator<Item = (AskNumber, FleetRequest)> {
        self.asks.iter().map(|(number, request)| (*number, *request))
    }

    /// All requests up to this number have a response or have timed out.
    pub(super) fn settled(&self) -> AskNumber {
        self.asks.keys().next().map_or(self.last, |first| AskNumber(first.0 - 1))
    }

    pub(super) fn close(&mut self, pool: PoolName, until: BootTime, blocker: Blocker) {
        self.closed.insert(pool, (until, blocker));
    }

    pub(super) fn closed(&self, pool: &PoolName, now: BootTime) -> Option<&Blocker> {
        self.closed.get(pool).filter(|(until, _)| *until > now).map(|(_, blocker)| blocker)
    }

    pub(super) fn reopen(&mut self) {
        self.closed.clear();
    }

    /// When the first full pool may be requested again.
    pub(super) fn due(&self) -> Option<BootTime> {
        self.closed.values().map(|(until, _)| *until).min()
    }

    pub(super) fn expire(&mut self, now: BootTime) {
        self.closed.retain(|_, (until, _)| *until > now);
    }
}
