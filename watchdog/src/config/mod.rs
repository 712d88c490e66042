//! The configuration: TOML in, checked values out. Everything has a default, and nothing is silently ignored.

mod actions;
mod candidates;
mod denied;
mod detect;
mod gate;
mod globs;
mod parse;
mod profile;
mod reader;
mod values;

pub use actions::{Actions, Notify, Reaction, Reactions};
pub use candidates::Candidates;
pub use denied::{DeniedFiles, denied_names};
pub use detect::{Duplicates, External, Fanout, Stale};
pub use gate::{Bounds, Gate, NoRate, Rate, Ungated};
pub use globs::{GlobError, Globs};
pub use parse::parse;
pub use profile::{Patterns, Profile, ProfileError};
pub use reader::{ConfigError, Problem};
pub use values::Size;

use std::net::SocketAddr;
use std::time::Duration;

use crate::engine::classify::Program;
use crate::engine::id::Bytes;
use crate::engine::input::Image;

/// All that can be configured. The tables are those of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `[daemon]`
    pub daemon: Daemon,
    /// `[tracking]`
    pub tracking: Tracking,
    /// `[orphans]`
    pub orphans: Orphans,
    /// `[leaks]`
    pub leaks: Leaks,
    /// `[stale]`
    pub stale: Stale,
    /// `[duplicates]`
    pub duplicates: Duplicates,
    /// `[fanout]`
    pub fanout: Fanout,
    /// `[external]`
    pub external: External,
    /// `[gate]`
    pub gate: Gate,
    /// `[actions]`
    pub actions: Actions,
    /// `[history]`
    pub history: History,
    /// `[[profile]]`: the built-in profiles, with a user's profile in the place of the one whose name it bears.
    pub profiles: Vec<Profile>,
}

/// `[daemon]`
#[derive(Clone, Debug, PartialEq)]
pub struct Daemon {
    /// `listen`: where metrics and /healthz are served; `None` for "off".
    pub listen: Option<SocketAddr>,
    /// `journal_events`: how many events the journal in memory holds.
    pub journal_events: usize,
}

/// `[tracking]`
#[derive(Clone, Debug, PartialEq)]
pub struct Tracking {
    /// `close_watch`: when the memory programs are attached.
    pub close_watch: CloseWatch,
    /// `sample_interval`: the longest time between two looks at the memory of a tracked process; three times as long (if it
    /// is 1 s or more) while the memory of the whole host does not move.
    pub sample_interval: Duration,
    /// `max_processes`: how many processes the kernel's map can hold. Takes effect at the next start.
    pub max_processes: u32,
    /// `built_in_profiles`: whether agents that no `[[profile]]` of the file describes are recognised too.
    pub built_in_profiles: bool,
}

/// `[tracking] close_watch`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseWatch {
    /// While a session grows fast or the host is short of memory.
    Auto,
    /// All the time.
    Always,
    /// Not at all.
    Never,
}

/// `[orphans]`
#[derive(Clone, Debug, PartialEq)]
pub struct Orphans {
    /// `grace`: an orphan younger than this is reported, and nothing is proposed: most helpers end by themselves.
    pub grace: Duration,
    /// `keep`: globs on the executed path, argv0 or script of processes that are meant to stay.
    pub keep: Globs,
    /// `kept_memory_limit`: what a kept process may cost, with what it started, before it is in doubt; zero for no limit.
    pub kept_memory_limit: Size,
}

/// `[history]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// `retention`: how long what happened is remembered.
    pub retention: Duration,
    /// `max_size`: how large the file may become.
    pub max_size: Bytes,
}

/// `[leaks]`
#[derive(Clone, Debug, PartialEq)]
pub struct Leaks {
    /// `sensitivity`: how much growth is worth a word.
    pub sensitivity: Sensitivity,
    /// `limit`: what one process may hold, as a ceiling that growth is measured against.
    pub limit: Option<Size>,
    /// `warn_within`: a leak that reaches a ceiling within this time is a warning,
    pub warn_within: Duration,
    /// `critical_within`: and within this time critical.
    pub critical_within: Duration,
    /// `ignore`: globs on the executed path, argv0 or script of programs that are meant to grow.
    pub ignore: Globs,
}

/// `[leaks] sensitivity`
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
    /// The profile of this name.
    #[must_use]
    pub fn profile(&self, name: &str) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.name == name)
    }
}

impl Leaks {
    /// Whether the configuration lists this program as meant to grow.
    #[must_use]
    pub fn ignores(&self, image: &Image) -> bool {
        lists(&self.ignore, image)
    }
}

impl Orphans {
    /// Whether the configuration lists this program as meant to stay.
    #[must_use]
    pub fn keeps(&self, image: &Image) -> bool {
        lists(&self.keep, image)
    }
}

/// Whether a list names this program, by its path, argv0 or script.
fn lists(globs: &Globs, image: &Image) -> bool {
    let program = Program::of(image);
    let script = program.script.as_deref();
    globs.matches(program.path) || globs.matches(program.argv0) || script.is_some_and(|s| globs.matches(s))
}

impl Default for Daemon {
    fn default() -> Self {
        Self { listen: Some(SocketAddr::from(([127, 0, 0, 1], 9719))), journal_events: 10_000 }
    }
}

impl Default for Tracking {
    fn default() -> Self {
        Self {
            close_watch: CloseWatch::Auto,
            sample_interval: Duration::from_millis(1_500),
            max_processes: 65_536,
            built_in_profiles: true,
        }
    }
}

impl Default for Orphans {
    fn default() -> Self {
        let kept_memory_limit = Size::Bytes(Bytes::from_mib(1024));
        Self { grace: Duration::from_secs(30), keep: Globs::default(), kept_memory_limit }
    }
}

impl Default for History {
    fn default() -> Self {
        Self { retention: Duration::from_secs(7 * 86_400), max_size: Bytes::from_mib(256) }
    }
}

impl Default for Leaks {
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
            daemon: Daemon::default(),
            tracking: Tracking::default(),
            orphans: Orphans::default(),
            leaks: Leaks::default(),
            stale: Stale::default(),
            duplicates: Duplicates::default(),
            fanout: Fanout::default(),
            external: External::default(),
            gate: Gate::default(),
            actions: Actions::default(),
            history: History::default(),
            profiles: Profile::built_in(),
        }
    }
}

#[cfg(test)]
mod profile_tests;
#[cfg(test)]
mod tests;
