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
//! # Why no database
//!
//! The daemon has a dozen MiB, aborts on a panic (a tracker must not run on half a state), and appends a few records a
//! minute that are read from end to end, and seldom. Embedded databases were weighed against that; the measurements are in
//! the commit that added this module.
//!
//! - redb 4.1: pure Rust, one file. Some broken files make it panic when it opens, checks or drops them (its issues 620,
//!   1303 and 1333 tell of a full disk and of single flipped bytes), and a file from a crash while it grows may
//!   never open again: that would be a daemon that does not start, because of its history.
//! - fjall: a directory of files, threads and write buffers of its own.
//! - SQLite: sound with broken files and small, but C: the daemon builds with a Rust toolchain and nothing else, also for
//!   musl.

pub mod line;
pub mod postmortem;
mod read;
mod select;
mod store;

#[cfg(test)]
mod tests;

pub use read::{Found, Head, Lines, ReadError, open};
pub use select::Selection;
pub use store::{Limits, Repair, Store, StoreError};

/// The name of the file in the state directory.
pub const FILE: &str = "history.log";
/// The name under which a new file is written before it takes the place of [`FILE`].
const NEXT: &str = "history.new";
/// The name under which a file that is no history is kept: the last such file only.
pub const SET_ASIDE: &str = "history.set-aside";
/// The first line of the file.
const HEADER: &[u8] = b"agent-watchdog history 1\n";
