//! The files in a directory of pins: maps by name, programs and links with a prefix.

use std::path::{Path, PathBuf};

use watchdog_host::pins::PinError;

const LINK: &str = "link_";
const PROGRAM: &str = "prog_";

pub(super) fn link_path(dir: &Path, program: &str) -> PathBuf {
    dir.join(format!("{LINK}{program}"))
}

pub(super) fn program_path(dir: &Path, program: &str) -> PathBuf {
    dir.join(format!("{PROGRAM}{program}"))
}

/// Names and files of the pinned maps.
pub(super) fn pinned_maps(dir: &Path) -> Result<Vec<(String, PathBuf)>, PinError> {
    let failed = |source| PinError::Io { doing: "read the directory", path: dir.to_owned(), source };
    let entries = std::fs::read_dir(dir).map_err(failed)?;
    let named = entries.flatten().map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()));
    Ok(named.filter(|(name, _)| !name.starts_with(LINK) && !name.starts_with(PROGRAM)).collect())
}

/// The error for a map, program or link that could not be pinned, or whose pin could not be opened.
pub(super) fn not_pinned(name: &str, path: &Path, error: &dyn std::error::Error) -> PinError {
    PinError::Object { name: name.to_owned(), path: path.to_owned(), reason: chain(error) }
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
