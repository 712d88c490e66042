//! Examines single processes. A verdict waits for each, so this worker does nothing else.

use super::event_sender::EventSender;
use crate::log_throttle::ThrottledWarning;
use crate::worker::{ChannelClosed, Worker};
use watchdog_engine::input::Input;
use watchdog_host::inspect::inspect;
use watchdog_types::ProcessId;

#[derive(Debug)]
pub(crate) struct InspectRequest {
    pub(crate) processes: Vec<ProcessId>,
    /// Processes that may hold the other end of their stdin.
    pub(crate) stdin_peers: Vec<ProcessId>,
}

pub(super) struct Inspector {
    events: EventSender,
    warning: ThrottledWarning,
}

impl Inspector {
    pub(super) fn new(events: EventSender) -> Self {
        Self { events, warning: ThrottledWarning::default() }
    }
}

impl Worker for Inspector {
    type Command = InspectRequest;

    fn handle(&mut self, InspectRequest { processes, stdin_peers }: InspectRequest) -> Result<(), ChannelClosed> {
        processes.into_iter().try_for_each(|process| match inspect(process, &stdin_peers) {
            Ok(inspection) => self.events.send_input(Input::Inspected(process, inspection)),
            // What cannot be read is no evidence, so nothing is reported.
            Err(error) => {
                self.warning.warn(format_args!("cannot inspect process {process}: {error}"));
                Ok(())
            }
        })
    }
}
