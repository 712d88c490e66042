//! `[gate]`: limits of launches, for the host and per profile.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use super::reader::{Section, TomlReader, assign, assign_count};
use super::values::{self, Size};
use watchdog_types::Bytes;

pub(super) const SESSIONS: RangeInclusive<u32> = 1..=100_000;
/// Not below 0, so that the kernel kills an agent before the host's services. The range above is left to helpers.
const OOM_SCORE: RangeInclusive<u32> = 0..=800;
const DEPTH: RangeInclusive<u32> = 0..=64;
const QUEUE: RangeInclusive<u32> = 0..=100_000;
const HOLD: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(7 * 86_400);
const HEAD_BLOCKS_FOR: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(86_400);
const TIMEOUT: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30 * 86_400);
const RATE_PERIOD: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);

#[derive(Clone, Debug, PartialEq)]
pub struct GateConfig {
    pub max_sessions: Option<u32>,
    pub max_sessions_per_user: Option<u32>,
    /// Nesting of agents that start agents through the gate; 0 forbids it.
    pub max_depth: Option<u32>,
    pub rate: Option<Rate>,
    /// Memory of a session without a value from its profile or past sessions.
    pub expected_memory: Size,
    /// Memory that is never granted.
    pub reserve: Size,
    /// Per cent of free swap that counts as available.
    pub swap_share: u8,
    /// How long expected memory that a session has not yet used stays committed to it.
    pub hold: Duration,
    /// Per cent of memory in use at which the breaker opens and refuses all launches.
    pub breaker_open: u8,
    /// Per cent of memory in use below which it closes.
    pub breaker_close: u8,
    /// Memory pressure (`some avg10`, per cent) that also opens it while memory in use is above `breaker_close`.
    pub breaker_pressure: u8,
    /// How long a launch that waits for memory blocks the queue behind it before smaller ones may pass.
    pub head_blocks_for: Duration,
    pub max_queue: usize,
    /// Default timeout of a waiting launch.
    pub timeout: Duration,
    /// `None`: a finding once the gate is in use.
    pub ungated: Option<Ungated>,
    /// Whether a session with a limit gets its own cgroup, where cgroup v2 is mounted.
    pub cgroups: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileLimits {
    pub max_sessions: Option<u32>,
    /// On all hosts of the fleet together.
    pub fleet_max_sessions: Option<u32>,
    pub rate: Option<Rate>,
    /// Memory of a session until past sessions give a value.
    pub expected_memory: Option<Size>,
    /// Per session, at once.
    pub max_helpers: Option<u32>,
    /// Default: `[gate] max_depth`.
    pub max_depth: Option<u32>,
    /// Subagents inside the agent's own process, at once.
    pub max_subagents: Option<u32>,
    /// The score of the agent. Its helpers get 200 more.
    pub oom_score_adj: Option<i32>,
    /// Default: `[gate] ungated`.
    pub ungated: Option<Ungated>,
    /// `env`: variables that are added to those of a launch.
    pub environment: BTreeMap<String, String>,
}

/// The keys of [`ProfileLimits`] in `[[profile]]`.
pub(super) const PROFILE_LIMIT_KEYS: &[&str] = &[
    "max_sessions",
    "fleet_max_sessions",
    "rate",
    "expected_memory",
    "max_helpers",
    "max_depth",
    "max_subagents",
    "oom_score_adj",
    "ungated",
    "env",
];

/// The response to an agent that was started without the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ungated {
    Allow,
    /// Report a finding.
    Warn,
    /// Refuse its exec, or kill it where the kernel cannot refuse.
    Deny,
}

/// "2 per 5m".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub count: u32,
    pub period: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a rate: a whole number of at least 1 and a time from 1s to 7d are allowed, as in \"2 per 5m\"")]
pub struct RateError;

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let (count, period) = text.split_once(" per ").ok_or(RateError)?;
        let count = count.trim().parse().ok().filter(|count| SESSIONS.contains(count)).ok_or(RateError)?;
        let period =
            values::duration(period.trim()).ok().filter(|period| RATE_PERIOD.contains(period)).ok_or(RateError)?;
        Ok(Self { count, period })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {}", self.count, values::format_duration(self.period))
    }
}

impl GateConfig {
    /// Whether it limits launches. `max_depth` has a default, and does not count.
    #[must_use]
    pub fn has_limit(&self) -> bool {
        self.max_sessions.is_some() || self.max_sessions_per_user.is_some() || self.rate.is_some()
    }
}

impl ProfileLimits {
    /// Whether it limits launches, or the sessions that they begin.
    #[must_use]
    pub fn has_limit(&self) -> bool {
        let counts = [self.max_sessions, self.fleet_max_sessions, self.max_helpers, self.max_depth, self.max_subagents];
        self.rate.is_some() || counts.iter().any(Option::is_some)
    }
}

