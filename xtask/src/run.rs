//! `cargo xtask run`: from a checkout to a running daemon.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use xtask::privilege::{become_root, is_root};

use crate::programs;

/// `cargo xtask run [ARGUMENT…]`
#[derive(clap::Args)]
pub(crate) struct RunOptions {
    /// Arguments of watchdogd, such as `--config FILE`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds the daemon as the calling user, and executes it as root.
pub(crate) fn run(RunOptions { arguments }: &RunOptions) -> Result<ExitCode> {
    let release = programs::build(true)?;
    if !is_root()? {
        eprintln!("watchdogd reads the kernel's events and needs root: sudo may ask for your password");
    }
    eprintln!("in another terminal, as root: {}", release.join("watchdogctl tree").display());
    // The daemon replaces this process, so print this now.
    eprintln!(
        "to remove its kernel programs after it has stopped, as root: {}",
        release.join("watchdogd --unpin").display()
    );
    become_root(release.join("watchdogd").as_os_str(), arguments)
}
