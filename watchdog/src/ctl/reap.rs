//! `watchdogctl reap`: ends what was left behind.

use std::process::ExitCode;

use clap::Args;

use super::act::{self, How, Order};
use super::adopt::{self, Target};
use super::client::Client;
use super::failure::Failure;
use super::output::Output;

pub(super) const HELP: &str = "\
An orphan is a process whose agent is dead. Each is looked at again before it is sent anything: what is meant to stay, what
is in doubt, and a pid that has become another's are left alone. SIGTERM comes first, SIGKILL for those that are there after
[actions] kill_after; children before their parents. On a terminal you are shown who, why and what it frees, and asked
once: whoever came after that is left alone.

A plain number is the pid of a process of a session, or else the number of a session, as in `adopt`. With a pid, what it
started goes with it. The exit code is 0 when all who were to go are gone, or nothing was left behind; 1 when
somebody of them is still there, or there was nobody but those who are left alone.

Examples:
  watchdogctl reap --dry-run
  watchdogctl reap
  watchdogctl reap session:3 41231 --yes
  watchdogctl reap --yes --json | jq '.actions[] | {id, result}'";

/// What to reap, and how.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only these: pids, numbers of sessions, `pid:N` or `session:N`; without any, all orphans
    #[arg(value_name = "SESSION|PID")]
    targets: Vec<Target>,
    #[command(flatten)]
    how: How,
}

pub(super) async fn run(client: &Client, options: &Options, output: &mut Output<'_>) -> Result<ExitCode, Failure> {
    act::may_begin(options.how, output)?;
    let subjects = adopt::subjects(client, &options.targets).await?;
    act::run(client, &Order::Reap(subjects), options.how, output).await
}
