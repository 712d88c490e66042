//! `cargo xtask dist`: packages of both programs in `target/dist`.
//!
//! Programs are built in cargo's target directory; everything else is written below `target/dist`.

mod architecture;
mod checksums;
mod deb_rpm;
mod lint;
mod release;
mod sbom;
mod stage;
mod tarball;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueEnum as _;

pub(crate) use architecture::Architecture;
use deb_rpm::Format;
pub(crate) use release::Release;
use stage::StagingTree;
use xtask::cargo::target_directory;

/// `cargo xtask dist [--arch ARCH] [--lint]`
#[derive(clap::Args)]
pub(crate) struct DistOptions {
    /// Only this architecture; default: all
    #[arg(long, value_enum, value_name = "ARCH")]
    arch: Option<ArchitectureChoice>,
    /// Check the results with lintian, rpmlint, mandoc and shellcheck, which must be installed
    #[arg(long)]
    lint: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ArchitectureChoice {
    Amd64,
    Arm64,
    All,
}

/// Builds everything, and prints the files with their sizes.
pub(crate) fn run(options: &DistOptions) -> Result<ExitCode> {
    let architectures = match options.arch {
        Some(ArchitectureChoice::Amd64) => &[Architecture::Amd64],
        Some(ArchitectureChoice::Arm64) => &[Architecture::Arm64],
        Some(ArchitectureChoice::All) | None => Architecture::value_variants(),
    };
    let release = Release::of_workspace()?;
    let directory = directory();
    std::fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
    let manual = stage::manual(&directory, &release)?;
    let mut files = Vec::new();
    for &architecture in architectures {
        let programs = architecture.build()?;
        let stage = StagingTree::write(&directory, architecture, &release, &programs, &manual)?;
        for format in [Format::Deb, Format::Rpm] {
            files.push(deb_rpm::package(&stage, format, &release, &directory)?);
        }
        files.push(tarball::write(&stage, &release, &directory)?);
        files.push(sbom::write(architecture, &release, &programs, &directory)?);
    }
    checksums::write(&files, &directory.join("SHA256SUMS"))?;
    for file in &files {
        let size = file.metadata().with_context(|| format!("looking at {}", file.display()))?.len();
        println!("{:>8.2} MB  {}", size as f64 / 1e6, file.display());
    }
    if options.lint {
        lint::run(&files, &manual)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A Debian package of another version, for tests of upgrades.
pub(crate) fn deb_of_version(architecture: Architecture, version: &str) -> Result<PathBuf> {
    let release = Release { version: version.to_owned(), ..Release::of_workspace()? };
    let directory = directory().join("versions");
    std::fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
    let manual = stage::manual(&directory, &release)?;
    let stage = StagingTree::write(&directory, architecture, &release, &architecture.build()?, &manual)?;
    deb_rpm::package(&stage, Format::Deb, &release, &directory)
}

fn directory() -> PathBuf {
    target_directory().join("dist")
}
