//! Ages and shares.

use jiff::Timestamp;
use watchdog_types::units;

/// How long ago a time was; the text itself if it is no time.
pub(super) fn age(moment: &str) -> String {
    units::age(moment, Timestamp::now()).map_or_else(|| moment.to_owned(), units::span)
}

/// The part of `whole`, from 0 to 1.
#[expect(clippy::cast_precision_loss, reason = "a bar has a few hundred pixels")]
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
}
