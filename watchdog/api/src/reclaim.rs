//! `GET` and `POST /v1/reclaim`: paging out idle sessions.

use std::fmt;

use serde::{Deserialize, Serialize};
use watchdog_types::units::{seconds, size};

/// The body of `POST /v1/reclaim`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ReclaimRequest {
    /// The session, idle or not; null for all idle sessions of the user.
    pub session: Option<u64>,
    /// Only report what would be paged out.
    pub dry_run: bool,
}

/// The response to `GET /v1/reclaim`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Reclaims {
    /// `[reclaim] mode`: `off`, `pressure` or `proactive`.
    pub mode: String,
    /// The current and recent page-outs that the user may see, latest first.
    pub runs: Vec<ReclaimRun>,
}

/// A page-out of one or more sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ReclaimRun {
    /// Its number in this run of the daemon; 0 for a plan.
    pub id: u64,
    /// What started it.
    pub trigger: ReclaimTrigger,
    /// Its state.
    pub state: ReclaimRunState,
    /// The requesting user; null if the daemon started it.
    pub asked_by_uid: Option<u32>,
    /// The session of the request; null for all that were idle.
    pub session: Option<u64>,
    /// When it began, RFC 3339.
    pub began_at: String,
    /// Number of sessions that were paged out, or would be.
    pub sessions: u64,
    /// Number of processes of these sessions.
    pub processes: u64,
    /// Resident memory of these processes before.
    pub resident_before_bytes: u64,
    /// Resident memory afterwards; for a plan the same as before.
    pub resident_after_bytes: u64,
    /// Decrease of their resident memory; for a plan the largest possible decrease.
    pub paged_out_bytes: u64,
    /// Increase of their swapped memory.
    pub swapped_bytes: u64,
    /// Increase of the memory of compressed swap (zram, zswap) on the whole host; null without compressed swap.
    pub compressed_bytes: Option<u64>,
    /// Duration.
    pub seconds: f64,
    /// CPU time used.
    pub cpu_seconds: f64,
    /// Why it ended early; null if it did not.
    pub note: Option<String>,
    /// Processes of these sessions that are not paged out.
    pub exempt: Vec<ReclaimExemption>,
}

/// A process that is not paged out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ReclaimExemption {
    /// The process.
    pub pid: u32,
    /// Its program in one word.
    pub name: String,
    /// The reason.
    pub because: String,
}

/// What started a page-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReclaimTrigger {
    /// A user.
    Request,
    /// The host is nearly short of memory.
    Pressure,
    /// A launch waits for memory.
    Launch,
    /// Memory is nearly exhausted, and policy is about to terminate processes.
    Emergency,
    /// `[reclaim] mode = "proactive"`.
    Proactive,
}

impl ReclaimTrigger {
    /// Why, in a few words.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Request => "requested",
            Self::Pressure => "memory was getting short",
            Self::Launch => "a launch waited for memory",
            Self::Emergency => "memory was nearly exhausted",
            Self::Proactive => "idle",
        }
    }
}

/// The state of a page-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReclaimRunState {
    /// Only a plan.
    Planned,
    /// In progress.
    Running,
    /// Finished.
    Done,
}

impl ReclaimRun {
    fn what(&self) -> String {
        let plural = if self.sessions == 1 { "" } else { "s" };
        match self.session {
            Some(session) => format!("session {session}"),
            None => format!("{} idle session{plural}", self.sessions),
        }
    }
}

/// One sentence: the amount, the sessions, the duration, and the compressed size.
impl fmt::Display for ReclaimRun {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, paged_out) = (self.what(), size(self.paged_out_bytes));
        match self.state {
            ReclaimRunState::Planned | ReclaimRunState::Done if self.processes == 0 && self.session.is_none() => {
                out.write_str("no idle session has memory to page out")?;
            }
            ReclaimRunState::Planned if self.processes == 0 => write!(out, "{what} has no memory to page out")?,
            ReclaimRunState::Planned => write!(out, "would page out up to {paged_out} of {what}")?,
            ReclaimRunState::Running => write!(out, "paging out {what}: {paged_out} so far")?,
            ReclaimRunState::Done if self.processes == 0 => write!(out, "paged out nothing of {what}")?,
            ReclaimRunState::Done => write!(out, "paged out {paged_out} of {what} in {}", seconds(self.seconds))?,
        }
        if let Some(compressed) = self.compressed_bytes {
            write!(out, "; {} in compressed swap", size(compressed))?;
        }
        self.note.iter().try_for_each(|note| write!(out, "; {note}"))
    }
}
