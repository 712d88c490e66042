//! Runs a command for what it prints.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// What a command prints.
///
/// # Errors
/// When it cannot be run, or fails: with its complaint.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
