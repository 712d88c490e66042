//! More memory than the configuration allows.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use watchdog_types::units::{size, span};
use watchdog_types::{Bytes, Pid, SessionId};

/// The limit that is exceeded by the largest factor, and all others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OverlimitEvidence {
    pub limit_bytes: Bytes,
    /// All limits, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<PassedLimit>,
    pub name: Option<String>,
    pub over_for_seconds: u64,
    pub peak_bytes: Bytes,
    /// Of the scopes `process` and `kept`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<Pid>,
    pub profile: String,
    pub scope: LimitScope,
    /// Of the scope `session`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    pub value_bytes: Bytes,
}

/// A limit that is exceeded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PassedLimit {
    pub limit_bytes: Bytes,
    pub over_for_seconds: u64,
    pub peak_bytes: Bytes,
    pub scope: LimitScope,
    pub value_bytes: Bytes,
}

/// What has a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LimitScope {
    /// One process.
    Process,
    /// A kept process with what it started.
    Kept,
    /// A session.
    Session,
    /// All sessions of a profile.
    Profile,
}

impl OverlimitEvidence {
    pub(super) fn facts(&self) -> Vec<String> {
        let over = span(Duration::from_secs(self.over_for_seconds));
        let mut facts = vec![format!("over the limit for {over}, peak {}", size(self.peak_bytes.0))];
        facts.extend(self.limits.iter().map(|limit| {
            let scope = match limit.scope {
                LimitScope::Process => "process",
                LimitScope::Kept => "kept process",
                LimitScope::Session => "session",
                LimitScope::Profile => "profile",
            };
            format!("{scope}: {} of {}", size(limit.value_bytes.0), size(limit.limit_bytes.0))
        }));
        facts
    }
}

impl fmt::Display for OverlimitEvidence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_deref().unwrap_or("a process");
        let pid = self.pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        match self.scope {
            LimitScope::Process => write!(out, "{name}{pid}")?,
            LimitScope::Kept => write!(out, "kept process {name}{pid} with its children")?,
            LimitScope::Session => match self.session {
                Some(session) => write!(out, "session {session}")?,
                None => out.write_str("a session")?,
            },
            LimitScope::Profile => write!(out, "all sessions of {}", self.profile)?,
        }
        write!(out, ": {} of {} allowed", size(self.value_bytes.0), size(self.limit_bytes.0))
    }
}
