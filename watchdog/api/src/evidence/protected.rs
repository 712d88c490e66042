//! Processes that the OOM killer spares.

use std::fmt;

use serde::{Deserialize, Serialize};

use watchdog_types::units::{count, size};
use watchdog_types::{Bytes, Pid, SessionId, Ticks};

/// Agents and helpers whose oom_score_adj is low: those of one service or container, or of one user. What they start
/// inherits it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ProtectedEvidence {
    #[serde(default)]
    pub agents: usize,
    /// Helpers whose agent has no such value, or is dead.
    #[serde(default)]
    pub helpers: usize,
    /// Of the agents' sessions, and of the helpers with the protected processes below them.
    pub memory_bytes: Bytes,
    /// Of the different programs.
    pub name: String,
    /// The lowest.
    pub oom_score_adj: i32,
    /// Counted as the memory.
    pub process_count: usize,
    /// The oldest ones.
    #[serde(default)]
    pub processes: Vec<ProtectedProcess>,
    /// The systemd unit or container of all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ProtectedProcess {
    /// Otherwise a helper.
    pub agent: bool,
    pub memory_bytes: Bytes,
    pub name: String,
    pub oom_score_adj: i32,
    pub pid: Pid,
    pub process_count: usize,
    pub session: SessionId,
    pub start_time: Ticks,
}

impl ProtectedEvidence {
    pub(super) fn facts(&self) -> Vec<String> {
        let number = count(self.process_count as u64, "process", "processes");
        let sum = format!("in all {number}, {}", size(self.memory_bytes.0));
        let listed = self.processes.iter().map(|spared| {
            let ProtectedProcess { name, oom_score_adj, pid, session, .. } = spared;
            let role = if spared.agent { "agent" } else { "a helper" };
            let number = count(spared.process_count as u64, "process", "processes");
            let memory = size(spared.memory_bytes.0);
            format!(
                "{name} (pid {pid}), {role} of session {session}: oom_score_adj {oom_score_adj}, {number}, {memory}"
            )
        });
        let unlisted = (self.agents + self.helpers).saturating_sub(self.processes.len());
        let more = (unlisted > 0).then(|| format!("and {unlisted} more"));
        std::iter::once(sum).chain(listed).chain(more).collect()
    }

    /// `5 agents of agents.service`, or the name of a single process.
    fn subject(&self) -> String {
        let agents = (self.agents > 0).then(|| count(self.agents as u64, "agent", "agents"));
        let helpers = (self.helpers > 0).then(|| count(self.helpers as u64, "helper", "helpers"));
        let numbers: Vec<String> = agents.into_iter().chain(helpers).collect();
        let subject = match (self.agents, self.helpers) {
            (0, 1) => format!("helper {}", self.name),
            (0 | 1, 0) => self.name.clone(),
            _ => format!("{} ({})", numbers.join(" and "), self.name),
        };
        match &self.unit {
            Some(unit) => format!("{subject} of {unit}"),
            None => subject,
        }
    }
}

/// `claude has oom_score_adj -700: when memory runs out, other processes die in its place`
impl fmt::Display for ProtectedEvidence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (subject, lowest) = (self.subject(), self.oom_score_adj);
        let (has, place) = if self.agents + self.helpers > 1 { ("have", "their") } else { ("has", "its") };
        let highest = self.processes.iter().map(|spared| spared.oom_score_adj).max().unwrap_or(lowest);
        let to = if highest > lowest { format!(" to {highest}") } else { String::new() };
        write!(
            out,
            "{subject} {has} oom_score_adj {lowest}{to}: when memory runs out, other processes die in {place} place"
        )
    }
}
