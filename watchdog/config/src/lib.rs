//! The configuration: TOML in, checked values out. Every key has a default; an unknown key is an error.
//!
//! - [`tables`](Config): the tables and their defaults; `actions`, `detect`, `fleet`, `gate` and `reclaim` hold the larger
//!   ones
//! - `reader`, `diagnostic`: typed access to a TOML document; every error and warning with its line
//! - `parse`, `profile_tables`: from the document to [`Config`]
//! - `patterns`, `profile`, `built_in`: how an agent is recognised, and the profiles in built_in.toml
//! - `example`: the keys and defaults that packaging/config.toml shows
//! - `candidates`, `interpreter_notes`, `denied_names`: what the kernel programs must know of the profiles

mod actions;
mod built_in;
mod candidates;
mod denied_names;
mod detect;
mod diagnostic;
mod example;
mod fleet;
mod gate;
mod globs;
mod interpreter_notes;
mod parse;
mod patterns;
mod profile;
mod profile_tables;
mod reader;
mod reclaim;
mod tables;
mod values;

pub use actions::{ActionsConfig, NotifyConfig, Response, Responses};
pub use candidates::Candidates;
pub use denied_names::{DeniedFiles, denied_names};
pub use detect::{DuplicatesConfig, ExternalConfig, FanoutConfig, StaleConfig};
pub use diagnostic::{ConfigError, Diagnostic};
pub use example::{EXAMPLE, shown_defaults, uncommented_example};
pub use fleet::{FleetConfig, WhenLost};
pub use gate::{GateConfig, ProfileLimits, Rate, RateError, Ungated};
pub use globs::{GlobError, Globs};
pub use interpreter_notes::interpreter_notes;
pub use parse::{parse, parse_with_warnings};
pub use patterns::Patterns;
pub use profile::{Profile, ProfileError};
pub use reclaim::{ProfileReclaim, ReclaimConfig, ReclaimMode};
pub use tables::{
    CloseWatch, Config, DaemonConfig, HistoryConfig, LeaksConfig, OrphansConfig, Sensitivity, TrackingConfig,
};
pub use values::{Size, duration};

#[cfg(test)]
mod error_tests;
#[cfg(test)]
mod profile_tests;
#[cfg(test)]
mod tests;
