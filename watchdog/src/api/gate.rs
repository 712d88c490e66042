//! The gate: asking for a launch, the queue, and what holds the places.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `POST /v1/launch`: asks for a launch. The process that is to become the agent is the one at the other end of the socket,
/// or the one that `pid` names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LaunchRequest {
    /// The profile whose limits hold beside those of the one that recognises the command; null for that one alone.
    pub profile: Option<String>,
    /// What will be executed.
    pub path: String,
    /// Its arguments, as far as they say what it is: the first sixteen are enough.
    pub argv: Vec<String>,
    /// Higher goes first among the launches of one user, -100 to 100; above 0 it counts against others' only if it is root's.
    pub priority: i32,
    /// Refused when it has not been granted after this long; null for the configuration's.
    pub timeout_seconds: Option<f64>,
    /// Refused at once where it would have to wait.
    pub no_wait: bool,
    /// What the session is expected to take; null for what is configured or learned.
    pub memory_bytes: Option<u64>,
    /// Another process than the one that asks: one that it forked, of its own user.
    pub pid: Option<u32>,
    /// Field 22 of that process's stat, without which a pid is no identity.
    pub start_time: Option<u64>,
}

/// A line of the answer to [`LaunchRequest`]. The last is a grant or a refusal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LaunchUpdate {
    /// It waits.
    Waiting(Waiting),
    /// It may start.
    Granted(Grant),
    /// It may not.
    Refused(Refused),
}

/// Where a launch stands in the queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// 1 for the one that goes next.
    pub position: u64,
    /// What it waits for.
    pub reason: RefusalReason,
    /// The same in one sentence, with the numbers.
    pub detail: String,
    /// How long it will take, judged by the last grants; null when there is nothing to judge by.
    pub estimate_seconds: Option<f64>,
}

/// A granted launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    /// Always true.
    pub granted: bool,
    /// The session whose root the process is now.
    pub session: u64,
    /// The profile whose bounds hold.
    pub profile: String,
    /// What is set aside for it until it shows.
    pub memory_bytes: u64,
    /// How long it waited.
    pub waited_seconds: f64,
    /// To be merged into its environment.
    pub environment: BTreeMap<String, String>,
    /// At least this much is to stand in its oom_score_adj.
    pub oom_score_adj: i32,
    /// What the session is held to.
    pub limits: SessionLimits,
}

/// What a session is held to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionLimits {
    /// What all its processes together may take.
    pub max_memory_bytes: Option<u64>,
    /// Helpers that may run at once.
    pub max_helpers: Option<u32>,
    /// How deep agents may start agents.
    pub max_depth: Option<u32>,
    /// The cgroup that holds it, below the root of the hierarchy; null where there is none.
    pub cgroup: Option<String>,
    /// Why there is no cgroup, where one was wanted.
    pub cgroup_problem: Option<String>,
}

/// Why a launch is refused, or waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalReason {
    /// As many sessions run as may.
    Quota,
    /// The host is short of memory.
    Breaker,
    /// There is not enough memory for this one.
    Memory,
    /// As many were started lately as may.
    Rate,
    /// An agent of an agent of an agent.
    Depth,
    /// As many wait as may.
    QueueFull,
    /// It waited for as long as it was willing to, or may.
    Timeout,
    /// Somebody took it out of the queue.
    Cancelled,
}

impl RefusalReason {
    /// Each of them.
    pub const ALL: [Self; 8] = [
        Self::Quota,
        Self::Breaker,
        Self::Memory,
        Self::Rate,
        Self::Depth,
        Self::QueueFull,
        Self::Timeout,
        Self::Cancelled,
    ];

    /// As JSON and metrics name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quota => "quota",
            Self::Breaker => "breaker",
            Self::Memory => "memory",
            Self::Rate => "rate",
            Self::Depth => "depth",
            Self::QueueFull => "queue_full",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A refused launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refused {
    /// Always false.
    pub granted: bool,
    /// In one word.
    pub reason: RefusalReason,
    /// In one sentence: the bound, its value, and what there is.
    pub detail: String,
    /// When it is worth another try; null when it never is.
    pub retry_after_seconds: Option<f64>,
    /// The bound, as the configuration names it: `[gate] max_sessions`.
    pub bound: String,
    /// Those who hold the places; of other users only how many.
    #[serde(default)]
    pub holders: Vec<Occupant>,
}

/// A session that holds a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occupant {
    /// Its number.
    pub session: u64,
    /// Its agent's pid.
    pub pid: u32,
    /// Its profile.
    pub profile: String,
    /// Its user.
    pub user: String,
    /// What it holds now.
    pub memory_bytes: u64,
}

