//! Recordings: all inputs of the engine in a file, for a replay with another engine.
//!
//! A recording is JSON lines in gzip, so `zcat` shows it. [`RecordingWriter`] writes a sequence of gzip members, each of whole
//! lines and ended by its length and a CRC-32. A crash cuts off at most the last member, and [`RecordingReader`] reads
//! everything before it. The first line is the [`RecordingHeader`], every other one a [`RecordingEntry`]. Uncompressed lines
//! are read too.
//!
//! The engine is a pure function of its inputs, so a [`replay`] gives the findings that the daemon gave.

mod read;
mod redact;
mod replay;
mod write;

pub use read::{Ending, RecordingReadError, RecordingReader};
pub use redact::Redactor;
pub use replay::{RecordingSummary, Replay, ReplayedChange, ReplayedFinding, replay, run};
pub use write::RecordingWriter;

use serde::{Deserialize, Serialize};

use watchdog_engine::input::Input;
use watchdog_types::BootTime;

/// Version of the format; no other version is read.
pub const VERSION: u32 = 1;

/// The first line of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordingHeader {
    /// [`VERSION`]. The name of this field distinguishes a recording from other JSON.
    pub agent_watchdog_recording: u32,
    /// Version of the daemon.
    pub written_by: String,
    /// Kernel release.
    pub kernel: String,
    /// The boot to which all times refer; empty where it could not be read.
    pub boot_id: String,
    /// Wall-clock time of that boot, in nanoseconds since the Unix epoch.
    pub booted_ns: u64,
    pub began: BootTime,
    /// Whether arguments are complete, instead of redacted by [`Redactor`](crate::Redactor).
    pub whole_argv: bool,
    /// The configuration's TOML, without its comments.
    pub config: String,
}

/// One call of the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingEntry {
    #[serde(rename = "told")]
    Input(BootTime, Input),
    /// A new configuration, as TOML.
    Configured(BootTime, String),
    /// The last entry.
    Ended(BootTime, RecordingEnd),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingEnd {
    Stopped,
    /// The queue of the writer was full; the event loop does not wait for it.
    FellBehind,
    Failed(String),
}

#[cfg(test)]
mod seed_tests;
#[cfg(test)]
mod tests;
