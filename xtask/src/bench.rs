//! `cargo xtask bench` and `cargo xtask eval`: build the benchmarks and what they measure, and run them.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use xtask::cargo::{cargo, target_directory};
use xtask::privilege::become_root;

use crate::programs;

/// `cargo xtask bench [ARGUMENT…]`, `cargo xtask eval [ARGUMENT…]`
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct BenchOptions {
    /// Arguments of the program in `bench/`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds the daemon and the benchmarks in release mode, and executes the benchmarks as root.
pub(crate) fn bench(BenchOptions { arguments }: &BenchOptions) -> Result<ExitCode> {
    programs::build(true)?;
    let program = build()?;
    let command: Vec<OsString> = std::iter::once("bench".into()).chain(arguments.iter().cloned()).collect();
    become_root(&program, &command)
}

/// Builds the evaluation of the leak detector, and runs it.
pub(crate) fn eval(BenchOptions { arguments }: &BenchOptions) -> Result<ExitCode> {
    let program = build()?;
    let mut command = std::process::Command::new(program);
    let status = command.arg("eval").args(arguments).status().context("running the evaluation")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn build() -> Result<OsString> {
    let mut command = cargo();
    let status =
        command.args(["build", "--release", "--package", "watchdog-bench"]).status().context("running cargo")?;
    ensure!(status.success(), "cargo build {status}");
    Ok(target_directory().join("release/watchdog-bench").into())
}
