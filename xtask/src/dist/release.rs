//! The common properties of all files of a release.

use std::process::Command;

use anyhow::{Context, Result};

use crate::output::output;
use xtask::cargo::workspace;

#[derive(Clone)]
pub(crate) struct Release {
    pub(crate) version: String,
    /// Seconds since 1970. `SOURCE_DATE_EPOCH`, or the time of the last commit: two builds of one commit are equal.
    pub(super) epoch: u64,
}

impl Release {
    /// # Errors
    /// When the time is unknown: neither the variable nor git has it.
    pub(crate) fn of_workspace() -> Result<Self> {
        let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(epoch) => epoch,
            Err(_) => output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(workspace()))
                .context("set SOURCE_DATE_EPOCH where there is no git")?,
        };
        let epoch = epoch.trim().parse().with_context(|| format!("{epoch:?} is no number of seconds"))?;
        Ok(Self { version: env!("CARGO_PKG_VERSION").to_owned(), epoch })
    }

    /// In the format of date(1), such as `+%F`.
    pub(super) fn date(&self, format: &str) -> Result<String> {
        let date = output(Command::new("date").args(["--utc", "--date"]).arg(format!("@{}", self.epoch)).arg(format))?;
        Ok(date.trim_end().to_owned())
    }
}
