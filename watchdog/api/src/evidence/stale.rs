//! Idle helpers of a finished task.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ProcessKind;
use watchdog_types::units::{size, span};
use watchdog_types::{Bytes, Pid, Ticks};

/// Equal helpers below one parent that have been idle since a younger one was started, or since their subagent finished.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StaleEvidence {
    pub count: usize,
    /// Helpers of this kind below the parent, idle or not.
    pub equals: usize,
    /// Of the one that has been idle for the shortest time.
    pub idle_seconds: Option<u64>,
    pub memory_bytes: Bytes,
    pub name: String,
    pub oldest_age_seconds: u64,
    pub parent_name: String,
    pub parent_pid: Pid,
    pub process_count: usize,
    pub process_kind: ProcessKind,
    pub processes: Vec<StaleHelper>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_per_hour: Option<f64>,
    /// Helpers whose stdin is closed.
    pub stdin_closed: usize,
    /// Helpers that do not read what waits in their stdin.
    #[serde(default)]
    pub stdin_unread: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagent_finished_seconds_ago: Option<u64>,
    pub youngest_equal_age_seconds: u64,
}

/// An idle helper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StaleHelper {
    pub age_seconds: u64,
    pub idle_seconds: u64,
    pub memory_bytes: Bytes,
    pub pid: Pid,
    pub start_time: Ticks,
}

impl StaleEvidence {
    pub(super) fn facts(&self) -> Vec<String> {
        let seconds = |seconds| span(Duration::from_secs(seconds));
        let mut facts = Vec::new();
        if let Some(idle) = self.idle_seconds {
            let oldest = seconds(self.oldest_age_seconds);
            facts.push(format!("idle for {} or longer; the oldest is {oldest} old", seconds(idle)));
        }
        if self.equals > 0 {
            let youngest = seconds(self.youngest_equal_age_seconds);
            facts.push(format!("{} of this kind in all, the youngest {youngest} old", self.equals));
        }
        if let Some(rate) = self.started_per_hour {
            facts.push(format!("{rate} started per hour"));
        }
        if self.stdin_closed > 0 {
            facts.push(format!("stdin of {} is closed", self.stdin_closed));
        }
        if self.stdin_unread > 0 {
            facts.push(format!("input of {} waits in stdin, unread", self.stdin_unread));
        }
        facts.extend(self.processes.iter().map(|helper| {
            let (memory, idle) = (size(helper.memory_bytes.0), seconds(helper.idle_seconds));
            format!("pid {}, {memory}, idle for {idle}", helper.pid)
        }));
        facts
    }
}

impl fmt::Display for StaleEvidence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.subagent_finished_seconds_ago {
            Some(_) => "left by a finished subagent",
            None if self.stdin_closed == self.count => "stdin closed, superseded by others",
            None if self.stdin_unread == self.count => "stdin unread, superseded by others",
            None if self.stdin_closed + self.stdin_unread == self.count => {
                "stdin closed or unread, superseded by others"
            }
            None => "superseded by younger ones",
        };
        let (memory, parent) = (size(self.memory_bytes.0), &self.parent_name);
        write!(out, "{} idle {} ({memory}) below {parent} (pid {}), {why}", self.count, self.name, self.parent_pid)
    }
}
