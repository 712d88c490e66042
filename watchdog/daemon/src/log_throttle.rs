//! Warnings that may occur a thousand times a second, logged once a minute.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// The shortest time between two logged warnings of one kind.
const INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct ThrottledWarning {
    last: Option<Instant>,
    suppressed: u64,
}

impl ThrottledWarning {
    /// Logs a warning; within a minute of the last it is only counted, and the next one reports the count.
    pub(super) fn warn(&mut self, warning: impl Display) {
        if self.last.is_some_and(|last| last.elapsed() < INTERVAL) {
            self.suppressed += 1;
            return;
        }
        match self.suppressed {
            0 => tracing::warn!("{warning}"),
            suppressed => tracing::warn!("{warning} ({suppressed} similar warnings suppressed)"),
        }
        *self = Self { last: Some(Instant::now()), suppressed: 0 };
    }
}
