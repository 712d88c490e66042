//! Times of records and answers.

use jiff::Timestamp;

/// Rounded to milliseconds.
pub(super) fn wall_clock() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}