/// `GET /v1/queue`: the gate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// Those who wait, in the order in which they will be served.
    pub waiting: Vec<Waiter>,
    /// Granted launches whose agent lives.
    pub leases: Vec<Lease>,
    /// Launches that were refused lately, the youngest first.
    pub refused: Vec<RefusedLaunch>,
    /// The breaker.
    pub breaker: Breaker,
    /// What there is for launches.
    pub room: Room,
    /// The profiles with their bounds.
    pub profiles: Vec<ProfileBounds>,
}

/// A launch that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waiter {
    /// 1 for the one that goes next.
    pub position: u64,
    /// The process that waits.
    pub pid: u32,
    /// Field 22 of its stat.
    pub start_time: u64,
    /// Its user.
    pub user: String,
    /// The same as a number.
    pub uid: u32,
    /// The profile that was asked for.
    pub profile: String,
    /// Higher goes first.
    pub priority: i32,
    /// Since when, RFC 3339.
    pub queued_at: String,
    /// How long so far.
    pub waited_seconds: f64,
    /// What it waits for.
    pub reason: RefusalReason,
    /// The same in one sentence.
    pub detail: String,
    /// What it is expected to take.
    pub memory_bytes: u64,
    /// Its client was there when the daemon last ended, and has not come back yet.
    pub away: bool,
}

/// A granted launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    /// Its session; null until the table has it.
    pub session: Option<u64>,
    /// Its root.
    pub pid: u32,
    /// Field 22 of its stat.
    pub start_time: u64,
    /// Its user.
    pub user: String,
    /// The same as a number.
    pub uid: u32,
    /// Its profile.
    pub profile: String,
    /// When it was granted, RFC 3339.
    pub granted_at: String,
    /// What it was expected to take.
    pub expected_bytes: u64,
    /// What of that has not shown yet, and is set aside.
    pub promised_bytes: u64,
    /// What the session holds now.
    pub memory_bytes: u64,
}

/// A launch that was refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RefusedLaunch {
    /// When, RFC 3339.
    pub at: String,
    /// The process that asked.
    pub pid: u32,
    /// Its user.
    pub user: String,
    /// The same as a number.
    pub uid: u32,
    /// The profile that was asked for.
    pub profile: String,
    /// In one word.
    pub reason: RefusalReason,
    /// In one sentence.
    pub detail: String,
}

/// The breaker: while it is open nothing is granted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Breaker {
    /// It refuses everything.
    pub open: bool,
    /// Since when, RFC 3339; null while it is closed.
    pub since: Option<String>,
    /// Why, in one sentence; empty while it is closed.
    pub detail: String,
}

/// What there is for launches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Available memory, with the configured share of free swap.
    pub available_bytes: u64,
    /// That share.
    #[serde(default)]
    pub swap_bytes: u64,
    /// What is kept free.
    pub reserve_bytes: u64,
    /// What was granted and has not shown yet.
    pub promised_bytes: u64,
    /// What is left for the next.
    pub free_bytes: u64,
}

/// What holds for a profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileBounds {
    /// Its name.
    pub name: String,
    /// Sessions of it that run.
    pub running: u64,
    /// As many may.
    pub max_sessions: Option<u32>,
    /// What one is expected to take.
    pub expected_bytes: u64,
    /// That was learned from so many past sessions; 0 when it is what is configured.
    pub learned_from: u64,
    /// What one may take.
    pub max_memory_bytes: Option<u64>,
}

/// `POST /v1/queue/cancel`: takes a waiting launch out of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// The process that waits.
    pub pid: u32,
}

/// What was taken out of the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    /// The process that waited.
    pub pid: u32,
}

/// `POST /v1/subagent`: an agent's hook tells of a subagent that runs inside the agent's own process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubagentCall {
    /// What is about to happen, or has.
    pub event: SubagentEvent,
    /// The call's own number, where the agent gives one.
    #[serde(default)]
    pub call: Option<String>,
}

/// What an agent's hook tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubagentEvent {
    /// It is about to start one: may it?
    Start,
    /// One that was started goes on in the background, under this number.
    Background,
    /// One has finished.
    Stop,
    /// The agent's turn is over: of those that it started and waited for, none runs any more.
    TurnEnd,
    /// The whole session is over.
    SessionEnd,
}

/// The answer to [`SubagentCall`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubagentAnswer {
    /// It may start.
    pub allowed: bool,
    /// Why not, in one word.
    pub reason: Option<RefusalReason>,
    /// In one sentence, for the model to read.
    pub detail: String,
    /// Subagents of this session that run now, this one included where it was allowed.
    pub running: u64,
    /// As many may.
    pub max_subagents: Option<u32>,
    /// When it is worth another try.
    pub retry_after_seconds: Option<f64>,
    /// The session, where the caller is in one.
    pub session: Option<u64>,
}
