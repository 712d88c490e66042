//! Processes whose agent is dead.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::with;
use crate::ProcessKind;
use watchdog_types::units::{count, size, span};
use watchdog_types::{Bytes, ExitStatus, Pid, Ticks, signals};

/// What a dead agent left behind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OrphanEvidence {
    pub agent_comm: String,
    pub agent_died_seconds_ago: u64,
    pub agent_pid: Pid,
    pub agent_start_time: Ticks,
    /// `None` where the exit itself was not observed.
    pub agent_status: Option<ExitStatus>,
    /// Processes that may be terminated.
    pub clear: usize,
    /// All orphans of the group; `processes` may list fewer.
    pub count: usize,
    /// Nothing is proposed yet.
    pub in_grace: bool,
    /// The name of what died, if it was a kept process, not an agent; `agent_pid` is its pid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper: Option<String>,
    /// Kept processes that the agent left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<OrphanMember>,
    pub memory_bytes: Bytes,
    pub processes: Vec<OrphanMember>,
    pub profile: String,
}

/// A process that outlived its agent. Without arguments: other users may read findings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OrphanMember {
    /// Why its verdict is not clear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd_deleted: Option<bool>,
    pub kind: ProcessKind,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listens: Vec<String>,
    pub memory_bytes: Bytes,
    pub name: String,
    /// comm of today's parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_comm: Option<String>,
    pub pid: Pid,
    pub ppid: Pid,
    pub start_time: Ticks,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tty: Option<bool>,
    pub verdict: MemberVerdict,
}

/// Whether an orphan may be terminated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MemberVerdict {
    /// Nothing speaks for keeping it.
    Clear,
    /// Uncertain: it is only reported.
    Unknown,
    /// It should stay.
    Kept,
}

impl OrphanEvidence {
    pub(super) fn facts(&self) -> Vec<String> {
        let mut facts = Vec::new();
        if self.in_grace {
            facts.push("in the grace period: nothing is proposed yet".into());
        }
        if self.clear < self.count {
            facts.push(format!("{} of {} may be terminated; the others are uncertain", self.clear, self.count));
        }
        facts.extend(self.processes.iter().chain(&self.kept).map(OrphanMember::to_string));
        let unlisted = self.count.saturating_sub(self.processes.len());
        if unlisted > 0 {
            facts.push(format!("and {unlisted} more"));
        }
        facts
    }
}

impl fmt::Display for OrphanEvidence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ago = span(Duration::from_secs(self.agent_died_seconds_ago));
        let how = match self.agent_status {
            Some(ExitStatus::Code(code)) => format!("exited with {code} {ago} ago"),
            Some(ExitStatus::Signal(signal)) => format!("killed by {} {ago} ago", signals::name(signal.into())),
            None => format!("exited {ago} ago"),
        };
        let processes = count(self.count as u64, "orphaned process", "orphaned processes");
        let memory = size(self.memory_bytes.0);
        let from = self.keeper.as_ref().unwrap_or(&self.profile);
        write!(out, "{processes} ({memory}) from {from} (pid {}, {how})", self.agent_pid)
    }
}

impl fmt::Display for OrphanMember {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            MemberVerdict::Clear => "",
            MemberVerdict::Unknown => ", uncertain",
            MemberVerdict::Kept => ", kept",
        };
        write!(out, "{} (pid {}), {}{verdict}", self.name, self.pid, size(self.memory_bytes.0))?;
        out.write_str(&with(": ", self.because.as_deref()))?;
        if self.cwd_deleted == Some(true) {
            out.write_str("; its working directory was removed")?;
        }
        Ok(())
    }
}
