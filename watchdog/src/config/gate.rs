//! `[gate]`: what is granted, and what is held back.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use super::reader::{Reader, Section, set, set_count};
use super::values::{self, Size};
use crate::engine::id::Bytes;

const SESSIONS: RangeInclusive<u32> = 1..=100_000;
/// An agent never goes after the host's services, so never below 0; what is left above it is the helpers'.
const OOM_SCORE: RangeInclusive<u32> = 0..=800;
const DEPTH: RangeInclusive<u32> = 0..=64;
const QUEUE: RangeInclusive<u32> = 0..=100_000;
const HOLD: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(7 * 86_400);
const HEAD_BLOCKS_FOR: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(86_400);
const TIMEOUT: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30 * 86_400);
const RATE_PERIOD: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);

/// `[gate]`
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// `max_sessions`: how many sessions may run at once.
    pub max_sessions: Option<u32>,
    /// `max_sessions_per_user`: how many of one user may.
    pub max_sessions_per_user: Option<u32>,
    /// `max_depth`: how deep agents may start agents through the gate; 0 lets no agent start another.
    pub max_depth: Option<u32>,
    /// `rate`: how many launches may be granted in a time.
    pub rate: Option<Rate>,
    /// `expected_memory`: what a session is expected to take where nothing else is known.
    pub expected_memory: Size,
    /// `reserve`: memory that no launch gets.
    pub reserve: Size,
    /// `swap_share`: what share of free swap counts as available, in per cent.
    pub swap_share: u8,
    /// `hold`: for how long what was expected and has not shown is kept for a session.
    pub hold: Duration,
    /// `breaker_open`: from this share of the memory in use on, in per cent, nothing is granted,
    pub breaker_open: u8,
    /// `breaker_close`: until it is below this share again.
    pub breaker_close: u8,
    /// `breaker_pressure`: this much memory pressure (`some avg10`, in per cent) opens it as well, once memory is above
    /// `breaker_close`.
    pub breaker_pressure: u8,
    /// `head_blocks_for`: how long a launch that waits for memory holds back those behind it, before some may pass.
    pub head_blocks_for: Duration,
    /// `max_queue`: how many launches may wait.
    pub max_queue: usize,
    /// `timeout`: how long a launch waits that says nothing about it.
    pub timeout: Duration,
    /// `ungated`: what becomes of an agent that was started past the gate.
    pub ungated: Ungated,
    /// `cgroups`: whether a session that has a bound gets a cgroup of its own, where there is cgroup v2.
    pub cgroups: bool,
}

/// What the gate holds the sessions of one profile to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bounds {
    /// `max_sessions`: how many may run at once.
    pub max_sessions: Option<u32>,
    /// `rate`: how many launches may be granted in a time.
    pub rate: Option<Rate>,
    /// `expected_memory`: what a session is expected to take, unless past sessions showed it.
    pub expected_memory: Option<Size>,
    /// `max_helpers`: how many helpers of one session may run at once.
    pub max_helpers: Option<u32>,
    /// `max_depth`: how deep agents may start agents below it; `[gate] max_depth` where it is not given.
    pub max_depth: Option<u32>,
    /// `max_subagents`: how many subagents that run inside the agent's own process it may have at once.
    pub max_subagents: Option<u32>,
    /// `oom_score_adj`: of the agent; its helpers get 200 more.
    pub oom_score_adj: Option<i32>,
    /// `ungated`: what becomes of an agent of it that was started past the gate; `[gate] ungated` where it is not given.
    pub ungated: Option<Ungated>,
    /// `env`: variables that a launch gets, merged with those that it has.
    pub environment: BTreeMap<String, String>,
}

/// The keys of [`Bounds`] in `[[profile]]`.
pub(super) const BOUNDS_KEYS: &[&str] = &[
    "max_sessions",
    "rate",
    "expected_memory",
    "max_helpers",
    "max_depth",
    "max_subagents",
    "oom_score_adj",
    "ungated",
    "env",
];

