use std::process::ExitCode;

use clap::Args;
use clap_complete::ArgValueCandidates;

use crate::args::session;
use crate::completion;
use crate::error::CtlError;
use crate::output::{CommandOutput, print_error};
use crate::render::page_out_receipt;
use watchdog_api::client::ControlClient;
use watchdog_api::{ReclaimRequest, ReclaimRun};

pub(crate) const HELP: &str = "\
The memory of the session moves to swap, and returns when its processes use it. The processes keep running. Without a
session, all sessions that have been idle for [reclaim] idle are paged out, the largest and longest idle first. Kept
processes, and those with locked or secret memory or real-time scheduling, are exempt. Non-root users can page out only
their own sessions. The exit code is 0 if memory was paged out or there was nothing to do, and 1 if the page-out stopped
before it moved any memory.

Examples:
  watchdogctl reclaim --dry-run
  watchdogctl reclaim
  watchdogctl reclaim 3
  watchdogctl reclaim --json | jq .paged_out_bytes";

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ReclaimOptions {
    /// The session, idle or not; default: all idle sessions
    #[arg(value_parser = session, add = ArgValueCandidates::new(completion::sessions))]
    session: Option<u64>,
    /// Show what would be paged out; change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(
    client: &ControlClient,
    options: ReclaimOptions,
    output: &mut CommandOutput<'_>,
) -> Result<ExitCode, CtlError> {
    let ReclaimOptions { session, dry_run } = options;
    let begun = client.post::<ReclaimRun>("/v1/reclaim", &ReclaimRequest { session, dry_run })?.document;
    let run =
        client.wait_for_reclaim(begun, |_| ()).inspect_err(|_| print_error("watchdogctl: the page-out continues\n"))?;
    output.show_value(&run, |_| page_out_receipt(&run))?;
    let in_vain = run.processes == 0 && run.note.is_some();
    Ok(if in_vain && !dry_run { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
