//! The same server more than once.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ProcessKind;
use watchdog_types::units::{count, size};
use watchdog_types::{Bytes, Pid, SessionId, Ticks};

/// Servers that one could replace, or that each serve a directory of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DuplicateEvidence {
    pub agents: usize,
    /// What was compared; `None` for build servers, and for language servers whose directories are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<String>,
    pub count: usize,
    /// Different working directories of language servers; `None` where none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directories: Option<usize>,
    /// Language servers whose directory is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directories_unknown: Option<usize>,
    pub memory_bytes: Bytes,
    /// Of several programs, all names.
    pub name: String,
    pub process_kind: ProcessKind,
    pub processes: Vec<DuplicateServer>,
    /// By program, where the same agents have several of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<DuplicateRole>,
    pub sessions: Vec<SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing_would_save_bytes: Option<Bytes>,
}

/// Servers of one program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DuplicateRole {
    pub count: usize,
    pub memory_bytes: Bytes,
    pub name: String,
    pub sharing_would_save_bytes: Option<Bytes>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DuplicateServer {
    pub memory_bytes: Bytes,
    pub pid: Pid,
    pub session: SessionId,
    pub start_time: Ticks,
}

impl DuplicateEvidence {
    pub(super) fn facts(&self) -> Vec<String> {
        let mut facts = Vec::new();
        facts.extend(self.compared.as_ref().map(|compared| format!("compared: {compared}")));
        facts.extend(
            self.servers
                .iter()
                .map(|server| format!("{} {}, {}", server.count, server.name, size(server.memory_bytes.0))),
        );
        facts.extend(self.processes.iter().map(|server| {
            format!("pid {} of session {}, {}", server.pid, server.session, size(server.memory_bytes.0))
        }));
        let unlisted = self.count.saturating_sub(self.processes.len());
        if unlisted > 0 {
            facts.push(format!("and {unlisted} more"));
        }
        facts
    }
}

impl fmt::Display for DuplicateEvidence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, name, memory) = (self.count, &self.name, size(self.memory_bytes.0));
        let agents = || count(self.agents as u64, "agent", "agents");
        let directories = self.directories.unwrap_or_default();
        match self.sharing_would_save_bytes {
            Some(saved) if directories > 0 => {
                let places = count(directories as u64, "directory", "directories");
                let saved = size(saved.0);
                write!(
                    out,
                    "{number} {name} ({memory}) of {} in {places}; one for each directory would save {saved}",
                    agents()
                )
            }
            Some(saved) => {
                let agents = agents();
                let each = if self.servers.is_empty() { "one" } else { "one of each" };
                write!(
                    out,
                    "{number} identical {name} ({memory}) for {agents}; sharing {each} would save {}",
                    size(saved.0)
                )
            }
            None if directories == number => write!(out, "{number} {name} ({memory}), which serve one directory each"),
            None => {
                let unknown = self.directories_unknown.filter(|unknown| *unknown > 0);
                let unknown = unknown.map(|unknown| format!("; the directories of {unknown} are not known"));
                write!(out, "{number} {name} ({memory}) of {}{}", agents(), unknown.unwrap_or_default())
            }
        }
    }
}
