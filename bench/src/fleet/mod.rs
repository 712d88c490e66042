//! The fleet's store, with a Redis server of its own and simulated hosts: grants, latency, renewals, the view, a dead host.
//! Then two real daemons.

mod grants;
mod recovery;
mod renewals;
mod simulated_host;
mod two_daemons;

use anyhow::{Context, Result};
use watchdog_tests::RedisServer;

use super::figures::Figures;
use super::stage::BenchStage;

/// Each benchmark has a server of its own.
pub(super) fn run(stage: &BenchStage, quick: bool, figures: &mut Figures) -> Result<()> {
    watchdog_tests::raise_descriptor_limit();
    grants::run(quick, figures)?;
    renewals::run(quick, figures)?;
    recovery::run(quick, figures)?;
    two_daemons::run(stage, quick, figures)
}

/// With an append-only file that is synced each second, as Debian's package and the setup guide have it.
fn server() -> Result<RedisServer> {
    RedisServer::start(&["--appendfsync", "everysec", "--maxmemory-policy", "noeviction"])
        .context("redis-server is missing. apt-get install redis-server")
}
