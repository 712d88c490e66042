//! What the daemon has learned of profiles, in files of the state directory: the peak memory of past sessions, and how much of
//! their memory sessions release when they are paged out.

use std::io;
use std::marker::PhantomData;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::set_aside::StateNotes;
use watchdog_engine::gate::Peaks;
use watchdog_engine::reclaim::LearnedYields;
use watchdog_files::trusted_file;

/// From these the gate estimates.
pub(super) const PEAKS: LearnedFile<Peaks> =
    LearnedFile { name: "peaks.json", loss: "the memory use of past sessions is unknown", content: PhantomData };
/// From these the headroom of idle sessions is estimated.
pub(super) const YIELDS: LearnedFile<LearnedYields> = LearnedFile {
    name: "yields.json",
    loss: "how much memory idle sessions release is unknown until they are paged out again",
    content: PhantomData,
};
/// A longer file was not written by this daemon.
const MAX_BYTES: u64 = 1 << 20;

pub(super) struct LearnedFile<T> {
    name: &'static str,
    /// The consequence if it cannot be read.
    loss: &'static str,
    content: PhantomData<T>,
}

impl<T: Default + Serialize + DeserializeOwned> LearnedFile<T> {
    /// Empty where the file cannot be read.
    pub(super) fn read(&self, state_dir: &Path, notes: &StateNotes) -> T {
        let decode = |text: &[u8]| serde_json::from_slice(text).map_err(|error| format!("it is damaged: {error}"));
        notes.read(&state_dir.join(self.name), MAX_BYTES, self.loss, decode).unwrap_or_default()
    }

    /// Writes and syncs the file.
    pub(super) fn write(&self, state_dir: &Path, content: &T) -> io::Result<()> {
        trusted_file::make_directory(state_dir, 0o700)?;
        trusted_file::replace(&state_dir.join(self.name), &serde_json::to_vec(content)?, true).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use watchdog_types::Bytes;

    #[test]
    fn damaged_file_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let notes = StateNotes::default();
        std::fs::write(dir.path().join("peaks.json"), "{\"claude-code\":[1,").unwrap();
        std::fs::write(dir.path().join("yields.json"), "{\"claude-code\":{\"offered\":-1}}").unwrap();
        assert_eq!(PEAKS.read(dir.path(), &notes), Peaks::default());
        assert_eq!(YIELDS.read(dir.path(), &notes), LearnedYields::default());
        assert_eq!(notes.all().len(), 2);
        let peaks: Peaks = [("claude-code".to_owned(), vec![Bytes(7)])].into();
        PEAKS.write(dir.path(), &peaks).unwrap();
        assert_eq!(PEAKS.read(dir.path(), &notes), peaks);
        assert_eq!(notes.all().len(), 2);
    }
}
