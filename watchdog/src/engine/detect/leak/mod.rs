//! Leaks: memory that grows without end, of a process, of a role (one kind of helper, started again and again), and of a
//! session.
//!
//! What is judged is the floor, never the peaks: a garbage collector, a tool call and a restart give back what they took.
//!
//! - [`Series`] keeps the minima of anon + shmem + swap over elapsed boot time, at thirteen scales, in bounded space.
//! - At each scale the lower envelope of the last sixteen minima is asked for a trend by the records test of Foster and
//!   Stuart, for growth that is worth a word, and for straightness (`envelope`); saw-teeth are remembered by their size and taken
//!   off (`teeth`); the slope is that of Theil and Sen (`slope`). One scale finds 50 MiB a minute within a minute, another 20 MiB an hour within a day.
//! - A rise that would reach a [`Ceiling`] within two minutes does not wait for a window (`rise`).
//! - [`Watch`] makes a finding of it, and ends it: given back, or a plateau.
//!
//! What was tried and dropped: Mann-Kendall on the minima themselves, which saw-teeth longer than a span drown; CUSUM,
//! which needs a mean that a warming program does not have; r² of a regression, which a single load raises to 0.9.
//! `cargo xtask eval` has the numbers.
//!
//! The rest is the engine's part: `feed` brings samples to the watches, `group` sums up roles and sessions, `limits` knows the
//! ceilings of each, and `report` says what was found.

mod ceiling;
mod envelope;
mod feed;
mod floors;
mod group;
mod limits;
mod report;
mod rise;
mod series;
mod slope;
mod teeth;
mod watch;

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod trace_tests;
#[cfg(test)]
#[path = "../../../../fixtures/rss-traces/reader.rs"]
pub(in crate::engine) mod traces;

pub use ceiling::{Ceiling, Ceilings, Limit};
pub use series::{Demand, Due, Growth, SERIES_BYTES, Series};
pub use watch::{Change, Found, Watch};

pub(in crate::engine) use feed::Leaks;
