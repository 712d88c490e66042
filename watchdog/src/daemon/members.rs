//! `members.json` in the runtime directory: where the processes of sessions belong, for a daemon that begins after this one where
//! the kernel's map does not outlive it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::grumble::Grumble;
use super::set_aside::StateNotes;
use crate::engine::id::ProcessId;
use crate::engine::input::Lineage;
use crate::trusted_file;

/// The file's name.
const FILE: &str = "members.json";
/// Counted up when an older daemon cannot read it any more.
const VERSION: u32 = 1;
/// A file that is longer is not this daemon's: some 300 bytes are written for a process.
const LONGEST: u64 = 64 << 20;
/// The least time between two writes.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    boot_id: String,
    members: Vec<(ProcessId, Lineage)>,
}

/// The file, written when something changed, at most once a second.
pub(super) struct MemberFile {
    path: PathBuf,
    boot_id: String,
    /// The state of the table that is written.
    written: Option<u64>,
    not_before: Instant,
    failed: Grumble,
}

impl MemberFile {
    /// The file of this directory, and what it says of this boot.
    pub(super) fn open(dir: &Path, boot_id: &str, notes: &StateNotes) -> (Self, Vec<(ProcessId, Lineage)>) {
        let path = dir.join(FILE);
        let found = match trusted_file::read(&path, LONGEST) {
            Ok(None) => Ok(Vec::new()),
            Ok(Some(text)) => members_of(&text, boot_id),
            Err(error) => Err(error.to_string()),
        };
        let members = found.unwrap_or_else(|why| {
            notes.moved(&path, format_args!("{why}; where processes belonged is not known"));
            Vec::new()
        });
        let boot_id = boot_id.to_owned();
        (Self { path, boot_id, written: None, not_before: Instant::now(), failed: Grumble::default() }, members)
    }

    /// Writes the members, if the table is in another state than when they were last written.
    pub(super) fn bring_up_to_date(&mut self, state: u64, members: impl FnOnce() -> Vec<(ProcessId, Lineage)>) {
        if Instant::now() >= self.not_before {
            self.write_now(state, members);
        }
    }

    /// The same, however short ago they were last written.
    pub(super) fn write_now(&mut self, state: u64, members: impl FnOnce() -> Vec<(ProcessId, Lineage)>) {
        if self.written == Some(state) {
            return;
        }
        self.not_before = Instant::now() + PAUSE;
        match self.write(members()) {
            Ok(()) => self.written = Some(state),
            Err(error) => {
                let path = self.path.display();
                self.failed.say(format_args!("where processes belong is not kept: cannot write {path}: {error}"));
            }
        }
    }

    /// Removes the file where the kernel keeps the members: a later daemon must not use places of long ago.
    pub(super) fn remove(self) {
        if let Err(error) = trusted_file::clear(&self.path) {
            let path = self.path.display();
            tracing::warn!("a later daemon may use outdated places: cannot remove {path}: {error}");
        }
    }

    fn write(&self, members: Vec<(ProcessId, Lineage)>) -> io::Result<()> {
        let document = Document { version: VERSION, boot_id: self.boot_id.clone(), members };
        trusted_file::replace(&self.path, &serde_json::to_vec(&document)?, false).map(drop)
    }
}

/// The members that a document of this boot holds; those of another boot have exited.
fn members_of(text: &[u8], boot_id: &str) -> Result<Vec<(ProcessId, Lineage)>, String> {
    let document: Document = serde_json::from_slice(text).map_err(|error| format!("it is damaged: {error}"))?;
    match document {
        Document { version: VERSION, boot_id: of, members } if of == boot_id => Ok(members),
        Document { version: VERSION, .. } => Ok(Vec::new()),
        Document { version, .. } => Err(format!("it is of version {version}, and this daemon reads {VERSION}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::id::{Pid, Ticks};

    fn member(pid: u32) -> (ProcessId, Lineage) {
        let process = |pid| ProcessId { pid: Pid(pid), start_time: Ticks(7) };
        let (root, parent) = (process(1), Some(process(2)));
        (process(pid), Lineage { root, parent, depth: 2, provisional: false, forked: false, witness: false })
    }

    #[test]
    fn members_survive_within_a_boot() {
        let dir = tempfile::tempdir().unwrap();
        let notes = StateNotes::default();
        let read = |boot: &str| MemberFile::open(dir.path(), boot, &notes);
        let (mut file, before) = read("this");
        assert_eq!(before, []);
        file.bring_up_to_date(1, || vec![member(3), member(4)]);
        file.bring_up_to_date(2, || panic!("written twice within a second"));
        assert_eq!(read("this").1, [member(3), member(4)]);
        assert_eq!(read("another").1, []);
        file.write_now(2, || vec![member(5)]);
        assert_eq!(read("this").1, [member(5)]);
        file.remove();
        assert_eq!(read("this").1, []);
        assert_eq!(notes.all(), []);
    }

    #[test]
    fn untrusted_files_are_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let notes = StateNotes::default();
        let path = dir.path().join(FILE);
        std::fs::write(&path, "{\"version\":1").unwrap();
        assert_eq!(MemberFile::open(dir.path(), "this", &notes).1, []);
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        let (mut file, members) = MemberFile::open(dir.path(), "this", &notes);
        assert_eq!((members, notes.all().len()), (Vec::new(), 2));
        file.bring_up_to_date(1, || vec![member(3)]);
        assert_eq!(MemberFile::open(dir.path(), "this", &notes).1, [member(3)]);
    }
}