/// `[gate] ungated`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ungated {
    /// Nothing.
    Allow,
    /// A finding.
    Warn,
    /// It is not let start; what could not be held back is ended.
    Deny,
}

/// So many within a time: "2 per 5m".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many.
    pub count: u32,
    /// Within what time.
    pub period: Duration,
}

/// Not a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a rate: a whole number from 1 on and a time from 1s to 7d are allowed, as in \"2 per 5m\"")]
pub struct NoRate;

impl FromStr for Rate {
    type Err = NoRate;

    fn from_str(text: &str) -> Result<Self, NoRate> {
        let (count, period) = text.split_once(" per ").ok_or(NoRate)?;
        let count = count.trim().parse().ok().filter(|count| SESSIONS.contains(count)).ok_or(NoRate)?;
        let period =
            values::duration(period.trim()).ok().filter(|period| RATE_PERIOD.contains(period)).ok_or(NoRate)?;
        Ok(Self { count, period })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {}", self.count, values::show_duration(self.period))
    }
}

impl Default for Gate {
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
            ungated: Ungated::Warn,
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

pub(super) fn gate<'t>(reader: &mut Reader<'t>, root: Section<'_, 't>, gate: &mut Gate) {
    let Some(table) = reader.table(root, "gate", "[gate]", KEYS) else { return };
    set_some(&mut gate.max_sessions, reader.integer(table, "max_sessions", SESSIONS));
    set_some(&mut gate.max_sessions_per_user, reader.integer(table, "max_sessions_per_user", SESSIONS));
    set_some(&mut gate.max_depth, reader.integer(table, "max_depth", DEPTH));
    set_some(&mut gate.rate, rate(reader, table));
    set(&mut gate.expected_memory, reader.size(table, "expected_memory"));
    set(&mut gate.reserve, reader.size(table, "reserve"));
    set(&mut gate.swap_share, reader.percent(table, "swap_share", 0..=100));
    set(&mut gate.hold, reader.duration(table, "hold", HOLD));
    set(&mut gate.breaker_open, reader.percent(table, "breaker_open", 1..=100));
    set(&mut gate.breaker_close, reader.percent(table, "breaker_close", 1..=100));
    set(&mut gate.breaker_pressure, reader.percent(table, "breaker_pressure", 1..=100));
    if gate.breaker_close >= gate.breaker_open {
        let (open, close) = (gate.breaker_open, gate.breaker_close);
        let at = table.at();
        reader.report(at, format!("breaker_close: {close}% is not below breaker_open, which is {open}%"));
    }
    set(&mut gate.head_blocks_for, reader.duration(table, "head_blocks_for", HEAD_BLOCKS_FOR));
    set_count(&mut gate.max_queue, reader.integer(table, "max_queue", QUEUE));
    set(&mut gate.timeout, reader.duration(table, "timeout", TIMEOUT));
    set(&mut gate.ungated, ungated(reader, table));
    set(&mut gate.cgroups, reader.boolean(table, "cgroups").map(|found| found.value));
}

pub(super) fn bounds<'t>(reader: &mut Reader<'t>, table: Section<'_, 't>) -> Bounds {
    Bounds {
        max_sessions: reader.integer(table, "max_sessions", SESSIONS),
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

fn ungated<'t>(reader: &mut Reader<'t>, table: Section<'_, 't>) -> Option<Ungated> {
    let words = &[("allow", Ungated::Allow), ("warn", Ungated::Warn), ("deny", Ungated::Deny)];
    reader.word(table, "ungated", "\"allow\", \"warn\" or \"deny\"", words)
}

/// `rate` of `[gate]` and of a profile.
pub(super) fn rate<'t>(reader: &mut Reader<'t>, table: Section<'_, 't>) -> Option<Rate> {
    reader.meaning(table, "rate", "a rate, as in \"2 per 5m\"", |text| {
        text.parse().map_err(|error: NoRate| error.to_string())
    })
}

fn set_some<T>(value: &mut Option<T>, found: Option<T>) {
    if found.is_some() {
        *value = found;
    }
}
