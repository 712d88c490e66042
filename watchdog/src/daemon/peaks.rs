//! `peaks.json` in the state directory: what past sessions took, for the next run of the daemon.

use std::io;
use std::path::Path;

use super::set_aside::StateNotes;
use crate::engine::gate::Peaks;
use crate::trusted_file::{self, OpenError};

/// The file's name.
const FILE: &str = "peaks.json";
/// A longer file was not written by this daemon.
const LONGEST: u64 = 1 << 20;

/// What past runs learned; nothing where that cannot be read.
pub(super) fn read(state_dir: &Path, notes: &StateNotes) -> Peaks {
    let path = state_dir.join(FILE);
    let found = match trusted_file::read(&path, LONGEST) {
        Ok(None) => return Peaks::default(),
        // The directory is no directory: the history says so.
        Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::NotADirectory => return Peaks::default(),
        Ok(Some(text)) => serde_json::from_slice(&text).map_err(|error| format!("it is damaged: {error}")),
        Err(error) => Err(error.to_string()),
    };
    found.unwrap_or_else(|why| {
        notes.moved(&path, format_args!("{why}; what past sessions took is not known"));
        Peaks::default()
    })
}

/// Replaces the file, durably.
pub(super) fn write(state_dir: &Path, peaks: &Peaks) -> io::Result<()> {
    trusted_file::make_directory(state_dir, 0o700)?;
    trusted_file::replace(&state_dir.join(FILE), &serde_json::to_vec(peaks)?, true).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::id::Bytes;

    #[test]
    fn damaged_peaks_are_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let notes = StateNotes::default();
        std::fs::write(dir.path().join(FILE), "{\"claude-code\":[1,").unwrap();
        assert_eq!(read(dir.path(), &notes), Peaks::default());
        assert_eq!(notes.all().len(), 1);
        let peaks: Peaks = [("claude-code".to_owned(), vec![Bytes(7)])].into();
        write(dir.path(), &peaks).unwrap();
        assert_eq!(read(dir.path(), &notes), peaks);
        assert_eq!(notes.all().len(), 1);
    }
}
