//! `cargo xtask run`: from a checkout to a running daemon.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, target_directory};
use crate::privilege::{become_root, is_root};

/// `cargo xtask run [ARGUMENT…]`
#[derive(clap::Args)]
pub(crate) struct Options {
    /// What watchdogd is given, as `--config FILE`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds the daemon as the user who called, and becomes it as root.
///
/// # Errors
/// When it cannot be built, or root cannot be had.
pub(crate) fn run(Options { arguments }: &Options) -> Result<ExitCode> {
    let status = cargo().args(["build", "--release", "--package", "watchdog"]).status().context("running cargo")?;
    ensure!(status.success(), "cargo build {status}");
    let release = target_directory().join("release");
    if !is_root()? {
        eprintln!("watchdogd reads the kernel's events and needs root: sudo may ask for your password");
    }
    eprintln!("in another terminal, as root: {}", release.join("watchdogctl tree").display());
    // The daemon takes this process's place, so that nothing can be done after it.
    eprintln!(
        "to remove its kernel programs after it has stopped, as root: {}",
        release.join("watchdogd --unpin").display()
    );
    become_root(release.join("watchdogd").as_os_str(), arguments)
}
