//! Leaks: memory that grows without end, of a process, of a role (one kind of helper, started again and again), and of a
//! session.
//!
//! What is judged is the floor, never the peaks: a garbage collector, a tool call and a restart give back what they took.
//!
//! - [`Series`] keeps the minima of anon + swap, and of shmem for one process of a session (`shared_memory`), over elapsed boot time, at thirteen scales, in bounded space.
//! - At each scale the lower envelope of the last sixteen minima is asked for a trend by the records test of Foster and
//!   Stuart, for the least growth that is reported, and for straightness (`envelope`); saw-teeth are remembered by their size and taken
//!   off (`sawtooth`); the slope is that of Theil and Sen (`slope`). One scale finds 50 MiB a minute within a minute, another 20 MiB an hour within a day.
//! - While memory lasts for hours, growth that is as quick as a load, or slows down, has to outlast loads of its size (`demand`).
//! - A rise that would reach a [`Ceiling`] within two minutes does not wait for a window (`runaway`).
//! - [`Watch`] makes a finding of it, and ends it: given back, or a plateau.
//!
//! What was tried and dropped: Mann-Kendall on the minima themselves, which saw-teeth longer than a span drown; CUSUM,
//! which needs a mean that a warming program does not have; r² of a regression, which a single load raises to 0.9.
//! `cargo xtask eval` has the numbers.
//!
//! The rest is the engine's part: `ingest` brings samples to the watches, `sums` adds up roles and sessions, `limits` knows the
//! ceilings of each, and `report` says what was found.

mod ceiling;
mod crowd;
mod demand;
mod envelope;
mod group;
mod ingest;
mod known_ceilings;
mod minima;
mod onset;
mod report;
mod runaway;
mod sawtooth;
mod series;
mod shared_memory;
mod slope;
mod state;
mod sums;
mod trend;
mod watch;

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod trace_tests;

pub use ceiling::{Ceiling, Ceilings};
pub use demand::Demand;
pub use series::{Due, GrowthEstimate, SERIES_BYTES, Series};
pub use watch::{Change, Found, Watch};
pub use watchdog_api::evidence::LeakLimit;

pub(crate) use state::Leaks;
