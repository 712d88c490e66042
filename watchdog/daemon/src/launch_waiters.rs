//! Clients that wait for the decision about a launch.

use std::collections::HashMap;

use tokio::sync::watch;

use watchdog_api::LaunchUpdate;
use watchdog_types::ProcessId;

/// The latest update only: earlier positions do not matter to a slow client.
pub(super) type LaunchUpdates = watch::Receiver<Option<LaunchUpdate>>;

#[derive(Debug)]
pub(super) struct LaunchTicket {
    /// Identifies the client when it leaves.
    pub(super) number: u64,
    /// Closed without a decision when the same process asks again.
    pub(super) updates: LaunchUpdates,
}

/// Sends a client its decision.
#[derive(Debug)]
pub(super) struct ReplySender(watch::Sender<Option<LaunchUpdate>>);

impl ReplySender {
    /// A client that has disconnected does not get it.
    pub(super) fn send(self, update: LaunchUpdate) {
        self.0.send_replace(Some(update));
    }
}

/// By the process that becomes the agent.
#[derive(Debug, Default)]
pub(super) struct LaunchWaiters {
    tickets: u64,
    waiting: HashMap<ProcessId, (u64, watch::Sender<Option<LaunchUpdate>>)>,
}

impl LaunchWaiters {
    /// Adds a client. An earlier client for the same process gets no more updates.
    pub(super) fn join(&mut self, process: ProcessId) -> LaunchTicket {
        self.tickets += 1;
        let (sender, updates) = watch::channel(None);
        self.waiting.insert(process, (self.tickets, sender));
        LaunchTicket { number: self.tickets, updates }
    }

    /// Removes a client; returns whether one waited with that ticket.
    pub(super) fn remove(&mut self, process: ProcessId, ticket: u64) -> bool {
        let waits = self.waiting.get(&process).is_some_and(|(number, _)| *number == ticket);
        if waits {
            self.waiting.remove(&process);
        }
        waits
    }

    pub(super) fn update(&self, process: ProcessId, update: LaunchUpdate) {
        if let Some((_, client)) = self.waiting.get(&process) {
            client.send_replace(Some(update));
        }
    }

    /// Removes a client, to send it the decision; `None` when none waits.
    pub(super) fn take_sender(&mut self, process: ProcessId) -> Option<ReplySender> {
        self.waiting.remove(&process).map(|(_, client)| ReplySender(client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use watchdog_api::{RefusalReason, Waiting};
    use watchdog_types::{Pid, Ticks};

    const PROCESS: ProcessId = ProcessId { pid: Pid(1), start_time: Ticks(2) };

    fn position(position: u64) -> LaunchUpdate {
        let detail = String::new();
        LaunchUpdate::Waiting(Waiting { position, reason: RefusalReason::Quota, detail, estimate_seconds: None })
    }

    #[tokio::test]
    async fn slow_client_gets_latest_update() {
        let mut waiters = LaunchWaiters::default();
        let LaunchTicket { mut updates, .. } = waiters.join(PROCESS);
        waiters.update(PROCESS, position(2));
        waiters.update(PROCESS, position(1));
        waiters.take_sender(PROCESS).unwrap().send(position(0));
        updates.changed().await.unwrap();
        assert_eq!(*updates.borrow_and_update(), Some(position(0)));
        assert!(updates.changed().await.is_err(), "no update follows the decision");
        assert!(waiters.take_sender(PROCESS).is_none());
    }

    #[tokio::test]
    async fn second_join_replaces_the_first() {
        let mut waiters = LaunchWaiters::default();
        let mut first = waiters.join(PROCESS);
        let second = waiters.join(PROCESS);
        assert!(first.updates.changed().await.is_err(), "it gets no more updates");
        assert!(!waiters.remove(PROCESS, first.number));
        assert!(waiters.remove(PROCESS, second.number));
        assert!(!waiters.remove(PROCESS, second.number));
    }
}
