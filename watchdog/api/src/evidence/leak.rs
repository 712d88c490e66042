//! Memory that grows without end.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::with;
use watchdog_types::Bytes;
use watchdog_types::units::{count, size, span};

/// The growth of a process, a role or a session, and the limit that it meets first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LeakEvidence {
    /// 0 to 1.
    pub confidence: f64,
    /// How many of the role exited before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier_instances: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier_largest_bytes: Option<Bytes>,
    /// Its minima have not risen for 40 % of the shortest window that showed growth.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub flat: bool,
    pub growing_seconds: f64,
    /// Within `window_seconds`.
    pub grown_bytes: Bytes,
    pub growth_bytes_per_second: f64,
    /// The bounds of the rate with 95 %.
    pub growth_high_bytes_per_second: f64,
    pub growth_low_bytes_per_second: f64,
    /// Of a role: how many were started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<LeakLimit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_cgroup: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_left_bytes: Option<Bytes>,
    pub memory_bytes: Bytes,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// How long memory has not been higher than before.
    pub plateau_seconds: f64,
    /// Of a role or session: started since the growth began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes_new: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes_new_bytes: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes_running: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    pub scope: LeakScope,
    /// `None` without a limit, or while memory is flat.
    pub seconds_to_limit: Option<f64>,
    pub total_grown_bytes: Bytes,
    pub window_seconds: f64,
}

/// Whose memory grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LeakScope {
    /// One process.
    Process,
    /// The helpers of a session that run one program, over all their lives.
    Role,
    /// A session.
    Session,
}

/// What ends growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LeakLimit {
    /// `[leaks] limit` or a profile's.
    Configured,
    /// memory.max of a cgroup above the process.
    Cgroup,
    /// The heap limit of V8.
    #[serde(rename = "v8-heap")]
    V8Heap,
    /// What the host has available, with its free swap.
    Host,
}

impl LeakEvidence {
    pub(super) fn facts(&self) -> Vec<String> {
        let seconds = |seconds: f64| span(Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
        let (memory, grown) = (size(self.memory_bytes.0), size(self.total_grown_bytes.0));
        let mut facts = vec![format!("{memory} now, {grown} more than {} ago", seconds(self.growing_seconds))];
        let (low, high) = (rate(self.growth_low_bytes_per_second), rate(self.growth_high_bytes_per_second));
        let window = seconds(self.window_seconds);
        facts.push(format!("rate between {low} and {high} over {window}, confidence {:.2}", self.confidence));
        if let (Some(limit), Some(bytes), Some(left)) = (self.limit, self.limit_bytes, self.limit_left_bytes) {
            let cgroup = with(" ", self.limit_cgroup.as_deref());
            facts.push(match limit {
                LeakLimit::Host => format!("nearest limit: the host, {} left", size(left.0)),
                _ => {
                    format!("nearest limit: {}{cgroup}, {} of {} left", limit.described(), size(left.0), size(bytes.0))
                }
            });
        }
        if let (Some(earlier), Some(largest)) = (self.earlier_instances, self.earlier_largest_bytes) {
            let earlier = count(u64::from(earlier), "earlier instance", "earlier instances");
            facts.push(format!("{earlier} exited with {} at most", size(largest.0)));
        }
        if let (Some(running), Some(new), Some(hold)) =
            (self.processes_running, self.processes_new, self.processes_new_bytes)
        {
            let running = count(running as u64, "process", "processes");
            facts.push(format!("{running} running, {new} of them new with {}", size(hold.0)));
        }
        facts
    }
}

impl LeakLimit {
    /// Every limit.
    pub const ALL: [Self; 4] = [Self::Configured, Self::Cgroup, Self::V8Heap, Self::Host];

    /// The name in JSON and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Cgroup => "cgroup",
            Self::V8Heap => "v8-heap",
            Self::Host => "host",
        }
    }

    const fn described(self) -> &'static str {
        match self {
            Self::Configured => "configured limit",
            Self::Cgroup => "cgroup limit",
            Self::V8Heap => "V8 heap limit",
            Self::Host => "host memory",
        }
    }
}

impl fmt::Display for LeakEvidence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |seconds: f64| span(Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
        match (self.scope, self.instances) {
            (LeakScope::Process, _) | (LeakScope::Role, None) => out.write_str(&self.name)?,
            (LeakScope::Role, Some(instances)) => {
                let running = self.processes_running.unwrap_or_default();
                write!(out, "{} (started {instances} times, {running} running)", self.name)?;
            }
            (LeakScope::Session, _) => write!(out, "the session of {}", self.name)?,
        }
        let growth = rate(self.growth_bytes_per_second);
        if self.flat {
            return write!(out, " grew {growth}; flat for {}", seconds(self.plateau_seconds));
        }
        write!(out, " has grown {growth} for {}", seconds(self.growing_seconds))?;
        match self.limit.zip(self.seconds_to_limit) {
            Some((LeakLimit::Host, left)) => write!(out, "; the host runs out of memory in {}", seconds(left)),
            Some((limit, left)) => write!(out, "; reaches its {} in {}", limit.described(), seconds(left)),
            None => Ok(()),
        }
    }
}

/// In the unit of its size: a leak of a day is not read in bytes per second.
fn rate(bytes_per_second: f64) -> String {
    let mib = bytes_per_second / (1024.0 * 1024.0);
    if mib >= 1.0 {
        format!("{mib:.1} MiB/s")
    } else if mib * 60.0 >= 1.0 {
        format!("{:.1} MiB/min", mib * 60.0)
    } else {
        format!("{:.1} MiB/h", mib * 3_600.0)
    }
}
