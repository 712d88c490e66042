//! What the loop waits for, and how threads report to it.

use std::io;
use std::sync::mpsc::Sender;

use crossterm::event::Event;

use crate::model::TopMessage;

/// Something that happened outside of the loop.
#[derive(Debug)]
pub(crate) enum AppEvent {
    Terminal(io::Result<Event>),
    Signal(i32),
    Message(TopMessage),
}

/// Where threads report.
#[derive(Clone, Debug)]
pub(crate) struct Reports(pub(crate) Sender<AppEvent>);

impl Reports {
    /// Returns whether the loop still runs.
    pub(crate) fn send(&self, message: TopMessage) -> bool {
        self.0.send(AppEvent::Message(message)).is_ok()
    }
}
