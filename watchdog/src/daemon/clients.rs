//! Those who asked for a launch and have not been answered yet.

use std::collections::HashMap;

use tokio::sync::watch;

use crate::api::LaunchUpdate;
use crate::engine::id::ProcessId;

/// What a client is told, the last of it: where one that is slow to take it stood before is of no interest.
pub(super) type Updates = watch::Receiver<Option<LaunchUpdate>>;

/// What a client gets for asking.
#[derive(Debug)]
pub(super) struct Ticket {
    /// To be shown by whoever leaves.
    pub(super) number: u64,
    /// What it is told. Closed without a last word when the same process has asked again.
    pub(super) updates: Updates,
}

/// The way to a client for one last word.
#[derive(Debug)]
pub(super) struct Answer(watch::Sender<Option<LaunchUpdate>>);

impl Answer {
    /// Says it. A client that has gone does not hear it.
    pub(super) fn give(self, update: LaunchUpdate) {
        self.0.send_replace(Some(update));
    }
}

/// The clients, by the process that is to become the agent.
#[derive(Debug, Default)]
pub(super) struct Clients {
    tickets: u64,
    waiting: HashMap<ProcessId, (u64, watch::Sender<Option<LaunchUpdate>>)>,
}

impl Clients {
    /// A client has come. One that asked for the same process before is told nothing any more.
    pub(super) fn enter(&mut self, process: ProcessId) -> Ticket {
        self.tickets += 1;
        let (sender, updates) = watch::channel(None);
        self.waiting.insert(process, (self.tickets, sender));
        Ticket { number: self.tickets, updates }
    }

    /// A client has gone; whether anybody waited with that ticket.
    pub(super) fn left(&mut self, process: ProcessId, ticket: u64) -> bool {
        let waits = self.waiting.get(&process).is_some_and(|(number, _)| *number == ticket);
        if waits {
            self.waiting.remove(&process);
        }
        waits
    }

    /// Tells a client where it stands.
    pub(super) fn tell(&self, process: ProcessId, update: LaunchUpdate) {
        if let Some((_, client)) = self.waiting.get(&process) {
            client.send_replace(Some(update));
        }
    }

    /// The client will be told its last word; `None` when nobody waits for one.
    pub(super) fn leave(&mut self, process: ProcessId) -> Option<Answer> {
        self.waiting.remove(&process).map(|(_, client)| Answer(client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{RefusalReason, Waiting};
    use crate::engine::id::{Pid, Ticks};

    const PROCESS: ProcessId = ProcessId { pid: Pid(1), start_time: Ticks(2) };

    fn position(position: u64) -> LaunchUpdate {
        let detail = String::new();
        LaunchUpdate::Waiting(Waiting { position, reason: RefusalReason::Quota, detail, estimate_seconds: None })
    }

    #[tokio::test]
    async fn a_slow_client_hears_the_last_of_what_it_was_told_and_then_the_end() {
        let mut clients = Clients::default();
        let Ticket { mut updates, .. } = clients.enter(PROCESS);
        clients.tell(PROCESS, position(2));
        clients.tell(PROCESS, position(1));
        clients.leave(PROCESS).unwrap().give(position(0));
        updates.changed().await.unwrap();
        assert_eq!(*updates.borrow_and_update(), Some(position(0)));
        assert!(updates.changed().await.is_err(), "nothing comes after the last word");
        assert!(clients.leave(PROCESS).is_none());
    }

    #[tokio::test]
    async fn who_asks_again_takes_the_place_and_the_first_cannot_give_it_up() {
        let mut clients = Clients::default();
        let mut first = clients.enter(PROCESS);
        let second = clients.enter(PROCESS);
        assert!(first.updates.changed().await.is_err(), "it is told nothing any more");
        assert!(!clients.left(PROCESS, first.number));
        assert!(clients.left(PROCESS, second.number));
        assert!(!clients.left(PROCESS, second.number));
    }
}
