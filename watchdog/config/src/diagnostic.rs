//! Errors and warnings about a configuration file.

use std::fmt;
use std::path::PathBuf;

/// Why a configuration was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(problems))]
pub struct ConfigError {
    /// Every error of the file, in the order of the file; at least one.
    pub problems: Vec<Diagnostic>,
}

/// One error or warning: `config.toml:3:8: grace: must be a duration`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diagnostic {
    pub file: PathBuf,
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// The key, what is wrong, and what is allowed.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, message } = self;
        write!(f, "{}:{line}:{column}: {message}", file.display())
    }
}

fn lines(problems: &[Diagnostic]) -> String {
    problems.iter().map(Diagnostic::to_string).collect::<Vec<_>>().join("\n")
}
