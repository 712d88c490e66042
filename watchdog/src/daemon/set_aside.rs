//! Files of the daemon that it could not believe, and what it did about them: for `status` and `doctor`.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::api::SetAside;
use crate::trusted_file;

/// The files that were damaged or not trusted, since the daemon started.
#[derive(Clone, Debug, Default)]
pub(super) struct StateNotes(Arc<Mutex<Vec<SetAside>>>);

impl StateNotes {
    /// Moves a file out of the way.
    pub(super) fn moved(&self, path: &Path, because: impl Display) {
        match trusted_file::set_aside(path) {
            Ok(aside) => self.note(path, because, Some(aside)),
            Err(error) => self.note(path, format_args!("{because}; it cannot be renamed: {error}"), None),
        }
    }

    /// Gives a damaged file a second name. It stays in its place until it is replaced.
    pub(super) fn copied(&self, path: &Path, because: impl Display) {
        match trusted_file::copy_aside(path) {
            Ok(aside) => self.note(path, because, Some(aside)),
            Err(error) => self.note(path, format_args!("{because}; it cannot be kept: {error}"), None),
        }
    }

    /// Notes and logs what was wrong with a file, and where it is kept.
    pub(super) fn note(&self, path: &Path, because: impl Display, kept_as: Option<PathBuf>) {
        let because = because.to_string();
        let kept_as = kept_as.map(|aside| aside.display().to_string());
        let kept = kept_as.as_ref().map_or_else(String::new, |aside| format!("; it is kept as {aside}"));
        tracing::warn!("{}: {because}{kept}", path.display());
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push(SetAside { path: path.display().to_string(), because, kept_as });
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<SetAside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
