//! The tables of small detectors: `[stale]`, `[duplicates]`, `[fanout]`, `[external]`.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::reader::{Section, TomlReader, assign, assign_count};
use super::values::Size;
use watchdog_types::Bytes;

const IDLE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30 * 86_400);
const AFTER: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);
const WINDOW: RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(3_600);
const COUNT: RangeInclusive<u32> = 2..=100_000;
const LIMIT: RangeInclusive<u32> = 1..=100_000;

#[derive(Clone, Debug, PartialEq)]
pub struct StaleConfig {
    /// Time without activity before a helper is stale.
    pub idle: Duration,
    /// Equal helpers with one parent, including the youngest; with fewer, none is stale.
    pub min_count: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DuplicatesConfig {
    /// Age from which a server counts.
    pub after: Duration,
    /// Agents that run the same server; with fewer there is no finding.
    pub min_agents: usize,
    /// Language or build servers of one program, each for another directory; with fewer there is no finding.
    pub min_directories: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct FanoutConfig {
    /// Only younger processes count.
    pub window: Duration,
    /// Per session; more are a finding.
    pub max_helpers: usize,
    /// Subagents and nested agents per session; more are a finding.
    pub max_agents: usize,
    /// Processes of one program within one command; more are a finding.
    pub max_workers: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ExternalConfig {
    /// Growth of files in memory, while a session runs, that is reported.
    pub tmpfs_growth: Size,
}

impl Default for StaleConfig {
    fn default() -> Self {
        Self { idle: Duration::from_secs(1_800), min_count: 2 }
    }
}

impl Default for DuplicatesConfig {
    fn default() -> Self {
        Self { after: Duration::from_secs(60), min_agents: 2, min_directories: 5 }
    }
}

impl Default for FanoutConfig {
    fn default() -> Self {
        Self { window: Duration::from_secs(60), max_helpers: 10, max_agents: 3, max_workers: 24 }
    }
}

impl Default for ExternalConfig {
    fn default() -> Self {
        Self { tmpfs_growth: Size::Bytes(Bytes::from_mib(1_024)) }
    }
}

pub(super) fn stale<'t>(reader: &mut TomlReader<'t>, root: Section<'_, 't>, stale: &mut StaleConfig) {
    let Some(table) = reader.table(root, "stale", "[stale]", &["idle", "min_count"]) else { return };
    assign(&mut stale.idle, reader.duration(table, "idle", IDLE));
    assign_count(&mut stale.min_count, reader.integer(table, "min_count", COUNT));
}

pub(super) fn duplicates<'t>(reader: &mut TomlReader<'t>, root: Section<'_, 't>, duplicates: &mut DuplicatesConfig) {
    let keys = &["after", "min_agents", "min_directories"];
    let Some(table) = reader.table(root, "duplicates", "[duplicates]", keys) else { return };
    assign(&mut duplicates.after, reader.duration(table, "after", AFTER));
    assign_count(&mut duplicates.min_agents, reader.integer(table, "min_agents", COUNT));
    assign_count(&mut duplicates.min_directories, reader.integer(table, "min_directories", COUNT));
}

pub(super) fn fanout<'t>(reader: &mut TomlReader<'t>, root: Section<'_, 't>, fanout: &mut FanoutConfig) {
    let keys = &["window", "max_helpers", "max_agents", "max_workers"];
    let Some(table) = reader.table(root, "fanout", "[fanout]", keys) else { return };
    assign(&mut fanout.window, reader.duration(table, "window", WINDOW));
    assign_count(&mut fanout.max_helpers, reader.integer(table, "max_helpers", LIMIT));
    assign_count(&mut fanout.max_agents, reader.integer(table, "max_agents", LIMIT));
    assign_count(&mut fanout.max_workers, reader.integer(table, "max_workers", LIMIT));
}

pub(super) fn external<'t>(reader: &mut TomlReader<'t>, root: Section<'_, 't>, external: &mut ExternalConfig) {
    let Some(table) = reader.table(root, "external", "[external]", &["tmpfs_growth"]) else { return };
    assign(&mut external.tmpfs_growth, reader.size(table, "tmpfs_growth"));
}
