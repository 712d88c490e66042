//! The gate: what a launch costs, how soon many are decided, how soon a freed place is given on, and what very many clients
//! do to the daemon.

mod burst;
mod crowd;
mod handover;
mod launches;
mod overhead;

use std::time::Duration;

use anyhow::Result;

use super::figures::Figures;
use super::stage::Stage;

/// Measures each against a daemon of its own.
pub(super) fn run(stage: &Stage, quick: bool, figures: &mut Figures) -> Result<()> {
    overhead::run(stage, quick, figures)?;
    burst::run(stage, quick, figures)?;
    handover::run(stage, quick, figures)?;
    crowd::run(stage, quick, figures)
}

/// A `[gate]` that lets so many run at once, and has memory for all of them.
fn with_places(max_sessions: usize) -> String {
    format!("[gate]\nmax_sessions = {max_sessions}\nexpected_memory = \"1MiB\"\n")
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}
