//! The queue of the gate, its leases and its headroom.

use serde::{Deserialize, Serialize};

use super::gate::RefusalReason;

/// The response to `GET /v1/queue`: the state of the gate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Queue {
    /// Waiting launches, in the order in which they will be served.
    pub waiting: Vec<Waiter>,
    /// Granted launches whose agent is running.
    pub leases: Vec<Lease>,
    /// Recently refused launches, latest first.
    pub refused: Vec<RefusedLaunch>,
    /// The circuit breaker.
    pub breaker: Breaker,
    /// Memory for launches.
    pub room: Headroom,
    /// The profiles and their limits.
    pub profiles: Vec<ProfileBounds>,
}

/// A waiting launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Waiter {
    /// 1 for the next launch.
    pub position: u64,
    /// The waiting process.
    pub pid: u32,
    /// Start time, field 22 of /proc/PID/stat.
    pub start_time: u64,
    /// Its user.
    pub user: String,
    /// Its user, by number.
    pub uid: u32,
    /// The requested profile.
    pub profile: String,
    /// Higher values first.
    pub priority: i32,
    /// When it was queued, RFC 3339.
    pub queued_at: String,
    /// Time in the queue so far.
    pub waited_seconds: f64,
    /// The reason of the wait.
    pub reason: RefusalReason,
    /// The reason, in one sentence.
    pub detail: String,
    /// Expected memory, in bytes.
    pub memory_bytes: u64,
    /// Its client has not reconnected since the daemon was restarted.
    pub away: bool,
}

/// A granted launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Lease {
    /// Its session; null until the process table holds it.
    pub session: Option<u64>,
    /// The root process.
    pub pid: u32,
    /// Start time, field 22 of /proc/PID/stat.
    pub start_time: u64,
    /// Its user.
    pub user: String,
    /// Its user, by number.
    pub uid: u32,
    /// Its profile.
    pub profile: String,
    /// RFC 3339.
    pub granted_at: String,
    /// Expected memory at the grant, in bytes.
    pub expected_bytes: u64,
    /// The part of it that is still reserved, in bytes.
    pub promised_bytes: u64,
    /// Present memory of the session, in bytes.
    pub memory_bytes: u64,
}

/// A refused launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct RefusedLaunch {
    /// Time of the refusal, RFC 3339.
    pub at: String,
    /// The process that was refused.
    pub pid: u32,
    /// Its user.
    pub user: String,
    /// Its user, by number.
    pub uid: u32,
    /// The requested profile.
    pub profile: String,
    /// The reason, in one word.
    pub reason: RefusalReason,
    /// The reason, in one sentence.
    pub detail: String,
}

/// The circuit breaker: while it is open every launch is refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Breaker {
    /// Every launch is refused.
    pub open: bool,
    /// When it opened, RFC 3339; null while it is closed.
    pub since: Option<String>,
    /// The reason, in one sentence; empty while it is closed.
    pub detail: String,
}

/// Memory for launches, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Headroom {
    /// Available memory, including the configured share of free swap.
    pub available_bytes: u64,
    /// That share of free swap.
    #[serde(default)]
    pub swap_bytes: u64,
    /// Kept free.
    pub reserve_bytes: u64,
    /// Granted, but not used yet.
    pub promised_bytes: u64,
    /// Free for the next launch.
    pub free_bytes: u64,
    /// What page-out of idle sessions can be counted on to add, by what their profiles gave before. A launch that lacks
    /// memory starts the page-out, and is granted once the memory is free.
    #[serde(default)]
    pub reclaimable_bytes: u64,
}

/// The limits of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ProfileBounds {
    /// Its name.
    pub name: String,
    /// Running sessions of the profile.
    pub running: u64,
    /// The maximum number of sessions.
    pub max_sessions: Option<u32>,
    /// Expected memory of a session, in bytes.
    pub expected_bytes: u64,
    /// The number of past sessions from which that was learned; 0 when it is configured.
    pub learned_from: u64,
    /// Maximum memory of a session, in bytes.
    pub max_memory_bytes: Option<u64>,
}

/// The body of `POST /v1/queue/cancel`: remove a waiting launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// The waiting process.
    pub pid: u32,
}

/// The launch that was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Cancelled {
    /// The process that was queued.
    pub pid: u32,
}
