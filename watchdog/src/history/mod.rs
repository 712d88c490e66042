//! The history: what outlives the daemon, in one file of the state directory.
//!
//! Writing goes [`line`](mod@line) ─► [`Store`]; reading [`Lines`] ─► [`Selection`] or [`postmortem`](mod@postmortem),
//! with no lock and no daemon needed.
//!
//! # The file
//!
//! `history.log` begins with a line that says what it is. Each further line is a record as JSON behind its CRC-32 in eight
//! hexadecimal digits. Lines are only ever appended, a batch at a time; when the file has grown too large or too old, what
//! is still worth keeping is copied into `history.new`, which then takes its place.
//!
//! So a daemon that is killed leaves a torn last line at most, and a disk that tears or garbles costs the lines that it
//! garbled: every other one stands for itself. A person finds their way with `cut -c 10- | jq`.
//!
//! # Who may write how much
//!
//! A [`RepeatCounter`] stands before the file: events that repeat are counted, and each user and each session has a budget.
//! When the file is too large, those who hold the most lose their oldest records, so no user displaces the records of another.
//!
//! # Why no database
//!
//! A few records a minute are appended, and seldom read, from end to end: nothing here asks for a tree of pages. The daemon has
//! a dozen MiB in all, and a panic ends it, since a tracker must not run on with half a state. Three embedded stores were tried
//! against that, each with 2,000 durable commits of a record and the smallest cache it takes; sizes are beyond those of an empty program:
//!
//! | | program | resident | written to disk | a torn file | 512 garbled bytes |
//! | --- | --- | --- | --- | --- | --- |
//! | redb 4.6 | 0.8 MiB | 1.1 MiB | 60 MB | none of 500 opens | 272 of 500 panic when read as text, 5 behind its own check |
//! | SQLite (rusqlite 0.43) | 1.9 MiB | 2.4 MiB | 19 MB | not tried | not tried |
//! | fjall 3.1 | 1.0 MiB | 2.5 MiB | 9 MB | not tried | not tried |
//! | this | 0.03 MiB | 0.1 MiB | 9 MB | all but the last line | all but the lines in it |
//!
//! And SQLite is C, while the daemon builds with a Rust toolchain and nothing else, also for musl; fjall is a directory of
//! files with threads of its own.

mod budgets;
mod compact;
mod holdings;
mod ids;
pub mod line;
pub mod postmortem;
mod read;
mod repeats;
mod select;
mod store;

#[cfg(test)]
mod tests;

pub use ids::last_ids;
pub use read::{Found, Head, Lines, ReadError, open};
pub use repeats::{Counted, Occurrence, RepeatCounter, Urgency};
pub use select::Selection;
pub use store::{Limits, Repair, Store, StoreError};

/// The name of the file in the state directory.
pub const FILE: &str = "history.log";
/// The name under which a new file is written before it takes the place of [`FILE`].
const NEXT: &str = "history.new";
/// The first line of the file.
const HEADER: &[u8] = b"agent-watchdog history 1\n";
