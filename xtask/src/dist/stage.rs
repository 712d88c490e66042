//! The tree of files that packages carry, at the paths where they are installed.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::architecture::Architecture;
use super::release::Release;
use crate::output::output;
use xtask::cargo::{cargo, workspace};

const DOCUMENTS: &str = "usr/share/doc/agent-watchdog";
const SHARED: &str = "usr/share/agent-watchdog";

pub(super) struct StagingTree {
    pub(super) architecture: Architecture,
    /// The files below `root`, by path.
    pub(super) root: PathBuf,
}

impl StagingTree {
    /// Replaces the tree of an earlier run.
    pub(super) fn write(
        work: &Path,
        architecture: Architecture,
        release: &Release,
        programs: &[PathBuf],
        manual: &Path,
    ) -> Result<Self> {
        let root = work.join(format!("root-{}", architecture.name()));
        if root.exists() {
            std::fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))?;
        }
        let stage = Self { architecture, root };
        for program in programs {
            stage.add(program, "usr/bin", 0o755)?;
        }
        let packaging = workspace().join("packaging");
        stage.add(&packaging.join("watchdogd.service"), "usr/lib/systemd/system", 0o644)?;
        stage.add(&packaging.join("config.toml"), "etc/agent-watchdog", 0o644)?;
        // All keys with their defaults, whatever became of the file in /etc.
        stage.add(&packaging.join("config.toml"), SHARED, 0o644)?;
        stage.manual(manual)?;
        stage.documents()?;
        stage.shared(&packaging)?;
        stage.set_times(release)?;
        Ok(stage)
    }

    fn manual(&self, manual: &Path) -> Result<()> {
        for file in files(manual)? {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match name.rsplit_once('.') {
                Some((_, section @ ("1" | "5" | "8"))) => {
                    let page = self.add(&file, &format!("usr/share/man/man{section}"), 0o644)?;
                    compress(&page)?;
                }
                Some((command, "bash")) => {
                    self.add_as(&file, &format!("usr/share/bash-completion/completions/{command}"), 0o644)?;
                }
                Some((_, "fish")) => {
                    self.add(&file, "usr/share/fish/vendor_completions.d", 0o644)?;
                }
                _ => {
                    self.add(&file, "usr/share/zsh/site-functions", 0o644)?;
                }
            }
        }
        Ok(())
    }

    fn documents(&self) -> Result<()> {
        let workspace = workspace();
        let copyright = workspace.join("packaging/copyright");
        self.add(&copyright, DOCUMENTS, 0o644)?;
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            self.add(&workspace.join(licence), "usr/share/licenses/agent-watchdog", 0o644)?;
        }
        self.add(&workspace.join("README.md"), DOCUMENTS, 0o644)?;
        compress(&self.add_as(&workspace.join("CHANGELOG.md"), &format!("{DOCUMENTS}/changelog"), 0o644)?)?;
        for document in files(&workspace.join("docs"))? {
            self.add(&document, &format!("{DOCUMENTS}/docs"), 0o644)?;
        }
        Ok(())
    }

    /// Rules without their tests, the board, and programs for `[actions] notify`.
    fn shared(&self, packaging: &Path) -> Result<()> {
        for (directory, mode) in [("prometheus", 0o644), ("grafana", 0o644), ("notify", 0o755)] {
            for file in files(&packaging.join(directory))? {
                if file.file_stem().is_none_or(|name| name != "tests") {
                    self.add(&file, &format!("{SHARED}/{directory}"), mode)?;
                }
            }
        }
        Ok(())
    }

    fn add(&self, file: &Path, directory: &str, mode: u32) -> Result<PathBuf> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        self.add_as(file, &format!("{directory}/{name}"), mode)
    }

    fn add_as(&self, file: &Path, path: &str, mode: u32) -> Result<PathBuf> {
        let to = self.root.join(path);
        if let Some(directory) = to.parent() {
            std::fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
        }
        std::fs::copy(file, &to).with_context(|| format!("copying {} to {}", file.display(), to.display()))?;
        std::fs::set_permissions(&to, PermissionsExt::from_mode(mode))
            .with_context(|| format!("permissions of {}", to.display()))?;
        Ok(to)
    }

    /// Every file and directory has the release's time.
    fn set_times(&self, release: &Release) -> Result<()> {
        let mut command = Command::new("find");
        command.arg(&self.root).args(["-exec", "touch", "--no-dereference", "--date"]);
        command.arg(format!("@{}", release.epoch)).args(["{}", "+"]);
        output(&mut command)?;
        Ok(())
    }
}

/// Writes man pages and completions, and returns their directory. Built for this machine, without optimisation.
pub(super) fn manual(work: &Path, release: &Release) -> Result<PathBuf> {
    let directory = work.join("manual");
    if directory.exists() {
        std::fs::remove_dir_all(&directory).with_context(|| format!("removing {}", directory.display()))?;
    }
    let directory = std::path::absolute(directory)?;
    let mut command = cargo();
    command.args(["run", "--quiet", "--locked", "--package", "watchdog-manual", "--"]);
    command.arg(&directory).arg(release.date("+%F")?);
    let status = command.status().context("running cargo")?;
    ensure!(status.success(), "writing the manual: cargo {status}");
    Ok(directory)
}

/// The files of a directory, by name.
pub(super) fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>();
    let mut paths = paths.with_context(|| format!("reading {}", directory.display()))?;
    paths.retain(|path| path.is_file());
    paths.sort_unstable();
    Ok(paths)
}

/// The files of a directory and of all directories below it.
pub(super) fn files_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = files(directory)?;
    let entries = std::fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("reading {}", directory.display()))?.path();
        if path.is_dir() {
            found.extend(files_below(&path)?);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Without a name and a time in its header, so that equal files compress equally.
fn compress(file: &Path) -> Result<()> {
    output(Command::new("gzip").args(["--no-name", "--best", "--force"]).arg(file))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths below `SHARED` that the documentation names.
    fn documented() -> Vec<(PathBuf, String)> {
        let documents = files(&workspace().join("docs")).unwrap().into_iter();
        let is_path = |letter: char| letter.is_ascii_alphanumeric() || "/-._".contains(letter);
        let prefix = format!("/{SHARED}/");
        let named = documents.filter(|file| file.extension().is_some_and(|it| it == "md")).flat_map(|file| {
            let text = std::fs::read_to_string(&file).unwrap();
            let paths = text.split(&prefix).skip(1).map(|rest| rest.split(|letter| !is_path(letter)).next().unwrap());
            paths.map(|path| (file.clone(), path.to_owned())).collect::<Vec<_>>()
        });
        named.collect()
    }

    #[test]
    fn documented_files_are_packaged() {
        let root = tempfile::tempdir().unwrap();
        let stage = StagingTree { architecture: Architecture::Amd64, root: root.path().to_owned() };
        stage.shared(&workspace().join("packaging")).unwrap();
        let documented = documented();
        assert!(documented.len() > 3, "{documented:?}");
        for (document, path) in documented {
            let file = root.path().join(SHARED).join(&path);
            let found = file.metadata().unwrap_or_else(|error| panic!("{}: {path}: {error}", document.display()));
            let is_program = path.starts_with("notify/") && found.is_file();
            assert!(!is_program || found.permissions().mode() & 0o111 == 0o111, "{path} is not executable");
        }
    }
}
