//! Many helpers in a short time.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ProcessKind;
use watchdog_types::units::{count, size};
use watchdog_types::{Bytes, Pid, Ticks};

/// Helpers or agents that one session started within the window, or workers of one command, that still run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FanoutEvidence {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents_at_most: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents_limit: Option<usize>,
    /// Of the host.
    pub available_bytes: Bytes,
    /// The one command whose workers these are. It counts as one helper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<FanoutStarter>,
    /// What the helpers take once they have settled, by earlier ones of their role; `None` where there were none.
    pub expected_bytes: Option<Bytes>,
    pub helpers: usize,
    pub helpers_at_most: usize,
    pub helpers_limit: usize,
    pub memory_bytes: Bytes,
    pub started: u64,
    pub started_by: Vec<FanoutStarter>,
    pub what: Vec<FanoutRole>,
    pub window_seconds: u64,
    /// Of the program of the command that takes the most memory, or of several programs that it runs side by side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers_at_most: Option<usize>,
    /// Those of them whose memory grows without end so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers_growing: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers_limit: Option<usize>,
}

/// A process that started helpers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FanoutStarter {
    pub count: usize,
    pub name: Option<String>,
    pub pid: Pid,
    pub process_kind: Option<ProcessKind>,
    pub start_time: Ticks,
}

/// Helpers that run the same program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FanoutRole {
    pub count: usize,
    pub memory_bytes: Bytes,
    pub name: String,
    pub process_kind: ProcessKind,
    pub steady_each_bytes: Option<Bytes>,
}

impl FanoutEvidence {
    pub(super) fn facts(&self) -> Vec<String> {
        let mut facts = vec![format!("{} available on the host", size(self.available_bytes.0))];
        let helpers = (self.helpers, self.helpers_at_most, self.helpers_limit);
        if let (Some(now), Some(most), Some(limit)) = (self.workers, self.workers_at_most, self.workers_limit) {
            let growing = self.workers_growing.filter(|growing| *growing > 0);
            let growing = growing.map(|growing| format!(", {growing} of them grow")).unwrap_or_default();
            facts.push(format!("{now} workers now, {most} at most, reported above {limit}{growing}"));
        } else {
            facts.push(format!("{} helpers now, {} at most, of {} allowed", helpers.0, helpers.1, helpers.2));
        }
        if let (Some(now), Some(most), Some(limit)) = (self.agents, self.agents_at_most, self.agents_limit) {
            facts.push(format!("{now} agents now, {most} at most, of {limit} allowed"));
        }
        facts.extend(self.what.iter().map(|role| {
            let steady = role.steady_each_bytes.map(|each| format!(", usually {} each", size(each.0)));
            format!("{} {}, {}{}", role.count, role.name, size(role.memory_bytes.0), steady.unwrap_or_default())
        }));
        facts.extend(self.started_by.iter().map(|starter| {
            let name = starter.name.as_deref().unwrap_or("an exited process");
            format!("{} started by {name} (pid {})", starter.count, starter.pid)
        }));
        facts
    }
}

impl FanoutEvidence {
    fn write_command(&self, command: &FanoutStarter, workers: usize, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = command.name.as_deref().unwrap_or("a command");
        let program = self.what.first().filter(|role| role.count >= workers);
        let program = program.map(|role| format!("{} ", role.name)).unwrap_or_default();
        let now = size(self.memory_bytes.0);
        write!(out, "{workers} {program}workers of {name} (pid {}): {now} now", command.pid)?;
        if let Some(expected) = self.expected_bytes {
            write!(out, "; about {} once they are like their elders", size(expected.0))?;
        }
        write!(out, "; {} available", size(self.available_bytes.0))
    }
}

impl fmt::Display for FanoutEvidence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(command), Some(workers)) = (&self.command, self.workers) {
            return self.write_command(command, workers, out);
        }
        let too_many_agents = self.agents_at_most > self.agents_limit;
        let what = if self.helpers_at_most > self.helpers_limit || !too_many_agents {
            count(self.helpers_at_most as u64, "helper", "helpers")
        } else {
            count(self.agents_at_most.unwrap_or_default() as u64, "agent", "agents")
        };
        let starter = self.started_by.first();
        let by = starter.and_then(|starter| Some(format!("{} (pid {})", starter.name.as_deref()?, starter.pid)));
        let by = by.unwrap_or_else(|| "a process that exited".into());
        write!(out, "{what} started within {}s by {by}: {} now", self.window_seconds, size(self.memory_bytes.0))?;
        match self.expected_bytes {
            Some(expected) => write!(out, "; about {} once they reach their usual size", size(expected.0)),
            None => Ok(()),
        }
    }
}
