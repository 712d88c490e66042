//! Recordings: everything that the engine was told, in a file, to be told to another engine later.
//!
//! A recording is lines of JSON in gzip, so that `zcat` shows it. It is written as a sequence of gzip members
//! ([`Writer`]), each of whole lines and closed by its length and a CRC-32: what a crash cuts off is at most the last
//! member, and [`Reader`] gives everything before it. The first line is the [`Header`], each other one an [`Entry`].
//! Lines that are not compressed are read too.
//!
//! The engine is a pure function of its inputs, so that [`replay`] gives the findings that the daemon gave.

mod read;
mod replay;
mod write;

pub use read::{Ending, ReadError, Reader};
pub use replay::{Change, Replay, Replayed, Summary, replay, run};
pub use write::Writer;

use serde::{Deserialize, Serialize};

use crate::engine::id::BootTime;
use crate::engine::input::Input;

/// The version of the format. Another one is not read.
pub const VERSION: u32 = 1;

/// What a recording begins with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`]; by its name a recording is told from other JSON.
    pub agent_watchdog_recording: u32,
    /// The version of the program that wrote it.
    pub written_by: String,
    /// uname's release.
    pub kernel: String,
    /// The boot that all moments are counted from; empty where it could not be read.
    pub boot_id: String,
    /// Wall-clock time of that boot, in nanoseconds since the Unix epoch.
    pub booted_ns: u64,
    /// When the recording began.
    pub began: BootTime,
    /// Arguments are recorded as they were; else only what [`Redactor`](crate::engine::classify::Redactor) leaves.
    pub whole_argv: bool,
    /// The configuration's TOML, without its comments.
    pub config: String,
}

/// One thing that happened to the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// It was told this at that moment.
    Told(BootTime, Input),
    /// It got this configuration (TOML) at that moment.
    Configured(BootTime, String),
    /// The recording ends; nothing comes after this.
    Ended(BootTime, End),
}

/// Why a recording ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The daemon stopped.
    Stopped,
    /// More happened than could be written; tracking does not wait.
    FellBehind,
    /// The file could not be written.
    Failed(String),
}

#[cfg(test)]
mod seed_tests;
#[cfg(test)]
mod tests;
