//! A tarball of the same files, with a script that verifies and copies them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::checksums;
use super::release::Release;
use super::stage::{StagingTree, files_below};
use crate::output::output;
use xtask::cargo::workspace;

/// Writes the tarball to `directory`, and returns its path.
pub(super) fn write(stage: &StagingTree, release: &Release, directory: &Path) -> Result<PathBuf> {
    let name = format!("agent-watchdog-{}-linux-{}", release.version, stage.architecture.name());
    let unpacked = directory.join(&name);
    if unpacked.exists() {
        std::fs::remove_dir_all(&unpacked).with_context(|| format!("removing {}", unpacked.display()))?;
    }
    std::fs::create_dir_all(&unpacked).with_context(|| format!("making {}", unpacked.display()))?;
    output(
        Command::new("cp").args(["--archive", "--no-target-directory"]).arg(&stage.root).arg(unpacked.join("root")),
    )?;
    let mut contents = files_below(&unpacked.join("root"))?;
    let script = unpacked.join("install.sh");
    std::fs::copy(workspace().join("packaging/tarball/install.sh"), &script)
        .with_context(|| format!("writing {}", script.display()))?;
    contents.push(script);
    checksums::write(&contents, &unpacked.join("SHA256SUMS"))?;

    let tarball = directory.join(name.clone() + ".tar.gz");
    let mut command = Command::new("tar");
    command.arg("--directory").arg(directory).args(["--create", "--sort=name", "--owner=0", "--group=0"]);
    command.args(["--numeric-owner", "--use-compress-program=gzip --no-name --best"]);
    command.arg(format!("--mtime=@{}", release.epoch)).arg("--file").arg(&tarball).arg(&name);
    output(&mut command)?;
    std::fs::remove_dir_all(&unpacked).with_context(|| format!("removing {}", unpacked.display()))?;
    Ok(tarball)
}
