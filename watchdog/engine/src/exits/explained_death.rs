//! An exit with its explanation.

use watchdog_api::DeathFacts;
use watchdog_types::BootTime;

/// An exit as the history stores it.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainedDeath {
    pub at: BootTime,
    /// `None` when the kernel reported only a pid.
    pub started: Option<BootTime>,
    pub facts: DeathFacts,
}
