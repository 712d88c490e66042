//! Close looks at single processes. A verdict waits for each of them, so nothing else is done here.

use std::sync::mpsc as orders;

use tokio::sync::mpsc;

use super::Report;
use crate::daemon::grumble::Grumble;
use crate::engine::id::ProcessId;
use crate::engine::input::Input;
use crate::host::inspect::inspect;

/// Processes to look at.
#[derive(Debug)]
pub(in crate::daemon) struct Look {
    /// At whom.
    pub(in crate::daemon) processes: Vec<ProcessId>,
    /// Who may hold the other end of their stdin.
    pub(in crate::daemon) peers: Vec<ProcessId>,
}

/// Carries out orders until there is nobody to give or to hear.
pub(super) fn run(orders: &orders::Receiver<Look>, reports: &mpsc::Sender<Report>) {
    let mut refused = Grumble::default();
    for Look { processes, peers } in orders {
        for process in processes {
            match inspect(process, &peers) {
                Ok(inspection) => {
                    if reports.blocking_send(Report::Input(Input::Inspected(process, inspection))).is_err() {
                        return;
                    }
                }
                // No answer is better than a wrong one: what cannot be seen is no evidence.
                Err(error) => refused.say(format_args!("cannot look at process {process}: {error}")),
            }
        }
    }
}
