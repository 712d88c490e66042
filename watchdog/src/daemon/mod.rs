//! The daemon: wiring only.

mod lock;
mod log;
mod options;
mod users;

pub use options::{Listen, LogFormat, Options};
