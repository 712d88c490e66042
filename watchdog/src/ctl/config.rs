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
            Err(error) => split(&error.to_string()),
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
            let lines: Vec<_> = error.lines().map(visible).collect();
            complain(&format!("{}\n", lines.join("\n")));
        }
    }
    Ok(ExitCode::from(u8::from(!verdict.valid)))
}

/// One error a line; what is set off belongs to the error above.
fn split(errors: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in errors.lines() {
        match all.last_mut() {
            Some(error) if line.starts_with([' ', '\t']) => {
                error.push('\n');
                error.push_str(line);
            }
            _ if line.is_empty() => {}
            _ => all.push(line.to_owned()),
        }
    }
    all
}
