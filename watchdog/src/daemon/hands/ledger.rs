//! What is written down of actions: before anything is done, and after it. A daemon that is started when this one was killed knows
//! from it what is done already, and what may be.

use std::collections::BTreeMap;

use crate::daemon::run_file::{FileError, RunFile, StoredFile};
use crate::engine::act::{Action, ActionRecord, Answer, Blow};
use crate::engine::id::{ActionId, BootTime, ProcessId};

/// `actions.jsonl`, and what stands in it of actions that are not over.
#[derive(Debug)]
pub(in crate::daemon) struct Ledger {
    file: RunFile<ActionRecord>,
    last: ActionId,
    open: OpenActions,
    /// Why the beginning of an action could not be written down.
    unwritten: BTreeMap<ActionId, String>,
}

/// How a process was frozen in an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frozen {
    /// By a signal.
    Alone,
    /// With its cgroup.
    WithCgroup,
    /// One or the other, or not at all: the daemon was killed meanwhile.
    Unknown,
    /// It was not.
    Not,
}

impl Ledger {
    /// The file, and what an earlier run wrote into it. That is kept before anything is written.
    pub(in crate::daemon) fn new(stored: StoredFile<ActionRecord>) -> Self {
        let (mut last, mut open) = (ActionId(0), BTreeMap::new());
        let damaged = stored.is_damaged();
        let restore = |records: Vec<ActionRecord>| {
            records.into_iter().for_each(|record| keep(record, &mut last, &mut open));
        };
        let file = stored.restore(restore);
        let mut ledger = Self { file, last, open, unwritten: BTreeMap::new() };
        if damaged {
            ledger.tend();
        }
        ledger
    }

    /// An action is decided.
    pub(super) fn begin(&mut self, action: Box<Action>) {
        self.tend();
        let (id, record) = (action.id, ActionRecord::Begun(action));
        self.last = self.last.max(id);
        match self.file.append(&record) {
            Ok(()) => self.keep(record),
            Err(error) => drop(self.unwritten.insert(id, error.to_string())),
        }
    }

    /// Why nothing of this action may be done; `None` when its beginning is written down.
    pub(super) fn refusal(&self, action: ActionId) -> Option<String> {
        if self.open.contains_key(&action) {
            return None;
        }
        Some(refusal(self.unwritten.get(&action).map_or("it was never begun", String::as_str)))
    }

    /// This is about to be dealt to a process.
    ///
    /// # Errors
    /// When that could not be written down, and why then nothing is to be done.
    pub(super) fn striking(
        &mut self,
        action: ActionId,
        blow: Blow,
        process: ProcessId,
        at: BootTime,
    ) -> Result<(), String> {
        self.tend();
        let record = ActionRecord::Striking { action, blow, process, at };
        self.file.append(&record).map_err(|error: FileError| refusal(&error.to_string()))?;
        self.keep(record);
        Ok(())
    }

    /// That came of it.
    pub(super) fn struck(&mut self, action: ActionId, blow: Blow, process: ProcessId, answer: Answer) {
        let record = ActionRecord::Struck { action, blow, process, answer };
        // Where that fails it was said, and it is in what is written anew.
        let _ = self.file.append(&record);
        self.keep(record);
    }

    /// Nothing more is done in an action.
    pub(super) fn over(&mut self, action: ActionId) {
        self.unwritten.remove(&action);
        if self.open.remove(&action).is_some() {
            self.tend();
            // It is not in what is written anew.
            let _ = self.file.append(&ActionRecord::Over(action));
        }
    }

    /// How a process was frozen in an action.
    pub(super) fn frozen(&self, of: ActionId, who: ProcessId) -> Frozen {
        let newest_first = self.open.get(&of).into_iter().flatten().rev();
        let mut found = newest_first.filter_map(|record| match record {
            ActionRecord::Striking { blow: Blow::Freeze, process, .. } if *process == who => Some(Frozen::Unknown),
            ActionRecord::Struck { blow: Blow::Freeze, process, answer, .. } if *process == who => Some(match answer {
                Answer::Sent => Frozen::Alone,
                Answer::SentToCgroup => Frozen::WithCgroup,
                Answer::Gone | Answer::Refused(_) | Answer::NotPermitted(_) => Frozen::Not,
            }),
            _ => None,
        });
        found.next().unwrap_or(Frozen::Not)
    }

    /// Nothing more can be written into what is open now.
    #[cfg(test)]
    pub(super) fn fill_up(&mut self) {
        self.file.fill_up();
    }

    /// Takes a record into what holds now.
    fn keep(&mut self, record: ActionRecord) {
        keep(record, &mut self.last, &mut self.open);
    }

    /// Has the file written anew when it has grown long, or does not hold everything.
    fn tend(&mut self) {
        if self.file.is_due() || !self.file.is_whole() {
            self.file.rewrite(&current(self.last, &self.open));
        }
    }
}

/// The records of the actions that are not over.
type OpenActions = BTreeMap<ActionId, Vec<ActionRecord>>;

fn keep(record: ActionRecord, last: &mut ActionId, open: &mut OpenActions) {
    let action = record.action();
    *last = action.max(*last);
    match record {
        ActionRecord::Count(_) => {}
        ActionRecord::Over(_) => drop(open.remove(&action)),
        ActionRecord::Begun(_) => drop(open.insert(action, vec![record])),
        ActionRecord::Striking { .. } | ActionRecord::Struck { .. } => {
            open.entry(action).and_modify(|records| records.push(record));
        }
    }
}

/// All that the file must hold.
fn current(last: ActionId, open: &OpenActions) -> Vec<ActionRecord> {
    let count = std::iter::once(ActionRecord::Count(last));
    count.chain(open.values().flatten().cloned()).collect()
}

fn refusal(why: &str) -> String {
    format!("it could not be written down: {why}")
}
