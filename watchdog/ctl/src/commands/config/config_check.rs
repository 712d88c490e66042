use std::path::Path;
use std::process::ExitCode;
use watchdog_config::Diagnostic;

use serde::Serialize;

use crate::error::CtlError;
use crate::output::{CommandOutput, print_error};
use crate::render::escape;

#[derive(Debug, Serialize)]
struct ConfigCheck {
    valid: bool,
    /// Each with file, line, key and the allowed values.
    errors: Vec<String>,
    /// Deprecated keys, each with file and line.
    warnings: Vec<String>,
    /// Settings of a valid file that may have no effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

pub(crate) fn run(file: &Path, output: &mut CommandOutput<'_>) -> Result<ExitCode, CtlError> {
    let lines = |diagnostics: Vec<Diagnostic>| diagnostics.iter().map(Diagnostic::to_string).collect();
    let invalid = |errors: Vec<String>| ConfigCheck { valid: false, errors, warnings: Vec::new(), notes: Vec::new() };
    let check = match std::fs::read_to_string(file) {
        Err(error) => invalid(vec![format!("{}: cannot read: {error}", file.display())]),
        Ok(text) => match watchdog_config::parse_with_warnings(file, &text) {
            Ok((config, warnings)) => {
                let notes = watchdog_config::interpreter_notes(&config);
                ConfigCheck { valid: true, errors: Vec::new(), warnings: lines(warnings), notes }
            }
            Err(error) => invalid(lines(error.problems)),
        },
    };
    output.show_value(&check, |_| {
        let valid = format!("{}: valid\n", escape(&file.to_string_lossy()));
        if check.valid { valid } else { String::new() }
    })?;
    if !output.json {
        for warning in &check.warnings {
            print_error(&format!("warning: {}\n", escape(warning)));
        }
        for note in &check.notes {
            print_error(&format!("note: {}\n", escape(note)));
        }
        for error in &check.errors {
            print_error(&format!("{}\n", escape(error)));
        }
    }
    Ok(ExitCode::from(u8::from(!check.valid)))
}
