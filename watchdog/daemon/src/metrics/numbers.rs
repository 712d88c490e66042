//! Numbers of the engine as values of metrics.

use prometheus::IntCounter;

/// Raises a counter to a total that is counted elsewhere.
pub(super) fn raise(counter: &IntCounter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
