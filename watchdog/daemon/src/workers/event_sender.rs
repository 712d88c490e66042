//! How workers report to the event loop.

use tokio::sync::mpsc;

use super::WorkerEvent;
use crate::worker::ChannelClosed;
use watchdog_engine::input::Input;

/// Sending waits while the queue is full.
#[derive(Clone, Debug)]
pub(super) struct EventSender(pub(super) mpsc::Sender<WorkerEvent>);

impl EventSender {
    pub(super) fn send(&self, event: WorkerEvent) -> Result<(), ChannelClosed> {
        self.0.blocking_send(event).map_err(|_| ChannelClosed)
    }

    /// Never waits: an input that does not fit the queue is dropped.
    pub(super) fn offer_input(&self, input: Input) {
        let _ = self.0.try_send(WorkerEvent::Input(input));
    }

    pub(super) fn send_input(&self, input: Input) -> Result<(), ChannelClosed> {
        self.send(WorkerEvent::Input(input))
    }
}
