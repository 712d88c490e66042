//! A warning that may come a thousand times a second, said once a minute.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// The time between two warnings of one kind.
const PAUSE: Duration = Duration::from_secs(60);

/// One kind of warning.
#[derive(Debug, Default)]
pub(super) struct Grumble {
    last: Option<Instant>,
    unsaid: u64,
}

impl Grumble {
    /// Warns, unless that was done within the last minute; then it is counted, and the next warning tells the count.
    pub(super) fn say(&mut self, warning: impl Display) {
        if self.last.is_some_and(|last| last.elapsed() < PAUSE) {
            self.unsaid += 1;
            return;
        }
        match self.unsaid {
            0 => tracing::warn!("{warning}"),
            unsaid => tracing::warn!("{warning} (and {unsaid} like it in the last minutes)"),
        }
        *self = Self { last: Some(Instant::now()), unsaid: 0 };
    }
}
