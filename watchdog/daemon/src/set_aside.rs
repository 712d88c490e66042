//! Files of the daemon that were damaged or not trusted, as shown by `status` and `doctor`.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use watchdog_api::SetAside;
use watchdog_files::trusted_file::{self, OpenError};

/// Since the daemon started.
#[derive(Clone, Debug, Default)]
pub(super) struct StateNotes(Arc<Mutex<Vec<SetAside>>>);

impl StateNotes {
    /// Reads a file of at most `max_bytes`; `None` where there is none. An unusable one is renamed, with this consequence.
    pub(super) fn read<T>(
        &self,
        path: &Path,
        max_bytes: u64,
        consequence: &str,
        decode: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Option<T> {
        let found = match trusted_file::read(path, max_bytes) {
            Ok(content) => decode(&content?),
            // What should be its directory is none; the history reports that.
            Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::NotADirectory => return None,
            Err(error) => Err(error.to_string()),
        };
        found.inspect_err(|why| self.rename(path, format_args!("{why}; {consequence}"))).ok()
    }

    /// Renames a file, so that a new one can take its place.
    pub(super) fn rename(&self, path: &Path, because: impl Display) {
        match trusted_file::set_aside(path) {
            Ok(aside) => self.note(path, because, Some(aside)),
            Err(error) => self.note(path, format_args!("{because}; cannot rename it: {error}"), None),
        }
    }

    /// Gives a damaged file a second name. It keeps its first until it is replaced.
    pub(super) fn copy(&self, path: &Path, because: impl Display) {
        match trusted_file::copy_aside(path) {
            Ok(aside) => self.note(path, because, Some(aside)),
            Err(error) => self.note(path, format_args!("{because}; cannot keep a copy: {error}"), None),
        }
    }

    /// Records and logs what was wrong with a file, and where it is kept.
    pub(super) fn note(&self, path: &Path, because: impl Display, kept_as: Option<PathBuf>) {
        let because = because.to_string();
        let kept_as = kept_as.map(|aside| aside.display().to_string());
        let kept = kept_as.as_ref().map_or_else(String::new, |aside| format!("; kept as {aside}"));
        tracing::warn!("{}: {because}{kept}", path.display());
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push(SetAside { path: path.display().to_string(), because, kept_as });
    }

    pub(super) fn all(&self) -> Vec<SetAside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
