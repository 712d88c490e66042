//! The workload: this program again, under a name that makes it an agent or not.
//!
//! Everything that it forks ends with it, or with its stdin.

mod forker;
mod launch_clients;
mod launched;
mod processes;
mod timed;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;

pub(super) use launch_clients::Fate;
pub(super) use launched::monotonic;

/// `watchdog-bench worker WORK`
#[derive(clap::Args)]
pub(crate) struct WorkerOptions {
    #[command(subcommand)]
    work: WorkerCommand,
}

#[derive(clap::Subcommand)]
enum WorkerCommand {
    /// Touch and free 16 MiB page by page, `rounds` times.
    Faults { rounds: u32 },
    /// Fork and wait, `count` times.
    Forks { count: u32 },
    /// Fork, execute the command and wait, `count` times.
    Spawns {
        count: u32,
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Fork `count` sleeping processes; exit with stdin.
    Sleepers { count: u32 },
    /// Fork and execute /bin/true `per_second` times a second; then exit with stdin.
    Storm {
        per_second: u32,
        seconds: u32,
        /// Helpers that keep running, instead of every 500th process.
        #[arg(long, default_value_t = 0)]
        helpers: u32,
    },
    /// Fork and execute /bin/true as fast as possible on two CPUs; then exit with stdin.
    Flood { seconds: u32 },
    /// Start three helpers of this program and sleep.
    Agent { helper: PathBuf },
    /// Print the pid; exit with stdin.
    Helper,
    /// Print the start time; then sleep with --stay.
    Moment {
        #[arg(long)]
        stay: bool,
    },
    /// Print `ready`, wait for the end of stdin, and execute the command.
    Released {
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Fork `count` clients, each of which requests a launch and waits; exit with stdin.
    Crowd { socket: PathBuf, count: u32 },
}

/// Runs the workload.
///
/// # Errors
/// When a process cannot be forked, or memory cannot be had.
pub(crate) fn run(options: &WorkerOptions) -> Result<()> {
    match &options.work {
        WorkerCommand::Faults { rounds } => timed::faults(*rounds),
        WorkerCommand::Forks { count } => timed::forks(*count),
        WorkerCommand::Spawns { count, command } => timed::spawns(*count, command),
        WorkerCommand::Sleepers { count } => processes::sleepers(*count),
        WorkerCommand::Storm { per_second, seconds, helpers } => forker::paced(*per_second, *seconds, *helpers),
        WorkerCommand::Flood { seconds } => forker::flood(*seconds),
        WorkerCommand::Agent { helper } => processes::agent(helper),
        WorkerCommand::Helper => processes::helper(),
        WorkerCommand::Moment { stay } => launched::moment(*stay),
        WorkerCommand::Released { command } => launched::released(command),
        WorkerCommand::Crowd { socket, count } => launch_clients::run(socket, *count),
    }
}
