//! The daemon: wiring only. One task owns the engine (`core`); others ask it (`request`) or are told by it (`journal`,
//! `metrics`).

mod control;
mod core;
mod door;
mod exposition;
mod http;
mod journal;
mod lines;
mod lock;
mod log;
mod metrics;
mod options;
mod request;
mod since;
mod users;

pub use options::{Listen, LogFormat, Options};
