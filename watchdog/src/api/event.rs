//! `GET /v1/events`: what happened, one JSON object a line.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The last events, for `watchdogctl events --json` without `--follow`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Events {
    /// The oldest first.
    pub events: Vec<Event>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Counted up by the daemon: a gap means that the journal has let go of what was there.
    pub seq: u64,
    /// When, RFC 3339.
    pub at: String,
    /// `session_started`, `session_ended`, `fork`, `exec`, `exit`, `signal`, `oom`, `death`, `finding`, `action`,
    /// `actions_held_back`, `launch_granted`, `breaker`, `denied`, `reconciled`, `reclaim`, `memory_step`; and `gap`, where
    /// somebody who follows was too slow for as many as `missed` says.
    #[serde(rename = "type")]
    pub kind: String,
    /// The process that it concerns.
    pub pid: Option<u32>,
    /// That process's start, field 22 of /proc/PID/stat.
    pub start_time: Option<u64>,
    /// Its session.
    pub session: Option<u64>,
    /// The rest, by type.
    #[serde(flatten)]
    pub detail: Map<String, Value>,
}
