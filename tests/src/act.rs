//! What a daemon did to processes, by its own words and by theirs.

use watchdog::api::{ActionTarget, Actions, Receipt};

use crate::daemon::Daemon;
use crate::proc::{ProcessId, is_alive};
use crate::stage::Stage;

impl Daemon {
    /// The receipts of all actions, those under way too.
    ///
    /// # Panics
    /// As [`Daemon::look`].
    #[must_use]
    pub fn receipts(&self) -> Vec<Receipt> {
        let actions: Actions = serde_json::from_value(self.get("/v1/actions")).expect("receipts");
        actions.actions
    }

    /// The one receipt there is, once its action is over.
    ///
    /// # Panics
    /// As [`Daemon::eventually`], or when there are several.
    pub fn only_receipt(&self, within: std::time::Duration) -> Receipt {
        self.eventually(within, "one action is over", |_| {
            let mut receipts = self.receipts();
            assert!(receipts.len() < 2, "{receipts:#?}");
            receipts.pop().filter(|receipt| receipt.state.is_over())
        })
    }

    /// The receipts of finished actions that `watchdogctl history` tells of.
    ///
    /// # Panics
    /// When it tells nothing, or in another form.
    #[must_use]
    pub fn remembered(&self) -> Vec<Receipt> {
        let answer = self.ctl(&["history"]);
        let records = answer.json()["records"].as_array().cloned().expect("records");
        let receipts = records.into_iter().map(|record| record["receipt"].clone()).filter(|receipt| !receipt.is_null());
        let receipts = receipts.map(|receipt| serde_json::from_value::<Receipt>(receipt).expect("a receipt"));
        receipts.filter(|receipt| receipt.state.is_over()).collect()
    }
}

impl Stage {
    /// How many SIGTERM have come to a process whose script says `count-term terms`.
    ///
    /// # Panics
    /// When it does not count.
    #[must_use]
    pub fn terms(&self, process: ProcessId) -> usize {
        let path = self.directory().join(format!("terms-{}", process.pid));
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).len()
    }
}

/// A process among the targets of a receipt.
///
/// # Panics
/// When it is not there.
#[must_use]
pub fn target(receipt: &Receipt, process: ProcessId) -> &ActionTarget {
    let found =
        receipt.targets.iter().find(|target| (target.pid, target.start_time) == (process.pid, process.start_time));
    found.unwrap_or_else(|| panic!("{process} is no target of {receipt:#?}"))
}

/// What was sent to a process, by the receipt.
///
/// # Panics
/// When it is no target, or something was not sent.
#[must_use]
pub fn sent(receipt: &Receipt, process: ProcessId) -> Vec<&str> {
    let sent = &target(receipt, process).sent;
    assert!(sent.iter().all(|sent| sent.answer == "sent"), "{sent:?}");
    sent.iter().map(|sent| sent.what.as_str()).collect()
}

/// Those of the processes that live.
#[must_use]
pub fn living(processes: &[ProcessId]) -> Vec<ProcessId> {
    processes.iter().copied().filter(|process| is_alive(*process)).collect()
}
