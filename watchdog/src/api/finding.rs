//! `GET /v1/findings`: what the detectors concluded.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Findings that the asking user may see.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// The oldest first.
    pub findings: Vec<Finding>,
}

/// A detector's conclusion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Counted up by the daemon, never used again.
    pub id: u64,
    /// What was found.
    pub kind: FindingKind,
    /// How bad it is.
    pub severity: Severity,
    /// The session that it concerns, if one.
    pub session: Option<u64>,
    /// The process that it concerns; of a group, its oldest top.
    pub pid: u32,
    /// That process's start, field 22 of /proc/PID/stat.
    pub start_time: u64,
    /// When it opened, RFC 3339.
    pub opened_at: String,
    /// When it closed, RFC 3339; null while it is open.
    pub closed_at: Option<String>,
    /// Why it closed; null while it is open.
    pub closed_because: Option<String>,
    /// In one sentence, for a person.
    pub summary: String,
    /// The numbers behind it.
    pub evidence: Map<String, Value>,
    /// What policy proposes: `report` or `terminate`.
    pub proposed_action: String,
    /// What was done; null when nothing was.
    pub action_taken: Option<String>,
}

/// What a finding is about, by design.md's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// Helpers whose nearest agent is dead.
    Orphan,
    /// A helper whose own parent exited while its agent lives.
    Detached,
    /// A helper that belongs to a finished task.
    Stale,
    /// The same server once more for the same user.
    Duplicate,
    /// An agent whose terminal or session leader is gone.
    Abandoned,
    /// Memory that grows without end.
    Leak,
    /// Many helpers in a short time.
    Fanout,
    /// Over a configured limit.
    Overlimit,
    /// An agent that was started past the gate.
    Ungated,
    /// Memory or processes of an agent outside its tree.
    External,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Worth doing something about.
    Warning,
    /// Worth doing something about at once.
    Critical,
}

impl FindingKind {
    /// Every kind, as the metrics list them.
    pub const ALL: [Self; 10] = [
        Self::Orphan,
        Self::Detached,
        Self::Stale,
        Self::Duplicate,
        Self::Abandoned,
        Self::Leak,
        Self::Fanout,
        Self::Overlimit,
        Self::Ungated,
        Self::External,
    ];

    /// The name in JSON, metrics and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Orphan => "orphan",
            Self::Detached => "detached",
            Self::Stale => "stale",
            Self::Duplicate => "duplicate",
            Self::Abandoned => "abandoned",
            Self::Leak => "leak",
            Self::Fanout => "fanout",
            Self::Overlimit => "overlimit",
            Self::Ungated => "ungated",
            Self::External => "external",
        }
    }
}

impl Severity {
    /// The name in JSON and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}
