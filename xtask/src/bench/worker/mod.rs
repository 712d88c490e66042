//! What runs while something is measured: this very program once more, under a name that makes it an agent or not.
//!
//! Whatever it forks and leaves ends with it, or with the pipe that is its stdin.

mod crowd;
mod launched;
mod processes;
mod storm;
mod timed;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;

pub(super) use crowd::Fate;
pub(super) use launched::monotonic;

/// `xtask bench-worker WORK`
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    work: Work,
}

#[derive(clap::Subcommand)]
enum Work {
    /// Touch 16 MiB page by page, so many times, and give it back each time.
    Faults { rounds: u32 },
    /// Fork and wait, so many times.
    Forks { count: u32 },
    /// Fork, execute the command and wait, so many times.
    Spawns {
        count: u32,
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Fork so many processes, which sleep; end with stdin.
    Sleepers { count: u32 },
    /// Fork and execute /bin/true so often a second; then end with stdin.
    Storm {
        per_second: u32,
        seconds: u32,
        /// Helpers that stay, in place of every 500th process.
        #[arg(long, default_value_t = 0)]
        helpers: u32,
    },
    /// Fork and execute /bin/true as often as can be, on two CPUs; then end with stdin.
    Flood { seconds: u32 },
    /// Start three helpers of this program, and sleep.
    Agent { helper: PathBuf },
    /// Say that it is there, and end with stdin.
    Helper,
    /// Say when this began; sleep then, if it is to.
    Moment {
        #[arg(long)]
        stay: bool,
    },
    /// Say that it is ready, wait for the end of stdin, and become the command.
    Released {
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Fork so many processes, each of which asks the gate for a launch and waits; end with stdin.
    Crowd { socket: PathBuf, count: u32 },
}

/// Does it.
///
/// # Errors
/// When a process cannot be forked, or memory cannot be had.
pub(crate) fn run(options: &Options) -> Result<()> {
    match &options.work {
        Work::Faults { rounds } => timed::faults(*rounds),
        Work::Forks { count } => timed::forks(*count),
        Work::Spawns { count, command } => timed::spawns(*count, command),
        Work::Sleepers { count } => processes::sleepers(*count),
        Work::Storm { per_second, seconds, helpers } => storm::paced(*per_second, *seconds, *helpers),
        Work::Flood { seconds } => storm::flood(*seconds),
        Work::Agent { helper } => processes::agent(helper),
        Work::Helper => processes::helper(),
        Work::Moment { stay } => launched::moment(*stay),
        Work::Released { command } => launched::released(command),
        Work::Crowd { socket, count } => crowd::crowd(socket, *count),
    }
}
