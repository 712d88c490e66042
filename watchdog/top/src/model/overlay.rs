//! What is drawn over the table.

use watchdog_api::client::ConfirmedAction;
use watchdog_api::{Explanation, Planned, ReclaimRun, ReclaimRunState, Subject};

/// A window over the table, with the lines that are scrolled away.
#[derive(Clone, Debug)]
pub(crate) struct Overlay {
    pub(crate) content: OverlayContent,
    pub(crate) scroll: usize,
}

#[derive(Clone, Debug)]
pub(crate) enum OverlayContent {
    Help,
    /// The daemon works on it.
    Busy(String),
    /// What an action would do, and the question.
    Plan(ConfirmedAction, Box<Planned>),
    Question(PlainAction),
    /// What an action did, or is doing.
    Receipts(Box<Planned>),
    /// What a page-out would do, does or did.
    PageOut(Box<ReclaimRun>),
    /// The hosts of the fleet, in place of the table.
    Fleet,
    /// The process, if it is about one.
    Explanation(Option<u32>, Box<Explanation>),
    /// A title and lines that may hold anything.
    Message(String, String),
}

/// An action without a plan: it terminates nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlainAction {
    Adopt(Subject),
    Unadopt(Subject),
    /// Without a subject everything that is held.
    Thaw(Option<Subject>),
}

/// A line that the user types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prompt {
    pub(crate) purpose: PromptPurpose,
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PromptPurpose {
    Filter,
    Search,
    /// Go to a moment of the past.
    Moment,
}

impl PromptPurpose {
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Filter => "filter: ",
            Self::Search => "search: ",
            Self::Moment => "time (03:00, yesterday 03:00, 2026-01-02 03:00, 2h): ",
        }
    }
}

impl Overlay {
    pub(crate) const fn new(content: OverlayContent) -> Self {
        Self { content, scroll: 0 }
    }

    pub(crate) fn message(title: &str, text: String) -> Self {
        Self::new(OverlayContent::Message(title.to_owned(), text))
    }

    /// Waits for `y` or `n`.
    pub(crate) fn is_question(&self) -> bool {
        match &self.content {
            OverlayContent::Plan(_, planned) => !planned.actions.is_empty(),
            OverlayContent::Question(_) => true,
            OverlayContent::PageOut(run) => run.state == ReclaimRunState::Planned && run.processes > 0,
            OverlayContent::Help
            | OverlayContent::Busy(_)
            | OverlayContent::Receipts(_)
            | OverlayContent::Fleet
            | OverlayContent::Explanation(..)
            | OverlayContent::Message(..) => false,
        }
    }
}

pub(crate) fn subject_name(subject: Subject) -> String {
    match subject {
        Subject::Pid(pid) => format!("process {pid}"),
        Subject::Session(id) => format!("session {id}"),
    }
}

impl PlainAction {
    /// What it does, as a question.
    pub(crate) fn question(self) -> String {
        match self {
            Self::Adopt(subject) => {
                format!("Keep {}? It is never reported as an orphan again.", subject_name(subject))
            }
            Self::Unadopt(subject) => {
                format!("Remove the mark of {}? It can be reported as an orphan again.", subject_name(subject))
            }
            Self::Thaw(Some(subject)) => format!("Resume {}, if it is frozen or throttled?", subject_name(subject)),
            Self::Thaw(None) => "Resume everything that is frozen or throttled?".to_owned(),
        }
    }
}
