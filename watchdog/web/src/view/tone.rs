//! Colours by their meaning.

use serde::Serialize;
use watchdog_api::Severity;

/// What a colour means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ViewTone {
    Good,
    Warn,
    Bad,
    Faint,
}

impl ViewTone {
    /// Information has no colour.
    pub(crate) const fn of(severity: Severity) -> Option<Self> {
        match severity {
            Severity::Info => None,
            Severity::Warning => Some(Self::Warn),
            Severity::Critical => Some(Self::Bad),
        }
    }
}
