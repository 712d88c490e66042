use std::process::ExitCode;

use clap::Args;
use clap_complete::ArgValueCandidates;

use super::confirm::{self, ActionFlags};
use crate::completion;
use crate::error::CtlError;
use crate::output::CommandOutput;
use crate::target::{TargetArg, resolve_all};
use watchdog_api::client::{ConfirmedAction, ControlClient};

pub(crate) const HELP: &str = "\
An orphan is a process whose agent is dead. Each orphan is checked again before each signal; kept processes, uncertain
ones and reused pids are spared. SIGTERM comes first, then SIGKILL after [actions] kill_after, children before their
parents. On a terminal the command lists the processes, the reason and their memory, and asks once; processes that
appear later are spared.

A plain number is the pid of a process in a session, or else a session, as in `adopt`. A pid includes its descendants.
The exit code is 0 if all targets exited or there was nothing to reap, and 1 if a target is still running or all were
spared.

Examples:
  watchdogctl reap --dry-run
  watchdogctl reap
  watchdogctl reap session:3 41231 --yes
  watchdogctl reap --yes --json | jq '.actions[] | {id, result}'";

#[derive(Debug, Args)]
pub(crate) struct ReapOptions {
    /// Pids, sessions, pid:N or session:N; default: all orphans
    #[arg(value_name = "SESSION|PID", add = ArgValueCandidates::new(completion::targets))]
    targets: Vec<TargetArg>,
    #[command(flatten)]
    flags: ActionFlags,
}

pub(crate) fn run(
    client: &ControlClient,
    options: &ReapOptions,
    output: &mut CommandOutput<'_>,
) -> Result<ExitCode, CtlError> {
    let subjects = resolve_all(client, &options.targets)?;
    confirm::run(client, &ConfirmedAction::Reap(subjects), options.flags, output)
}
