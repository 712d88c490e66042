//! The detectors, one a file. Each keeps what it waits for, and says what it found through `Step::observe`.

mod abandoned;
mod build_server;
mod detached;
mod duplicate;
mod external;
mod fanout;
mod helper;
pub mod leak;
mod orphan;
mod overlimit;
mod rest;
mod stale;
mod tmpfs;

pub(super) use abandoned::Abandoned;
pub(super) use build_server::BuildServers;
pub(super) use detached::Detached;
pub(super) use duplicate::Duplicates;
pub(super) use external::External;
pub(super) use fanout::Fanout;
pub(super) use helper::Survey;
pub(super) use leak::Leaks;
pub(super) use orphan::Orphans;
pub(super) use overlimit::Overlimit;
pub(super) use stale::Stale;
pub(super) use tmpfs::TmpfsWatch;

use std::time::Duration;

/// How long a loss is left alone before it is called one: shells exit around their children all the time, and an
/// agent that hangs up takes a moment to do so.
const HOLD_OFF: Duration = Duration::from_millis(500);
