//! `GET /v1/findings`: the conclusions of the detectors.

use serde::{Deserialize, Serialize};

use crate::Evidence;

/// Findings that the user may see.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Findings {
    /// The oldest first.
    pub findings: Vec<Finding>,
}

/// A detector's conclusion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Finding {
    /// Never reused.
    pub id: u64,
    /// What was found.
    pub kind: FindingKind,
    /// How severe it is.
    pub severity: Severity,
    /// The session, if it is about one.
    pub session: Option<u64>,
    /// The process; of a group, its oldest top process.
    pub pid: u32,
    /// That process's start, field 22 of /proc/PID/stat.
    pub start_time: u64,
    /// When it opened, RFC 3339.
    pub opened_at: String,
    /// When it closed, RFC 3339; null while it is open.
    pub closed_at: Option<String>,
    /// Why it closed; null while it is open.
    pub closed_because: Option<String>,
    /// One sentence for people.
    pub summary: String,
    /// The numbers behind it.
    pub evidence: Evidence,
    /// The action that policy proposes: `report` or `terminate`.
    pub proposed_action: String,
    /// The action that was taken; null when there was none.
    pub action_taken: Option<String>,
}

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// Helpers whose nearest agent is dead.
    Orphan,
    /// A helper whose own parent exited while its agent lives.
    Detached,
    /// A helper of a finished task.
    Stale,
    /// The same server again for the same user.
    Duplicate,
    /// An agent whose terminal or session leader has exited.
    Abandoned,
    /// Memory that keeps growing.
    Leak,
    /// Many helpers in a short time.
    Fanout,
    /// Over a configured limit.
    Overlimit,
    /// An agent that was started outside the gate.
    Ungated,
    /// Memory or processes of an agent outside its tree.
    External,
    /// Processes and threads near a limit.
    Tasks,
    /// An agent that the OOM killer spares.
    Protected,
    /// Idle agents of a user that nothing is attached to.
    Unattended,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Information.
    Info,
    /// Needs action.
    Warning,
    /// Needs action at once.
    Critical,
}

impl FindingKind {
    /// Every kind, as the metrics list them.
    pub const ALL: [Self; 13] = [
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
        Self::Tasks,
        Self::Protected,
        Self::Unattended,
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
            Self::Tasks => "tasks",
            Self::Protected => "protected",
            Self::Unattended => "unattended",
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
