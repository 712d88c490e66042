//! `watchdogctl config check`: whether a configuration is valid, without a daemon.

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use super::failure::Failure;
use super::output::{Output, complain};
use super::show::visible;
use crate::config;

/// The JSON document of `config check`.
#[derive(Debug, Serialize)]
struct Verdict {
    valid: bool,
    /// Each names file, line, key and what is allowed.
    errors: Vec<String>,
}

pub(super) fn check(file: &Path, output: &mut Output<'_>) -> Result<ExitCode, Failure> {
    let errors = match std::fs::read_to_string(file) {
        Err(error) => vec![format!("{}: cannot be read: {error}", file.display())],
        Ok(text) => match config::parse(file, &text) {
            Ok(_) => Vec::new(),
            // One error a line.
            Err(error) => error.to_string().lines().map(ToOwned::to_owned).collect(),
        },
    };
    let verdict = Verdict { valid: errors.is_empty(), errors };
    if output.json {
        let document = serde_json::to_string(&verdict).map_err(|error| Failure::No(error.to_string()))?;
        output.show(&document, |_| String::new())?;
    } else if verdict.valid {
        output.line(&format!("{}: valid", visible(&file.to_string_lossy())))?;
    } else {
        for error in &verdict.errors {
            complain(&format!("{}\n", visible(error)));
        }
    }
    Ok(ExitCode::from(u8::from(!verdict.valid)))
}
