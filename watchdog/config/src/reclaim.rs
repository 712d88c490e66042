//! `[reclaim]`: paging out idle sessions.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::globs::Globs;
use super::reader::{Section, TomlReader, assign};
use super::tables::{Config, matches};
use super::values::Size;
use watchdog_types::{Bytes, Image};

const IDLE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30 * 86_400);

#[derive(Clone, Debug, PartialEq)]
pub struct ReclaimConfig {
    pub mode: ReclaimMode,
    /// Time without activity after which a session is paged out.
    pub idle: Duration,
    /// Maximum memory paged out per second.
    pub budget: Size,
    /// Swap that stays free; a share refers to the total swap.
    pub reserve: Size,
    /// Path, argv0 or script of kept processes that may be paged out too.
    pub include: Globs,
}

/// When idle sessions are paged out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReclaimMode {
    /// Only on request.
    Off,
    /// While the host is short of memory, or a launch waits for it.
    Pressure,
    /// As soon as they are idle.
    Proactive,
}

impl ReclaimMode {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Pressure => "pressure",
            Self::Proactive => "proactive",
        }
    }
}

/// `reclaim` and `reclaim_idle` of a `[[profile]]`, in place of `mode` and `idle`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProfileReclaim {
    pub mode: Option<ReclaimMode>,
    pub idle: Option<Duration>,
}

/// The keys of [`ProfileReclaim`] in `[[profile]]`.
pub(super) const PROFILE_RECLAIM_KEYS: &[&str] = &["reclaim", "reclaim_idle"];

impl ReclaimConfig {
    /// Whether this kept process may be paged out.
    #[must_use]
    pub fn includes(&self, image: &Image) -> bool {
        matches(&self.include, image)
    }
}

impl Config {
    /// When sessions of this profile are paged out, and after which idle time.
    #[must_use]
    pub fn reclaim_of(&self, profile: &str) -> (ReclaimMode, Duration) {
        let own = self.profile(profile).map(|profile| profile.reclaim).unwrap_or_default();
        (own.mode.unwrap_or(self.reclaim.mode), own.idle.unwrap_or(self.reclaim.idle))
    }

    /// The shortest idle time of a session that may be paged out; `None` if all are off.
    #[must_use]
    pub fn shortest_reclaim_idle(&self) -> Option<Duration> {
        let own = self.profiles.iter().map(|profile| {
            let ProfileReclaim { mode, idle } = profile.reclaim;
            (mode.unwrap_or(self.reclaim.mode), idle.unwrap_or(self.reclaim.idle))
        });
        let all = own.chain([(self.reclaim.mode, self.reclaim.idle)]);
        all.filter(|(mode, _)| *mode != ReclaimMode::Off).map(|(_, idle)| idle).min()
    }
}

impl Default for ReclaimConfig {
    fn default() -> Self {
        Self {
            mode: ReclaimMode::Pressure,
            idle: Duration::from_secs(600),
            budget: Size::Bytes(Bytes::from_mib(256)),
            reserve: Size::PercentOfHost(10),
            include: Globs::default(),
        }
    }
}

const MODES: &str = "\"off\", \"pressure\" or \"proactive\"";
const MODE: &[(&str, ReclaimMode)] =
    &[("off", ReclaimMode::Off), ("pressure", ReclaimMode::Pressure), ("proactive", ReclaimMode::Proactive)];

pub(super) fn reclaim<'t>(reader: &mut TomlReader<'t>, root: Section<'_, 't>, reclaim: &mut ReclaimConfig) {
    let keys = &["mode", "idle", "budget", "reserve", "include"];
    let Some(table) = reader.table(root, "reclaim", "[reclaim]", keys) else { return };
    assign(&mut reclaim.mode, reader.choice(table, "mode", MODES, MODE));
    assign(&mut reclaim.idle, reader.duration(table, "idle", IDLE));
    assign(&mut reclaim.budget, reader.size(table, "budget"));
    assign(&mut reclaim.reserve, reader.size_or_zero(table, "reserve"));
    assign(&mut reclaim.include, reader.globs(table, "include"));
}

pub(super) fn of_profile<'t>(reader: &mut TomlReader<'t>, table: Section<'_, 't>) -> ProfileReclaim {
    ProfileReclaim {
        mode: reader.choice(table, "reclaim", MODES, MODE),
        idle: reader.duration(table, "reclaim_idle", IDLE),
    }
}
