//! `peaks.json` in the state directory: what past sessions took, for the next run of the daemon. A thread writes it: the disk may
//! be slow.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use super::grumble::Grumble;
use crate::engine::gate::Peaks;

/// The file's name.
const FILE: &str = "peaks.json";
/// Stack of the thread. Only what is touched counts.
const STACK: usize = 256 * 1024;

/// Starts the thread; it ends with the last sender, when all is written.
///
/// # Errors
/// When the thread cannot be started.
pub(super) fn start(state_dir: &Path) -> io::Result<(Sender<Peaks>, JoinHandle<()>)> {
    let (sender, learned) = mpsc::channel();
    let dir = state_dir.to_owned();
    let builder = thread::Builder::new().name("peaks".to_owned()).stack_size(STACK);
    let thread = builder.spawn(move || keep(&dir, &learned))?;
    Ok((sender, thread))
}

/// What past runs learned; nothing where that cannot be read.
pub(super) fn read(state_dir: &Path) -> Peaks {
    let path = state_dir.join(FILE);
    let found = match std::fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Peaks::default(),
        found => found.map_err(|error| error.to_string()),
    };
    match found.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string())) {
        Ok(peaks) => peaks,
        Err(error) => {
            tracing::warn!("what past sessions took is not known: cannot read {}: {error}", path.display());
            Peaks::default()
        }
    }
}

fn keep(dir: &Path, learned: &Receiver<Peaks>) {
    let mut failed = Grumble::default();
    while let Ok(peaks) = learned.recv() {
        // Each holds all that is known: of those that wait only the youngest counts.
        let peaks = learned.try_iter().last().unwrap_or(peaks);
        if let Err(error) = write(dir, &peaks) {
            let path = dir.join(FILE);
            failed.say(format_args!("what sessions took is not kept: cannot write {}: {error}", path.display()));
        }
    }
}

/// Writes another file and puts it in the place of the old one: whatever happens, one of the two is there and whole.
fn write(dir: &Path, peaks: &Peaks) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let new = dir.join(FILE).with_extension("json.new");
    let mut file = File::create(&new)?;
    file.write_all(&serde_json::to_vec(peaks)?)?;
    file.sync_all()?;
    std::fs::rename(&new, dir.join(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::id::Bytes;

    fn peaks(bytes: u64) -> Peaks {
        [("claude-code".to_owned(), vec![Bytes(bytes), Bytes(7)])].into()
    }

    #[test]
    fn what_was_learned_last_is_read_by_the_next_run() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = dir.path().join("state");
        assert_eq!(read(&state_dir), Peaks::default());
        let (learned, thread) = start(&state_dir).unwrap();
        for bytes in 1..=100 {
            learned.send(peaks(bytes)).unwrap();
        }
        drop(learned);
        thread.join().unwrap();
        assert_eq!(read(&state_dir), peaks(100));
        let names: Vec<_> = std::fs::read_dir(&state_dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [FILE]);
    }

    #[test]
    fn a_damaged_file_is_as_good_as_none() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "{\"claude-code\":[1,").unwrap();
        assert_eq!(read(dir.path()), Peaks::default());
    }
}
