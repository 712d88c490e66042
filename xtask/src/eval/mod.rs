//! `cargo xtask eval`: how well leaks are told from what healthy programs do, beside what others do about it.
//!
//! The detector runs over every trace in `watchdog/fixtures/rss-traces`, and over made-up processes ([`generate`]): 10,000
//! healthy hours unless told otherwise, and leaks from 20 MiB an hour to 50 MiB a minute. The same seed makes the same
//! processes. What it is compared with are rules that people use ([`baselines`]). [`evaluate`] runs them all, [`score`]
//! counts.
//!
//! The command builds itself anew, with the detector, which no other command has to wait for, and as the daemon is built:
//! the time that a sample takes is one of its figures.

#[cfg(feature = "eval")]
mod baselines;
#[cfg(feature = "eval")]
mod evaluate;
#[cfg(feature = "eval")]
mod generate;
#[cfg(feature = "eval")]
mod score;
#[cfg(feature = "eval")]
#[path = "../../../watchdog/fixtures/rss-traces/reader.rs"]
mod traces;

use std::process::ExitCode;

use anyhow::{Context, Result};

#[cfg(feature = "eval")]
pub(crate) use evaluate::evaluate;

use crate::cargo::cargo;

/// `cargo xtask eval`
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Healthy hours, over all families together.
    #[arg(long, default_value_t = 10_000)]
    hours: u32,
    /// Leaking processes of each family.
    #[arg(long, default_value_t = 400)]
    leaks: u32,
    /// Other numbers make other processes.
    #[arg(long, default_value_t = 1)]
    seed: u32,
}

/// Builds this program with the detector, and runs it.
///
/// # Errors
/// When cargo cannot be run.
pub(crate) fn run(Options { hours, leaks, seed }: &Options) -> Result<ExitCode> {
    let status = cargo()
        .args(["run", "--quiet", "--release", "--package", "xtask", "--features", "eval", "--", "eval-run"])
        .args(["--hours", &hours.to_string(), "--leaks", &leaks.to_string(), "--seed", &seed.to_string()])
        .status()
        .context("running cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
