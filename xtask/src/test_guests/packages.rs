//! Debian's packages for the guests with systemd: fetched once, unpacked, and cached.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::output::output;

/// The unpacked packages of these names with their libraries, from the cache in `work` or the archive.
pub(super) fn unpacked(work: &Path, cached_as: &str, names: &[&str]) -> Result<PathBuf> {
    let tree = work.join(cached_as);
    if !tree.exists() {
        fetch(work, &tree, names).with_context(|| format!("no {} for the guest", names.join(" ")))?;
    }
    Ok(tree)
}

/// Fetches packages and their libraries, without the dependencies of the package scripts, which do not run.
fn fetch(work: &Path, tree: &Path, wanted: &[&str]) -> Result<()> {
    let depends = output(Command::new("apt-cache").args(["depends", "--recurse", "--important"]).args(wanted))?;
    // Dependencies are indented.
    let names: Vec<&str> =
        depends.lines().filter(|line| wanted.contains(line) || line.starts_with("lib") || *line == "zlib1g").collect();
    for name in wanted {
        ensure!(names.contains(name), "apt-cache finds no {name}: try apt-get update");
    }

    println!("fetching {} and {} libraries", wanted.join(", "), names.len() - wanted.len());
    let scratch = work.join("unpacking");
    if scratch.exists() {
        std::fs::remove_dir_all(&scratch).with_context(|| format!("removing {}", scratch.display()))?;
    }
    let unpacked = scratch.join("unpacked");
    std::fs::create_dir_all(&unpacked).with_context(|| format!("making {}", unpacked.display()))?;
    output(Command::new("apt-get").args(["--quiet", "download"]).args(names).current_dir(&scratch))?;
    for package in entries(&scratch)?.iter().filter(|path| path.extension().is_some_and(|it| it == "deb")) {
        output(Command::new("dpkg").arg("--extract").arg(package).arg(&unpacked))?;
    }
    // Renamed last: a tree of this name is complete.
    std::fs::rename(&unpacked, tree).with_context(|| format!("moving {}", unpacked.display()))?;
    std::fs::remove_dir_all(&scratch).with_context(|| format!("removing {}", scratch.display()))
}

pub(super) fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()
        .with_context(|| format!("reading {}", directory.display()))
}
