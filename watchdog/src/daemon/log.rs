//! The log: to stderr, as text or as JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::options::LogFormat;

/// The target of the line that says `ready`: whoever waits for it gets it, whatever RUST_LOG asks for.
pub(super) const READY: &str = "watchdogd";

/// Sets the log up for the whole process.
pub(super) fn init(format: LogFormat) {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
    let filter = match format!("{READY}=info").parse() {
        Ok(directive) => filter.add_directive(directive),
        Err(_) => filter,
    };
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Only a second call could fail, and then the log is set up already.
    let _ = match format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
}
