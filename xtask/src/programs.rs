//! `cargo xtask build`: watchdogd and watchdogctl, both static.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use xtask::cargo::{cargo, target_directory};

/// Each is the only executable of the package with its name.
pub(crate) const PROGRAMS: [&str; 2] = ["watchdogd", "watchdogctl"];

#[derive(clap::Args)]
pub(crate) struct BuildOptions {
    /// Build optimised programs into target/release instead of target/debug
    #[arg(long)]
    release: bool,
}

pub(crate) fn run(options: &BuildOptions) -> Result<ExitCode> {
    let directory = build(options.release)?;
    for program in PROGRAMS {
        println!("{}", directory.join(program).display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds both programs, and returns their directory.
pub(crate) fn build(release: bool) -> Result<PathBuf> {
    let (profile, directory) = if release { ("release", "release") } else { ("dev", "debug") };
    for program in PROGRAMS {
        // `cargo rustc` passes the flag to this executable only. RUSTFLAGS would reach proc-macros, which cannot be static,
        // unless --target moved the programs to another directory.
        let mut build = cargo();
        build.args(["rustc", "--locked", "--profile", profile, "--package", program, "--bin", program]);
        build.args(["--", "-C", "target-feature=+crt-static"]);
        succeed(&mut build)
            .with_context(|| format!("{program} is linked statically (needs libc.a: libc6-dev, or glibc-static)"))?;
    }
    Ok(target_directory().join(directory))
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().context("running cargo")?;
    ensure!(status.success(), "cargo {status}");
    Ok(())
}
