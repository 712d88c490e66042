//! The gate: launch overhead, latency of many launches at once, handover of a freed place, and the cost of very many
//! clients.

mod burst;
mod handover;
mod launch_overhead;
mod launches;
mod many_clients;

pub(super) use self::launch_overhead::time as launch_time;

use std::time::Duration;

use anyhow::Result;

use super::figures::Figures;
use super::stage::BenchStage;

/// Runs each benchmark with its own daemon.
pub(super) fn run(stage: &BenchStage, quick: bool, figures: &mut Figures) -> Result<()> {
    launch_overhead::run(stage, quick, figures)?;
    burst::run(stage, quick, figures)?;
    handover::run(stage, quick, figures)?;
    many_clients::run(stage, quick, figures)
}

/// A `[gate]` that limits sessions, not memory.
fn with_places(max_sessions: usize) -> String {
    format!("[gate]\nmax_sessions = {max_sessions}\nexpected_memory = \"1MiB\"\n")
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}
