//! The write-ahead log of actions: what is about to be done, and its result. After a crash the next daemon knows from it
//! what was done, and what may have been.

use std::collections::BTreeMap;

use crate::state_file::{StateFile, StateFileError, StoredFile};
use watchdog_engine::actions::{Action, ActionLogRecord, Operation, OperationOutcome};
use watchdog_types::{ActionId, BootTime, ProcessId};

/// `actions.jsonl`, and its records of unfinished actions.
#[derive(Debug)]
pub(crate) struct ActionLog {
    file: StateFile<ActionLogRecord>,
    last: ActionId,
    open: OpenActions,
    /// Why the start of an action could not be recorded.
    unrecorded: BTreeMap<ActionId, String>,
}

/// How a process was frozen in an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frozen {
    /// By a signal.
    Alone,
    WithCgroup,
    /// One or the other, or not at all: the daemon was killed in between.
    Unknown,
    Not,
}

impl ActionLog {
    pub(crate) fn new(stored: StoredFile<ActionLogRecord>) -> Self {
        let (mut last, mut open) = (ActionId(0), BTreeMap::new());
        let damaged = stored.is_damaged();
        let restore = |records: Vec<ActionLogRecord>| {
            records.into_iter().for_each(|record| apply_record(record, &mut last, &mut open));
        };
        let file = stored.restore(restore);
        let mut log = Self { file, last, open, unrecorded: BTreeMap::new() };
        if damaged {
            log.rewrite_if_due();
        }
        log
    }

    pub(super) fn begin(&mut self, action: Box<Action>) {
        self.rewrite_if_due();
        let (id, record) = (action.id, ActionLogRecord::Begun(action));
        self.last = self.last.max(id);
        match self.file.append(&record) {
            Ok(()) => self.apply_record(record),
            Err(error) => drop(self.unrecorded.insert(id, error.to_string())),
        }
    }

    /// Why this action must not continue; `None` when its start is recorded.
    pub(super) fn refusal(&self, action: ActionId) -> Option<String> {
        if self.open.contains_key(&action) {
            return None;
        }
        Some(refusal(self.unrecorded.get(&action).map_or("it was never begun", String::as_str)))
    }

    /// Records that this is about to be done to a process.
    ///
    /// # Errors
    ///
    /// When it cannot be recorded; the action must not be done then.
    pub(super) fn record_attempt(
        &mut self,
        action: ActionId,
        operation: Operation,
        process: ProcessId,
        at: BootTime,
    ) -> Result<(), String> {
        self.rewrite_if_due();
        let record = ActionLogRecord::Sending { action, operation, process, at };
        self.file.append(&record).map_err(|error: StateFileError| refusal(&error.to_string()))?;
        self.apply_record(record);
        Ok(())
    }

    pub(super) fn record_result(
        &mut self,
        action: ActionId,
        operation: Operation,
        process: ProcessId,
        outcome: OperationOutcome,
    ) {
        let record = ActionLogRecord::Sent { action, operation, process, outcome };
        // A failure was logged, and the next rewrite contains the record.
        let _ = self.file.append(&record);
        self.apply_record(record);
    }

    pub(super) fn finish(&mut self, action: ActionId) {
        self.unrecorded.remove(&action);
        if self.open.remove(&action).is_some() {
            self.rewrite_if_due();
            // The next rewrite does not contain the action.
            let _ = self.file.append(&ActionLogRecord::Finished(action));
        }
    }

    pub(super) fn frozen(&self, of: ActionId, target: ProcessId) -> Frozen {
        let newest_first = self.open.get(&of).into_iter().flatten().rev();
        let mut found = newest_first.filter_map(|record| match record {
            ActionLogRecord::Sending { operation: Operation::Freeze, process, .. } if *process == target => {
                Some(Frozen::Unknown)
            }
            ActionLogRecord::Sent { operation: Operation::Freeze, process, outcome, .. } if *process == target => {
                Some(match outcome {
                    OperationOutcome::Sent => Frozen::Alone,
                    OperationOutcome::SentToCgroup => Frozen::WithCgroup,
                    OperationOutcome::AlreadyExited
                    | OperationOutcome::Refused(_)
                    | OperationOutcome::NotPermitted(_) => Frozen::Not,
                })
            }
            _ => None,
        });
        found.next().unwrap_or(Frozen::Not)
    }

    /// Makes every later write fail.
    #[cfg(test)]
    pub(super) fn break_writes(&mut self) {
        self.file.break_writes();
    }

    fn apply_record(&mut self, record: ActionLogRecord) {
        apply_record(record, &mut self.last, &mut self.open);
    }

    /// Rewrites the file when it has grown long, or is incomplete.
    fn rewrite_if_due(&mut self) {
        if self.file.is_due() || !self.file.is_whole() {
            self.file.rewrite(&current(self.last, &self.open));
        }
    }
}

type OpenActions = BTreeMap<ActionId, Vec<ActionLogRecord>>;

fn apply_record(record: ActionLogRecord, last: &mut ActionId, open: &mut OpenActions) {
    let action = record.action();
    *last = action.max(*last);
    match record {
        ActionLogRecord::Count(_) => {}
        ActionLogRecord::Finished(_) => drop(open.remove(&action)),
        ActionLogRecord::Begun(_) => drop(open.insert(action, vec![record])),
        ActionLogRecord::Sending { .. } | ActionLogRecord::Sent { .. } => {
            open.entry(action).and_modify(|records| records.push(record));
        }
    }
}

/// The content of a rewritten file.
fn current(last: ActionId, open: &OpenActions) -> Vec<ActionLogRecord> {
    let count = std::iter::once(ActionLogRecord::Count(last));
    count.chain(open.values().flatten().cloned()).collect()
}

fn refusal(why: &str) -> String {
    format!("it could not be recorded: {why}")
}
