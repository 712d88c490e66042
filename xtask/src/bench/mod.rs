//! `cargo xtask bench [NAME…]`: what watching costs, and how quick it is, on this machine.
//!
//! These are measurements, not tests: they print the machine, the method and the figures, and beside each figure its
//! goal. What is compared is measured side by side in one run, in rounds that alternate, because machines are noisy.
//!
//! The command builds the daemon and this program anew, optimised and with what measuring takes, and becomes that
//! program as root. Behind it, in the order of a run: [`measure`] calls the benches by name; [`stage`] is the directory
//! with an agent's and a stranger's program; [`daemon`] and [`watch`] are what is measured; [`worker`] is what runs
//! meanwhile; [`sample`] makes one number of many, and [`figures`] the table at the end.

#[cfg(feature = "bench")]
mod close_watch;
#[cfg(feature = "bench")]
mod cost;
#[cfg(feature = "bench")]
mod daemon;
#[cfg(feature = "bench")]
mod figures;
#[cfg(feature = "bench")]
mod gate;
#[cfg(feature = "bench")]
mod idle;
#[cfg(feature = "bench")]
mod latency;
#[cfg(feature = "bench")]
mod measure;
#[cfg(feature = "bench")]
mod overhead;
#[cfg(feature = "bench")]
mod programs;
#[cfg(feature = "bench")]
mod sample;
#[cfg(feature = "bench")]
mod soak;
#[cfg(feature = "bench")]
mod stage;
#[cfg(feature = "bench")]
mod storm;
#[cfg(feature = "bench")]
mod truth;
#[cfg(feature = "bench")]
mod watch;
#[cfg(feature = "bench")]
pub(crate) mod worker;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

#[cfg(feature = "bench")]
pub(crate) use measure::measure;

use crate::cargo::{cargo, target_directory};
use crate::privilege::become_root;

/// `cargo xtask bench [NAME…]`
#[derive(clap::Args)]
pub(crate) struct Options {
    /// What to measure [default: everything].
    names: Vec<Name>,
    /// Fewer rounds, shorter storms: to see that it works, not to judge by.
    #[arg(long)]
    quick: bool,
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
    /// 1,000 processes a second, then as many as can be: is anything lost, is the table right?
    Storm,
    /// From an agent's death to the finding.
    Latency,
    /// What a launch through the gate costs, 100 of them at once, a freed place, and a crowd of 10,000.
    Gate,
    /// The daemon's memory and CPU while an agent starts 50 short processes a second, for `--minutes`.
    Soak,
}

/// Builds what is measured and what measures, and becomes the latter as root.
///
/// # Errors
/// When either cannot be built, or root cannot be had.
pub(crate) fn run(Options { names, quick, minutes }: &Options) -> Result<ExitCode> {
    let status = cargo()
        .args(["build", "--release", "--package", "watchdog", "--package", "xtask", "--features", "xtask/bench"])
        .status()
        .context("running cargo")?;
    ensure!(status.success(), "cargo build {status}");
    let mut arguments: Vec<OsString> = vec!["bench-measure".into()];
    arguments.extend(names.iter().filter_map(|name| Some(name.to_possible_value()?.get_name().into())));
    arguments.extend(quick.then(|| "--quick".into()));
    arguments.push(format!("--minutes={minutes}").into());
    become_root(target_directory().join("release/xtask").as_os_str(), &arguments)
}
