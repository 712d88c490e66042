//! Measures the cost and latency of the watchdog on this machine, and the quality of its leak detector.
//!
//! These are measurements, not tests. They print the machine, the method and the figures, and beside each figure its goal.
//! Variants are measured side by side in one run, in alternating rounds, because machines are noisy.
//!
//! `cargo xtask bench` and `cargo xtask eval` build this program and run it. [`measure`] calls the benchmarks by name.
//! [`stage`] is the directory with an agent's and a stranger's program; [`daemon`] and [`watch`] are what is measured;
//! [`worker`] is the load. [`sample`] makes one number of many, and [`figures`] is the table at the end.

mod attached;
mod close_watch;
mod cost;
mod daemon;
mod eval;
mod figures;
mod fleet;
mod gate;
mod ground_truth;
mod idle;
mod latency;
mod measure;
mod overhead;
mod programs;
mod quantile;
mod reclaim;
mod sample;
mod soak;
mod stage;
mod storm;
mod watch;
mod worker;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};

#[derive(Parser)]
#[command(about = "Benchmarks of agent-watchdog", bin_name = "cargo xtask")]
enum BenchCommand {
    /// Measure what watching costs and how quick it is, on the running kernel, as root.
    Bench(MeasureOptions),
    /// Compare the leak detector with other rules, on captured traces and generated processes.
    Eval(eval::EvalOptions),
    /// Run as a process that is measured. Used by `bench`.
    #[command(hide = true)]
    Worker(worker::WorkerOptions),
}

#[derive(clap::Args)]
struct MeasureOptions {
    /// Measurements to run [default: all].
    names: Vec<Name>,
    /// Run fewer rounds and shorter storms, to see that it works; the figures mean little.
    #[arg(long)]
    quick: bool,
    /// Directory with watchdogd and watchdogctl of another build, which `attached` measures beside this one.
    #[arg(long, value_name = "DIR")]
    against: Option<std::path::PathBuf>,
    /// How long `soak` runs.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_440))]
    minutes: u32,
}

/// The benches, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// How much slower faults, forks, execs, node and gcc become.
    Overhead,
    /// How much slower faults become in close watch; attaching and detaching it.
    CloseWatch,
    /// Nanoseconds that each kernel program runs.
    Programs,
    /// The daemon's memory and CPU with 1,000 sleeping processes, and what a scrape costs.
    Idle,
    /// What an attached `top` and an open page of `web` cost the daemon with 60 sessions and 2,040 processes.
    Attached,
    /// 1,000 processes a second, then as many as can be: is anything lost, is the table right?
    Storm,
    /// From an agent's death to the finding.
    Latency,
    /// Launches through the gate: one, 100 at once, the grant of a released place, and a queue of 10,000.
    Gate,
    /// 1,000 page-outs of real MCP servers from npm, each of which then lists its tools.
    Reclaim,
    /// What returns of a server that a daemon paged out, while it is idle for 10 min and when it is used again.
    Refault,
    /// The fleet's store: grants of 100 hosts, 1,000 hosts renewing, a dead host, two daemons. Needs redis-server.
    Fleet,
    /// The daemon's memory and CPU while an agent starts 50 short processes a second, for `--minutes`.
    Soak,
}

fn main() -> ExitCode {
    let result = match BenchCommand::parse() {
        BenchCommand::Bench(options) => measure::measure(&options),
        BenchCommand::Eval(options) => eval::evaluate(&options),
        BenchCommand::Worker(options) => worker::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
