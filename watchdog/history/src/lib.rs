//! The history: events that outlive the daemon, in one file of the state directory.
//!
//! Writing goes [`codec`] ─► [`Store`]; reading [`HistoryLines`] ─► [`HistoryRecords`] or [`postmortem`](mod@postmortem),
//! with no lock and no daemon needed.
//!
//! # The file
//!
//! `history.log` begins with a line that says what it is. Each further line is a record as JSON behind its CRC-32 in eight
//! hexadecimal digits. Lines are only appended, a batch at a time; when the file has grown too large or too old, the
//! records that stay are copied into `history.new`, which then replaces it.
//!
//! So a daemon that is killed leaves at most a truncated last line, and a faulty disk costs only the lines that it damages.
//! `cut -c 10- history.log | jq` shows the records.
//!
//! # Budgets
//!
//! A [`RepeatCounter`] filters what is written: repeated events are counted, and each user and session has a budget. When the
//! file is too large, the owners with the most bytes lose their oldest records, so no user displaces the records of another.
//!
//! # Why no database
//!
//! A few records a minute are appended, and rarely read, always from end to end: that needs no tree of pages. The daemon uses a
//! dozen MiB in all, and a panic ends it. Three embedded stores were compared, each with 2,000 durable commits of a record and
//! its smallest cache; sizes are those beyond an empty program:
//!
//! | | program | resident | written to disk | truncated file | 512 garbled bytes |
//! | --- | --- | --- | --- | --- | --- |
//! | redb 4.6 | 0.8 MiB | 1.1 MiB | 60 MB | none of 500 opens | 272 of 500 panic when read as text, 5 behind its own check |
//! | SQLite (rusqlite 0.43) | 1.9 MiB | 2.4 MiB | 19 MB | not tried | not tried |
//! | fjall 3.1 | 1.0 MiB | 2.5 MiB | 9 MB | not tried | not tried |
//! | this | 0.03 MiB | 0.1 MiB | 9 MB | all but the last line | all but the lines in it |
//!
//! SQLite is C, while the daemon builds with a Rust toolchain alone, also for musl; fjall is a directory of files with its
//! own threads.

mod budgets;
pub mod codec;
mod compact;
mod filter;
mod holdings;
mod ids;
pub mod postmortem;
mod read;
mod records;
mod repeats;
mod store;

#[cfg(test)]
mod tests;

pub use compact::StoreLimits;
pub use filter::RecordFilter;
pub use ids::last_ids;
pub use read::{HistoryLines, HistoryReadError, RecordHead, StoredLine, open};
pub use records::{HistoryRecords, ReadStep};
pub use repeats::{Occurrence, RepeatCount, RepeatCounter, Urgency};
pub use store::{Repair, StateDirLock, Store, StoreError};

/// In the state directory.
pub const FILE: &str = "history.log";
/// A copy that is being written, before it replaces [`FILE`].
const NEXT: &str = "history.new";
/// The first line of the file.
const HEADER: &[u8] = b"agent-watchdog history 1\n";
