//! The detectors, one a file. Each keeps what it waits for, and says what it found through `Step::observe`.

mod abandoned;
mod detached;
mod external;
mod orphan;

pub(super) use abandoned::Abandoned;
pub(super) use detached::Detached;
pub(super) use external::External;
pub(super) use orphan::Orphans;

use std::time::Duration;

/// How long a loss is left alone before it is called one: shells exit around their children all the time, and an
/// agent that hangs up takes a moment to do so.
const HOLD_OFF: Duration = Duration::from_millis(500);
