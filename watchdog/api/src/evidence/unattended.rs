//! Many idle agents that nothing is attached to.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::user_agents::{SharedAncestor, write_trend};
use watchdog_types::units::{size, span};
use watchdog_types::{Bytes, Pid, SessionId, Ticks};

/// Idle agents of one user in multiplexers that nothing is attached to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UnattendedEvidence {
    /// Agents of the user in all.
    pub agents: u64,
    /// Idle and detached ones.
    pub count: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<SharedAncestor>,
    /// Of the sessions of these.
    pub memory_bytes: Bytes,
    pub oldest_age_seconds: u64,
    /// The oldest ones.
    pub processes: Vec<UnattendedAgent>,
    /// Of all agents of the user.
    pub seconds_to_host_limit: Option<u64>,
    pub swap_bytes: Bytes,
    /// Of all agents of the user.
    pub trend_bytes_per_day: Option<i64>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UnattendedAgent {
    pub age_seconds: u64,
    pub memory_bytes: Bytes,
    pub name: String,
    pub pid: Pid,
    pub session: SessionId,
    pub start_time: Ticks,
}

impl UnattendedEvidence {
    pub(super) fn facts(&self) -> Vec<String> {
        let mut facts = Vec::new();
        if self.swap_bytes.0 > 0 {
            facts.push(format!("{} of their memory is swapped out", size(self.swap_bytes.0)));
        }
        facts.extend(self.depends_on.as_ref().map(ToString::to_string));
        facts.extend(self.processes.iter().map(|agent| {
            let (age, memory) = (span(Duration::from_secs(agent.age_seconds)), size(agent.memory_bytes.0));
            format!("{} (pid {}) of session {}, {memory}, {age} old", agent.name, agent.pid, agent.session)
        }));
        let unlisted = self.count.saturating_sub(self.processes.len());
        if unlisted > 0 {
            facts.push(format!("and {unlisted} more"));
        }
        facts
    }
}

impl fmt::Display for UnattendedEvidence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let oldest = span(Duration::from_secs(self.oldest_age_seconds));
        let (count, memory, agents) = (self.count, size(self.memory_bytes.0), self.agents);
        write!(out, "{count} of {agents} agents are idle and detached, the oldest for up to {oldest}, with {memory}")?;
        write_trend(out, self.trend_bytes_per_day, self.seconds_to_host_limit)
    }
}
