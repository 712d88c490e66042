//! `GET /v1/explain`: why processes died, and why there are findings about them.

use serde::{Deserialize, Serialize};

use super::{Death, Finding, Process, Receipt, SessionState};

/// What is recorded about a process or a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Explanation {
    /// One paragraph for people.
    pub summary: String,
    /// The process, while it lives.
    pub process: Option<Process>,
    /// The session, or that of the process, while it is recorded.
    pub session: Option<SessionBrief>,
    /// Deaths of the process (several if its pid was reused), or the recorded ones of the session. Latest first.
    pub deaths: Vec<Death>,
    /// Findings about it, open ones first.
    pub findings: Vec<Finding>,
    /// Recorded actions on it, or on processes of the session. Latest first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub receipts: Vec<Receipt>,
}

/// A session in brief.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct SessionBrief {
    /// The id, as in `tree`.
    pub id: u64,
    /// The session's profile.
    pub profile: String,
    /// Whether the agent is running.
    pub state: SessionState,
    /// The agent's user id.
    pub uid: u32,
    /// When the agent was forked, RFC 3339.
    pub started_at: String,
    /// Exit of its last process, RFC 3339; null while one lives.
    pub ended_at: Option<String>,
    /// Running processes.
    pub processes: u64,
    /// anon + shmem + swap of all its processes.
    pub memory_bytes: u64,
}
