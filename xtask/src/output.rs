//! Captures the output of a command.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The standard output of a command.
///
/// # Errors
/// When it cannot be run or fails; the error has its stderr.
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
