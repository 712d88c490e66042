//! Reclaim: idle sessions are paged out before a launch waits for memory and before anything is terminated.
//!
//! [`idle_watch`] measures which processes are idle. [`candidates`] selects and sorts the sessions and processes that may be
//! paged out. A [`run`] pages out one session after another while its trigger ([`triggers`]) holds, until it reaches a limit.
//! [`page_out_record`] tracks the memory that returns, and [`learned_yield`] the memory that profiles release.

mod candidates;
mod idle_watch;
mod learned_yield;
mod obstacle;
mod page_out_order;
mod page_out_record;
mod reclaim_requests;
mod reclaim_state;
mod reclaim_view;
mod run;
mod run_tally;
mod triggers;

pub use self::learned_yield::LearnedYields;
pub use self::reclaim_requests::{ReclaimDemand, ReclaimRequestError};
pub(crate) use self::reclaim_state::ReclaimState;
pub use self::reclaim_state::ReclaimTotals;
