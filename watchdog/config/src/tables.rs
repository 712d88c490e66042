//! The configuration and those of its tables that need no reader of their own.

use std::net::SocketAddr;
use std::time::Duration;

use crate::{
    ActionsConfig, DuplicatesConfig, ExternalConfig, FanoutConfig, FleetConfig, GateConfig, Globs, Profile,
    ReclaimConfig, Size, StaleConfig,
};
use watchdog_classify::Program;
use watchdog_types::{Bytes, Image};

/// The whole configuration, table by table.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub daemon: DaemonConfig,
    pub tracking: TrackingConfig,
    pub orphans: OrphansConfig,
    pub leaks: LeaksConfig,
    pub stale: StaleConfig,
    pub duplicates: DuplicatesConfig,
    pub fanout: FanoutConfig,
    pub external: ExternalConfig,
    pub gate: GateConfig,
    pub reclaim: ReclaimConfig,
    pub actions: ActionsConfig,
    pub history: HistoryConfig,
    pub fleet: FleetConfig,
    /// `[[profile]]` and the built-in profiles; a user's profile replaces the built-in one of its name.
    pub profiles: Vec<Profile>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DaemonConfig {
    /// Address of metrics and /healthz; `None` for "off".
    pub listen: Option<SocketAddr>,
    /// Events kept in memory; the oldest is dropped first.
    pub journal_events: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TrackingConfig {
    pub close_watch: CloseWatch,
    /// Longest time between two memory samples of a process. Three times as long while the memory of the whole host is
    /// steady, unless it is below 1 s.
    pub sample_interval: Duration,
    /// Entries of the kernel's map. A change takes effect at the next start.
    pub max_processes: u32,
    /// Whether the built-in profiles are used beside those of the file.
    pub built_in_profiles: bool,
}

/// When the per-fault memory programs are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseWatch {
    /// While a session grows fast or the host is short of memory.
    Auto,
    Always,
    Never,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OrphansConfig {
    /// Younger orphans are reported without a proposed action: most helpers exit by themselves.
    pub grace: Duration,
    /// Path, argv0 or script of processes that are kept.
    pub keep: Globs,
    /// A kept process that uses more, with its descendants, becomes uncertain. Zero: no limit.
    pub kept_memory_limit: Size,
    /// How long a helper must outlive its parent before it is listed as detached.
    pub detached_after: Duration,
    /// Memory of an agent's detached helpers from which they are a finding.
    pub detached_memory: Size,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryConfig {
    pub retention: Duration,
    pub max_size: Bytes,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LeaksConfig {
    pub sensitivity: Sensitivity,
    /// Memory of one process, as a ceiling for `seconds_to_limit`.
    pub limit: Option<Size>,
    /// A leak that will reach a ceiling within this time is a warning.
    pub warn_within: Duration,
    /// The same for critical.
    pub critical_within: Duration,
    /// Path, argv0 or script of programs whose growth is expected.
    pub ignore: Globs,
}

/// How much growth is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sensitivity {
    /// Twice as much growth as usual.
    Low,
    /// 35 MiB within a minute, 130 MiB within two hours, 290 MiB within a day.
    Normal,
    /// Three fifths of that.
    High,
}

impl Config {
    #[must_use]
    pub fn profile(&self, name: &str) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.name == name)
    }
}

impl LeaksConfig {
    #[must_use]
    pub fn ignores(&self, image: &Image) -> bool {
        matches(&self.ignore, image)
    }
}

impl OrphansConfig {
    #[must_use]
    pub fn keeps(&self, image: &Image) -> bool {
        matches(&self.keep, image)
    }
}

pub(super) fn matches(globs: &Globs, image: &Image) -> bool {
    let program = Program::of(image);
    let script = program.script.as_deref();
    globs.matches(program.path) || globs.matches(program.argv0) || script.is_some_and(|s| globs.matches(s))
}

impl Default for DaemonConfig {
    fn default() -> Self {
        Self { listen: Some(SocketAddr::from(([127, 0, 0, 1], 9719))), journal_events: 10_000 }
    }
}

impl Default for TrackingConfig {
    fn default() -> Self {
        Self {
            close_watch: CloseWatch::Auto,
            sample_interval: Duration::from_millis(1_500),
            max_processes: 65_536,
            built_in_profiles: true,
        }
    }
}

impl Default for OrphansConfig {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(30),
            keep: Globs::default(),
            kept_memory_limit: Size::Bytes(Bytes::from_mib(1024)),
            detached_after: Duration::from_secs(60),
            detached_memory: Size::Bytes(Bytes::from_mib(32)),
        }
    }
}

impl Default for HistoryConfig {
    fn default() -> Self {
        Self { retention: Duration::from_secs(7 * 86_400), max_size: Bytes::from_mib(256) }
    }
}

impl Default for LeaksConfig {
    fn default() -> Self {
        Self {
            sensitivity: Sensitivity::Normal,
            limit: None,
            warn_within: Duration::from_secs(1_800),
            critical_within: Duration::from_secs(300),
            ignore: Globs::default(),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            daemon: DaemonConfig::default(),
            tracking: TrackingConfig::default(),
            orphans: OrphansConfig::default(),
            leaks: LeaksConfig::default(),
            stale: StaleConfig::default(),
            duplicates: DuplicatesConfig::default(),
            fanout: FanoutConfig::default(),
            external: ExternalConfig::default(),
            gate: GateConfig::default(),
            reclaim: ReclaimConfig::default(),
            actions: ActionsConfig::default(),
            history: HistoryConfig::default(),
            fleet: FleetConfig::default(),
            profiles: Profile::built_in(),
        }
    }
}
