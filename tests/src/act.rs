//! Actions of a daemon: receipts, and what the targets saw.

use watchdog_api::{ActionTarget, Actions, Receipt};

use crate::daemon::Daemon;
use crate::proc::{ProcessKey, is_alive};
use crate::stage::Stage;

impl Daemon {
    /// Receipts of all actions, including running ones.
    ///
    /// # Panics
    /// As [`Daemon::snapshot`].
    pub fn receipts(&self) -> Vec<Receipt> {
        let actions: Actions = serde_json::from_value(self.get("/v1/actions")).expect("receipts");
        actions.actions
    }

    /// Waits for the only action to finish.
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

    /// Receipts in `watchdogctl history`.
    ///
    /// # Panics
    /// Without a valid output.
    pub fn remembered(&self) -> Vec<Receipt> {
        let answer = self.ctl(&["history"]);
        let records = answer.json()["records"].as_array().cloned().expect("records");
        let receipts = records.into_iter().map(|record| record["receipt"].clone()).filter(|receipt| !receipt.is_null());
        let receipts = receipts.map(|receipt| serde_json::from_value::<Receipt>(receipt).expect("a receipt"));
        receipts.filter(|receipt| receipt.state.is_over()).collect()
    }
}

impl Stage {
    /// SIGTERM signals received by a process with `count-term terms` in its script.
    ///
    /// # Panics
    /// Without a count.
    pub fn terms(&self, process: ProcessKey) -> usize {
        let path = self.directory().join(format!("terms-{}", process.pid));
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).len()
    }
}

///
/// # Panics
/// When it is not a target.
#[must_use]
pub fn target(receipt: &Receipt, process: ProcessKey) -> &ActionTarget {
    let found =
        receipt.targets.iter().find(|target| (target.pid, target.start_time) == (process.pid, process.start_time));
    found.unwrap_or_else(|| panic!("{process} is no target of {receipt:#?}"))
}

/// Signals sent to a target, by the receipt.
///
/// # Panics
/// When it is not a target, or a signal was not sent.
#[must_use]
pub fn sent(receipt: &Receipt, process: ProcessKey) -> Vec<&str> {
    let sent = &target(receipt, process).sent;
    assert!(sent.iter().all(|sent| sent.answer == "sent"), "{sent:?}");
    sent.iter().map(|sent| sent.what.as_str()).collect()
}

#[must_use]
pub fn living(processes: &[ProcessKey]) -> Vec<ProcessKey> {
    processes.iter().copied().filter(|process| is_alive(*process)).collect()
}