impl Default for GateConfig {
    fn default() -> Self {
        Self {
            max_sessions: None,
            max_sessions_per_user: None,
            max_depth: Some(4),
            rate: None,
            expected_memory: Size::Bytes(Bytes::from_mib(512)),
            reserve: Size::PercentOfHost(10),
            swap_share: 25,
            hold: Duration::from_secs(600),
            breaker_open: 80,
            breaker_close: 70,
            breaker_pressure: 10,
            head_blocks_for: Duration::from_secs(60),
            max_queue: 1_000,
            timeout: Duration::from_secs(1_800),
            ungated: None,
            cgroups: true,
        }
    }
}

const KEYS: &[&str] = &[
    "max_sessions",
    "max_sessions_per_user",
    "max_depth",
    "rate",
    "expected_memory",
    "reserve",
    "swap_share",
    "hold",
    "breaker_open",
    "breaker_close",
    "breaker_pressure",
    "head_blocks_for",
    "max_queue",
    "timeout",
    "ungated",
    "cgroups",
];

pub(super) fn gate<'t>(reader: &mut TomlReader<'t>, root: Section<'_, 't>, gate: &mut GateConfig) {
    let Some(table) = reader.table(root, "gate", "[gate]", KEYS) else { return };
    assign_some(&mut gate.max_sessions, reader.integer(table, "max_sessions", SESSIONS));
    assign_some(&mut gate.max_sessions_per_user, reader.integer(table, "max_sessions_per_user", SESSIONS));
    assign_some(&mut gate.max_depth, reader.integer(table, "max_depth", DEPTH));
    assign_some(&mut gate.rate, rate(reader, table));
    assign(&mut gate.expected_memory, reader.size(table, "expected_memory"));
    assign(&mut gate.reserve, reader.size(table, "reserve"));
    assign(&mut gate.swap_share, reader.percent(table, "swap_share", 0..=100));
    assign(&mut gate.hold, reader.duration(table, "hold", HOLD));
    assign(&mut gate.breaker_open, reader.percent(table, "breaker_open", 1..=100));
    assign(&mut gate.breaker_close, reader.percent(table, "breaker_close", 1..=100));
    assign(&mut gate.breaker_pressure, reader.percent(table, "breaker_pressure", 1..=100));
    if gate.breaker_close >= gate.breaker_open {
        let (open, close) = (gate.breaker_open, gate.breaker_close);
        let at = table.at();
        reader.report(at, format!("breaker_close: {close}% is not below breaker_open, which is {open}%"));
    }
    assign(&mut gate.head_blocks_for, reader.duration(table, "head_blocks_for", HEAD_BLOCKS_FOR));
    assign_count(&mut gate.max_queue, reader.integer(table, "max_queue", QUEUE));
    assign(&mut gate.timeout, reader.duration(table, "timeout", TIMEOUT));
    assign_some(&mut gate.ungated, ungated(reader, table));
    assign(&mut gate.cgroups, reader.boolean(table, "cgroups").map(|found| found.value));
}

pub(super) fn limits<'t>(reader: &mut TomlReader<'t>, table: Section<'_, 't>) -> ProfileLimits {
    ProfileLimits {
        max_sessions: reader.integer(table, "max_sessions", SESSIONS),
        fleet_max_sessions: reader.integer(table, "fleet_max_sessions", SESSIONS),
        rate: rate(reader, table),
        expected_memory: reader.size(table, "expected_memory"),
        max_helpers: reader.integer(table, "max_helpers", SESSIONS),
        max_depth: reader.integer(table, "max_depth", DEPTH),
        max_subagents: reader.integer(table, "max_subagents", SESSIONS),
        oom_score_adj: reader.integer(table, "oom_score_adj", OOM_SCORE).and_then(|score| i32::try_from(score).ok()),
        ungated: ungated(reader, table),
        environment: reader.environment(table, "env"),
    }
}

fn ungated<'t>(reader: &mut TomlReader<'t>, table: Section<'_, 't>) -> Option<Ungated> {
    let words = &[("allow", Ungated::Allow), ("warn", Ungated::Warn), ("deny", Ungated::Deny)];
    reader.choice(table, "ungated", "\"allow\", \"warn\" or \"deny\"", words)
}

pub(super) fn rate<'t>(reader: &mut TomlReader<'t>, table: Section<'_, 't>) -> Option<Rate> {
    reader.parsed(table, "rate", "a rate, as in \"2 per 5m\"", |text| {
        text.parse().map_err(|error: RateError| error.to_string())
    })
}

fn assign_some<T>(value: &mut Option<T>, found: Option<T>) {
    if found.is_some() {
        *value = found;
    }
}
