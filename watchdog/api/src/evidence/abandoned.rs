//! An agent without its terminal, session leader or client.

use std::fmt;

use serde::{Deserialize, Serialize};

use watchdog_types::units::{count, size};
use watchdog_types::{Bytes, Pid};

/// An agent that lost what it was started from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AbandonedEvidence {
    pub had_terminal: bool,
    /// Processes that it started.
    #[serde(default)]
    pub helpers: u64,
    #[serde(default)]
    pub helpers_memory_bytes: Bytes,
    pub lost: LostAnchor,
    pub memory_bytes: Bytes,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_comm: Option<String>,
    pub ppid: Pid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sid: Option<u32>,
    /// The process that started it, and that has exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starter_pid: Option<Pid>,
    /// The other end of its stdin is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin_closed: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<bool>,
}

/// What an agent lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub enum LostAnchor {
    /// Its terminal.
    #[serde(rename = "terminal")]
    Terminal,
    /// The process that led its terminal's session.
    #[serde(rename = "session leader")]
    SessionLeader,
    /// The program that spoke to it through its stdin.
    #[serde(rename = "client")]
    Client,
}

impl AbandonedEvidence {
    pub(super) fn facts(&self) -> Vec<String> {
        let parent = self.parent_comm.as_deref().unwrap_or("unknown");
        let mut facts = vec![format!("its parent is {parent} (pid {})", self.ppid)];
        if self.stdin_closed == Some(true) {
            facts.push("the other end of its stdin is closed".into());
        }
        if let Some(starter) = self.starter_pid {
            facts.push(format!("the process that started it (pid {starter}) has exited"));
        }
        if self.helpers > 0 {
            let helpers = count(self.helpers, "process", "processes");
            facts.push(format!("it started {helpers} ({})", size(self.helpers_memory_bytes.0)));
        }
        if self.stopped == Some(true) {
            facts.push("it is stopped".into());
        }
        facts
    }
}

impl fmt::Display for AbandonedEvidence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost = match self.lost {
            LostAnchor::Terminal => "its terminal closed",
            LostAnchor::SessionLeader => "its session leader exited",
            LostAnchor::Client => "its client exited and closed its stdin",
        };
        write!(out, "{} ({}) is still running although {lost}", self.name, size(self.memory_bytes.0))
    }
}
