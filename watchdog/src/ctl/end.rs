//! `watchdogctl end`: ends a whole session, its agent too.

use std::process::ExitCode;

use clap::Args;

use super::act::{self, How, Order};
use super::client::Client;
use super::failure::Failure;
use super::output::Output;

pub(super) const HELP: &str = "\
The agent and everything that it started get SIGTERM, children before their parents, and SIGKILL if they are there after
[actions] kill_after. What is meant to stay is left alone. `reap` ends only what dead agents left behind.

Examples:
  watchdogctl end 3 --dry-run
  watchdogctl end 3
  watchdogctl end 3 --yes --no-wait";

/// What to end, and how.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The session, by its number
    #[arg(value_parser = super::cli::session)]
    session: u64,
    #[command(flatten)]
    how: How,
}

pub(super) async fn run(client: &Client, options: &Options, output: &mut Output<'_>) -> Result<ExitCode, Failure> {
    act::run(client, &Order::End(options.session), options.how, output).await
}
