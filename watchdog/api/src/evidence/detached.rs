//! Processes whose parent exited while their agent lives.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ProcessKind;
use watchdog_types::units::{count, size};
use watchdog_types::{Bytes, Pid, Ticks};

/// Helpers of one agent without the parents that started them, or an agent without its launcher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DetachedEvidence {
    pub agent_alive: bool,
    /// Processes of the session that exited soon after their parent, and are counted only.
    #[serde(default, skip_serializing_if = "is_default")]
    pub brief: u64,
    /// All processes of the finding; `processes` may list fewer. 0 for an agent without its launcher.
    #[serde(default, skip_serializing_if = "is_default")]
    pub count: usize,
    /// Of the oldest process, like all that follows but `memory_bytes` and `processes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd_deleted: Option<bool>,
    /// The parent was the launcher of this agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub launcher_exited: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listens: Option<Vec<String>>,
    /// Of all processes, with what they started.
    pub memory_bytes: Bytes,
    pub name: String,
    /// comm of today's parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_comm: Option<String>,
    pub parent_name: String,
    /// The parent that exited.
    pub parent_pid: Option<Pid>,
    /// Today's parent.
    pub ppid: Pid,
    pub process_kind: ProcessKind,
    /// The largest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<DetachedMember>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tty: Option<bool>,
}

/// A process that outlived its parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DetachedMember {
    /// With what it started.
    pub memory_bytes: Bytes,
    pub name: String,
    pub pid: Pid,
    pub start_time: Ticks,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl DetachedEvidence {
    pub(super) fn facts(&self) -> Vec<String> {
        let mut facts = Vec::new();
        if self.count > 1 {
            let member = |it: &DetachedMember| format!("{} (pid {}), {}", it.name, it.pid, size(it.memory_bytes.0));
            facts.extend(self.processes.iter().map(member));
            let unlisted = self.count.saturating_sub(self.processes.len());
            if unlisted > 0 {
                facts.push(format!("and {unlisted} more"));
            }
        } else {
            let parent = self.parent_comm.as_deref().unwrap_or("unknown");
            facts.push(format!("its parent is now {parent} (pid {})", self.ppid));
            if self.cwd_deleted == Some(true) {
                facts.push("its working directory was removed".into());
            }
            if let Some(listens) = self.listens.as_ref().filter(|listens| !listens.is_empty()) {
                facts.push(format!("listens on {}", listens.join(", ")));
            }
        }
        if self.brief > 0 {
            let processes = count(self.brief, "background process", "background processes");
            facts.push(format!("{processes} of the session exited soon after their parents"));
        }
        facts
    }
}

impl fmt::Display for DetachedEvidence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, memory) = (&self.name, size(self.memory_bytes.0));
        if self.launcher_exited {
            let terminal = if self.tty == Some(true) { "; it still has its terminal" } else { "" };
            return write!(out, "{name} ({memory}) outlived the launcher that started it{terminal}");
        }
        if self.count > 1 {
            let largest = self.processes.first().map_or(name, |largest| &largest.name);
            let processes = format!("{} processes ({memory}) outlived their parents", self.count);
            return write!(out, "{processes}; the largest is {largest}; their agent is running");
        }
        write!(out, "{name} ({memory}) outlived its parent {}; its agent is running", self.parent_name)
    }
}
