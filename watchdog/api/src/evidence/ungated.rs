//! Past the gate, or out of what the gate confines.

use std::fmt;

use serde::{Deserialize, Serialize};

use watchdog_types::units::size;
use watchdog_types::{Bytes, Pid, Ticks};

/// An agent that was not started with `watchdogctl launch`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UngatedEvidence {
    pub name: String,
    pub policy: UngatedPolicy,
    pub ppid: Pid,
    pub profile: String,
}

/// What the configuration says about such agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UngatedPolicy {
    /// Report them.
    Warn,
    /// Kill them.
    Deny,
}

/// Processes that left the cgroup of their session, or another one with a memory limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LeftCgroupEvidence {
    pub cgroup: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    pub max_helpers: Option<u32>,
    pub max_memory_bytes: Option<Bytes>,
    /// Of all of them.
    pub memory_bytes: Bytes,
    /// Of the oldest.
    pub name: String,
    /// The oldest ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<OutsideProcess>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OutsideProcess {
    pub memory_bytes: Bytes,
    pub name: String,
    pub pid: Pid,
    pub start_time: Ticks,
}

impl UngatedEvidence {
    pub(super) fn facts(&self) -> Vec<String> {
        let policy = match self.policy {
            UngatedPolicy::Warn => "the configuration allows that, and reports it",
            UngatedPolicy::Deny => "the configuration denies that",
        };
        vec![format!("{}: started by pid {}", self.name, self.ppid), policy.into()]
    }
}

impl fmt::Display for UngatedEvidence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} was not started with `watchdogctl launch`", self.profile)
    }
}

impl LeftCgroupEvidence {
    pub(super) fn facts(&self) -> Vec<String> {
        let mut facts = vec![format!("{} outside {}", size(self.memory_bytes.0), self.cgroup)];
        let listed = self.processes.iter();
        facts.extend(listed.map(|it| format!("{} (pid {}), {}", it.name, it.pid, size(it.memory_bytes.0))));
        let unlisted = self.count.unwrap_or_default().saturating_sub(self.processes.len());
        if unlisted > 0 {
            facts.push(format!("and {unlisted} more"));
        }
        facts
    }
}

impl fmt::Display for LeftCgroupEvidence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.max_memory_bytes.map(|max| format!(" of {}", size(max.0))).unwrap_or_default();
        match self.count {
            Some(count) if count > 1 => {
                let (others, memory) = (count - 1, size(self.memory_bytes.0));
                write!(
                    out,
                    "{} and {others} more left the cgroup {} with {memory}: its memory limit{limit} no longer applies to \
                     them",
                    self.name, self.cgroup
                )
            }
            _ => {
                write!(out, "{} left the cgroup {}: its memory limit{limit} no longer applies", self.name, self.cgroup)
            }
        }
    }
}
