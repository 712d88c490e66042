//! Static programs for an architecture.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::output::output;
use crate::programs::{self, PROGRAMS};
use xtask::cargo::{cargo, target_directory, workspace};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Architecture {
    Amd64,
    Arm64,
}

impl Architecture {
    /// The name that Debian and Go use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    pub(super) fn rpm_name(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// The target with musl, which links statically on any machine: rust-lld comes with the toolchain.
    pub(crate) fn musl_target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-musl",
            Self::Arm64 => "aarch64-unknown-linux-musl",
        }
    }

    /// Whether this machine builds for the architecture without another target.
    fn is_native(self) -> bool {
        let machine = match self {
            Self::Amd64 => cfg!(target_arch = "x86_64"),
            Self::Arm64 => cfg!(target_arch = "aarch64"),
        };
        machine && cfg!(target_env = "gnu")
    }

    /// Builds both programs, and returns their paths. Those of this machine's architecture are those of `cargo xtask build
    /// --release`: the benchmarks measure the same programs.
    pub(super) fn build(self) -> Result<Vec<PathBuf>> {
        let directory = if self.is_native() { programs::build(true)? } else { self.cross_build()? };
        Ok(PROGRAMS.iter().map(|name| directory.join(name)).collect())
    }

    fn cross_build(self) -> Result<PathBuf> {
        let target = self.musl_target();
        ensure!(libraries(target)?.exists(), "no {target}: rustup target add {target}");
        let mut command = cargo();
        command.args(["build", "--locked", "--release", "--bins"]);
        command.args(["--package", "watchdogd", "--package", "watchdogctl"]);
        self.configure(&mut command, target)?;
        println!("building for {target}");
        let status = command.status().context("running cargo")?;
        ensure!(status.success(), "cargo {status}");
        Ok(target_directory().join(target).join("release"))
    }

    /// Makes a cargo command build statically for this target.
    pub(crate) fn configure(self, command: &mut Command, target: &str) -> Result<()> {
        command.args(["--target", target]);
        if target == self.musl_target() {
            let variable = |name: &str| format!("CARGO_TARGET_{}_{name}", target.to_uppercase().replace('-', "_"));
            command.env(variable("LINKER"), "rust-lld");
            if self == Self::Arm64 {
                command.env(variable("RUSTFLAGS"), static_pie_flags(&libraries(target)?.join("self-contained")));
            }
        } else {
            // An explicit target keeps these flags away from build scripts and procedural macros.
            command.env("RUSTFLAGS", "-C target-feature=+crt-static");
        }
        Ok(())
    }
}

/// Flags for position-independent programs, which rustc makes of static ones on x86-64 only. The start file that it would
/// choose relocates nothing, so these name all parts of musl.
fn static_pie_flags(parts: &Path) -> String {
    let mut flags = format!("-C link-self-contained=no -L native={}", parts.display());
    for argument in ["rcrt1.o", "crti.o", "crtn.o"].map(|name| parts.join(name).display().to_string()) {
        flags += &format!(" -C link-arg={argument}");
    }
    flags + " -C link-arg=-pie -C link-arg=--no-dynamic-linker"
}

/// The directory of the target's libraries, which is missing if the target is not installed.
fn libraries(target: &str) -> Result<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let directory =
        output(Command::new(rustc).args(["--print", "target-libdir", "--target", target]).current_dir(workspace()))?;
    Ok(PathBuf::from(directory.trim_end()))
}
