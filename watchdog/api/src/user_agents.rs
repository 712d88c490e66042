//! The agents of one user together, in `GET /v1/status`.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use watchdog_types::units::{size, span};

/// From this oom_score_adj down the OOM killer ends other processes in place of an agent.
pub const PROTECTED_SCORE: i32 = -500;

/// The agents of one user, as last looked at, about once a minute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct UserAgents {
    /// The name, or the uid if there is none.
    pub user: String,
    /// The uid.
    pub uid: u32,
    /// Living agents, without subagents.
    pub agents: u64,
    /// Agents at a terminal, or at one that a multiplexer shows.
    pub attached: u64,
    /// Agents at a terminal of a multiplexer that nothing is attached to.
    pub detached: u64,
    /// Agents without a terminal: services, and those that a program speaks to.
    pub without_terminal: u64,
    /// Agents that did nothing for `[stale] idle`, and their helpers neither; null for a single agent, which is not watched.
    pub idle: Option<u64>,
    /// Living agents that started within the last 24 hours.
    pub started_last_day: u64,
    /// Agents that the OOM killer spares: oom_score_adj of -500 or less.
    pub protected: u64,
    /// Helpers that it spares although their agent has no such value; without what these started.
    #[serde(default)]
    pub protected_helpers: u64,
    /// Age of the oldest agent.
    pub oldest_age_seconds: u64,
    /// Its pid.
    pub oldest_pid: u32,
    /// anon + shmem + swap of their sessions.
    pub memory_bytes: u64,
    /// The part of it that is swapped out.
    pub swap_bytes: u64,
    /// Growth of the hourly minima of `memory_bytes`; null before six hours of them.
    pub trend_bytes_per_day: Option<i64>,
    /// Until that growth meets what the host has available, with swap; null without growth.
    pub seconds_to_host_limit: Option<u64>,
    /// The process above most of them; null where none is above two agents or half of them.
    pub depends_on: Option<SharedAncestor>,
}

/// A process above several agents. When it exits, they lose their terminal or their client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SharedAncestor {
    /// Agents below it.
    pub agents: u64,
    /// Its program or script.
    pub name: String,
    /// Its oom_score_adj.
    pub oom_score_adj: Option<i32>,
    /// Its pid.
    pub pid: u32,
    /// Field 22 of its /proc/PID/stat.
    pub start_time: u64,
}

impl fmt::Display for SharedAncestor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let score = self.oom_score_adj.map(|score| format!(", oom_score_adj {score}")).unwrap_or_default();
        write!(out, "{} depend on {} (pid {}{score})", self.agents, self.name, self.pid)
    }
}

/// `20 agents: 20 idle, 20 detached; oldest 6d 2h; 3 started within a day; 9.1 GiB, 2.0 GiB of it swapped; +1.4 GiB a day`
impl fmt::Display for UserAgents {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let states = [
            (self.idle.unwrap_or_default(), "idle"),
            (self.attached, "attached"),
            (self.detached, "detached"),
            (self.without_terminal, "without a terminal"),
            (self.protected, "protected from the OOM killer"),
        ];
        let states = states.iter().filter(|(number, _)| *number > 0).map(|(number, state)| format!("{number} {state}"));
        let helpers = watchdog_types::units::count(self.protected_helpers, "protected helper", "protected helpers");
        let states: Vec<String> = states.chain((self.protected_helpers > 0).then_some(helpers)).collect();
        write!(out, "{}", watchdog_types::units::count(self.agents, "agent", "agents"))?;
        if !states.is_empty() {
            write!(out, ": {}", states.join(", "))?;
        }
        write!(out, "; oldest {}", span(Duration::from_secs(self.oldest_age_seconds)))?;
        if self.agents > 1 {
            write!(out, "; {} started within a day", self.started_last_day)?;
        }
        write!(out, "; {}", size(self.memory_bytes))?;
        if self.swap_bytes > 0 {
            write!(out, ", {} of it swapped", size(self.swap_bytes))?;
        }
        write_trend(out, self.trend_bytes_per_day, self.seconds_to_host_limit)?;
        self.depends_on.as_ref().map_or(Ok(()), |ancestor| write!(out, "; {ancestor}"))
    }
}

pub(crate) fn write_trend(out: &mut fmt::Formatter<'_>, trend: Option<i64>, seconds: Option<u64>) -> fmt::Result {
    if let Some(trend) = trend {
        let sign = if trend < 0 { '-' } else { '+' };
        write!(out, "; {sign}{} a day", size(trend.unsigned_abs()))?;
    }
    match seconds {
        Some(seconds) => write!(out, ", the host is full in {}", span(Duration::from_secs(seconds))),
        None => Ok(()),
    }
}
