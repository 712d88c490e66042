//! What the model receives and what it asks for.

use std::collections::BTreeSet;
use std::time::Duration;

use crossterm::event::{KeyEvent, MouseEvent};
use jiff::Timestamp;
use watchdog_api::client::ConfirmedAction;
use watchdog_api::{Explanation, Planned, ReclaimRun, Record, Shown, Subject};

use super::observation::Observation;
use super::overlay::PlainAction;

/// An input of the model. Errors are texts for people, not escaped.
#[derive(Debug)]
pub(crate) enum TopMessage {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Observed(Box<Observation>),
    /// No observation could be made.
    Unreachable(String),
    /// Records from before the start, for the trends.
    Recent(Vec<Record>),
    Planned(ConfirmedAction, Result<Box<Planned>, String>),
    /// An action runs; its result follows.
    Started(Box<Planned>),
    Acted(Result<Box<Planned>, String>),
    /// What a page-out would do, does or did.
    PagedOut(Result<Box<ReclaimRun>, String>),
    /// The result of a [`PlainAction`], in one sentence.
    Answered(Result<String, String>),
    Explained(Option<u32>, Result<Box<Explanation>, String>),
    /// The records of the window that begins at this moment.
    History(Timestamp, Result<Vec<Record>, String>),
    ReplayLength(Duration),
    /// A recording cannot be read, or not to its end.
    ReplayProblem(String),
    /// Time has passed.
    Elapsed(Duration),
}

/// What the program around the model must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TopRequest {
    Quit,
    Suspend,
    CaptureMouse(bool),
    Poll(PollPlan),
    Plan(ConfirmedAction),
    /// Only on these processes.
    Perform(ConfirmedAction, Vec<Shown>),
    PerformPlain(PlainAction),
    /// Of this session, or of all idle ones.
    PlanPageOut(Option<u64>),
    PageOut(Option<u64>),
    Explain(Subject),
    ReadHistory {
        from: Timestamp,
        to: Timestamp,
    },
    ReplayTo(Duration),
}

/// What is polled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PollPlan {
    pub(crate) paused: bool,
    pub(crate) processes: ProcessInterest,
    /// The fleet is shown.
    pub(crate) fleet: bool,
}

/// Of which sessions processes are shown. Others cost the daemon next to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProcessInterest {
    All,
    Sessions(BTreeSet<u64>),
}

impl Default for ProcessInterest {
    fn default() -> Self {
        Self::Sessions(BTreeSet::new())
    }
}
