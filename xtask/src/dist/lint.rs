//! Checks of finished packages by the tools of the distributions.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::stage::files;
use xtask::cargo::workspace;

/// Runs every tool, so that one run shows all that is wrong.
pub(super) fn run(packages: &[PathBuf], manual: &Path) -> Result<()> {
    let packaging = workspace().join("packaging");
    let with_extension = |extension: &str| -> Vec<PathBuf> {
        packages.iter().filter(|path| path.extension().is_some_and(|it| it == extension)).cloned().collect()
    };
    let pages: Vec<PathBuf> = files(manual)?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|it| ["1", "5", "8"].iter().any(|section| it == *section)))
        .collect();
    let mut scripts = files(&packaging.join("deb/scripts"))?;
    scripts.extend(files(&packaging.join("rpm/scripts"))?);
    scripts.extend(files(&packaging.join("tarball"))?);

    let mut lintian = Command::new("lintian");
    // Root is what CI and containers run as; the packages are our own.
    lintian.args(["--allow-root", "--fail-on=error,warning,info", "--display-info", "--tag-display-limit=0"]);
    let mut rpmlint = Command::new("rpmlint");
    rpmlint.arg("--config").arg(packaging.join("rpm/rpmlint.toml"));
    let mut mandoc = Command::new("mandoc");
    mandoc.args(["-Tlint", "-Wstyle"]);
    let mut shellcheck = Command::new("shellcheck");
    shellcheck.arg("--shell=sh");

    let mut failed = Vec::new();
    for (mut command, checked) in
        [(lintian, with_extension("deb")), (rpmlint, with_extension("rpm")), (mandoc, pages), (shellcheck, scripts)]
    {
        let name = command.get_program().to_string_lossy().into_owned();
        println!("{name}: checking {} files", checked.len());
        let status = command.args(checked).stdin(Stdio::null()).status();
        if !status.with_context(|| format!("running {name}: on Debian, apt-get install {name}"))?.success() {
            failed.push(name);
        }
    }
    ensure!(failed.is_empty(), "not clean: {}", failed.join(", "));
    Ok(())
}
