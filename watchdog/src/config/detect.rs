//! The tables of the detectors that compare helpers with each other: `[stale]`, `[duplicates]`, `[fanout]`, `[external]`.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::reader::{Reader, Section, set, set_count};
use super::values::Size;
use crate::engine::id::Bytes;

const IDLE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30 * 86_400);
const AFTER: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);
const WINDOW: RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(3_600);
const COUNT: RangeInclusive<u32> = 2..=100_000;
const MOST: RangeInclusive<u32> = 1..=100_000;

/// `[stale]`
#[derive(Clone, Debug, PartialEq)]
pub struct Stale {
    /// `idle`: how long a helper has done nothing before it is called stale.
    pub idle: Duration,
    /// `min_count`: how many equal helpers below one parent there are at least, the youngest among them.
    pub min_count: usize,
}

/// `[duplicates]`
#[derive(Clone, Debug, PartialEq)]
pub struct Duplicates {
    /// `after`: how long a server has run before it counts.
    pub after: Duration,
    /// `min_agents`: for how many agents the same server runs at least.
    pub min_agents: usize,
    /// `min_directories`: how many language servers or build servers of one program there are at least, each of which
    /// looks after another directory.
    pub min_directories: usize,
}

/// `[fanout]`
#[derive(Clone, Debug, PartialEq)]
pub struct Fanout {
    /// `window`: how young what counts is.
    pub window: Duration,
    /// `max_helpers`: this many helpers of one session that young are in order.
    pub max_helpers: usize,
    /// `max_agents`: this many subagents and nested agents of one session that young are in order.
    pub max_agents: usize,
}

/// `[external]`
#[derive(Clone, Debug, PartialEq)]
pub struct External {
    /// `tmpfs_growth`: by how much files in memory grow, while a session runs, before that is reported.
    pub tmpfs_growth: Size,
}

impl Default for Stale {
    fn default() -> Self {
        Self { idle: Duration::from_secs(1_800), min_count: 2 }
    }
}

impl Default for Duplicates {
    fn default() -> Self {
        Self { after: Duration::from_secs(60), min_agents: 2, min_directories: 5 }
    }
}

impl Default for Fanout {
    fn default() -> Self {
        Self { window: Duration::from_secs(60), max_helpers: 10, max_agents: 3 }
    }
}

impl Default for External {
    fn default() -> Self {
        Self { tmpfs_growth: Size::Bytes(Bytes::from_mib(1_024)) }
    }
}

pub(super) fn stale<'t>(reader: &mut Reader<'t>, root: Section<'_, 't>, stale: &mut Stale) {
    let Some(table) = reader.table(root, "stale", "[stale]", &["idle", "min_count"]) else { return };
    set(&mut stale.idle, reader.duration(table, "idle", IDLE));
    set_count(&mut stale.min_count, reader.integer(table, "min_count", COUNT));
}

pub(super) fn duplicates<'t>(reader: &mut Reader<'t>, root: Section<'_, 't>, duplicates: &mut Duplicates) {
    let keys = &["after", "min_agents", "min_directories"];
    let Some(table) = reader.table(root, "duplicates", "[duplicates]", keys) else { return };
    set(&mut duplicates.after, reader.duration(table, "after", AFTER));
    set_count(&mut duplicates.min_agents, reader.integer(table, "min_agents", COUNT));
    set_count(&mut duplicates.min_directories, reader.integer(table, "min_directories", COUNT));
}

pub(super) fn fanout<'t>(reader: &mut Reader<'t>, root: Section<'_, 't>, fanout: &mut Fanout) {
    let keys = &["window", "max_helpers", "max_agents"];
    let Some(table) = reader.table(root, "fanout", "[fanout]", keys) else { return };
    set(&mut fanout.window, reader.duration(table, "window", WINDOW));
    set_count(&mut fanout.max_helpers, reader.integer(table, "max_helpers", MOST));
    set_count(&mut fanout.max_agents, reader.integer(table, "max_agents", MOST));
}

pub(super) fn external<'t>(reader: &mut Reader<'t>, root: Section<'_, 't>, external: &mut External) {
    let Some(table) = reader.table(root, "external", "[external]", &["tmpfs_growth"]) else { return };
    set(&mut external.tmpfs_growth, reader.size(table, "tmpfs_growth"));
}
