//! `members.json` in the runtime directory: the lineage of the processes of sessions, for the next daemon, where the
//! kernel's map does not outlive this one.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::log_throttle::ThrottledWarning;
use super::set_aside::StateNotes;
use watchdog_files::trusted_file;
use watchdog_types::{Lineage, ProcessId};

const FILE: &str = "members.json";
/// Incremented when an older daemon can no longer read the file.
const VERSION: u32 = 1;
/// A longer file was not written by this daemon: a process takes some 300 bytes.
const MAX_BYTES: u64 = 64 << 20;
/// The shortest time between two writes.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    boot_id: String,
    members: Vec<(ProcessId, Lineage)>,
}

pub(super) struct MemberFile {
    path: PathBuf,
    boot_id: String,
    /// The generation of the table that is in the file.
    written: Option<u64>,
    not_before: Instant,
    warning: ThrottledWarning,
}

impl MemberFile {
    /// Opens the file of this directory, and returns its members of this boot.
    pub(super) fn open(dir: &Path, boot_id: &str, notes: &StateNotes) -> (Self, Vec<(ProcessId, Lineage)>) {
        let path = dir.join(FILE);
        let consequence = "the lineage of running processes is unknown";
        let members = notes.read(&path, MAX_BYTES, consequence, |text| members_of(text, boot_id)).unwrap_or_default();
        let boot_id = boot_id.to_owned();
        (
            Self { path, boot_id, written: None, not_before: Instant::now(), warning: ThrottledWarning::default() },
            members,
        )
    }

    /// Writes the members, if the table's generation has changed; at most once a second.
    pub(super) fn write_if_changed(&mut self, state: u64, members: impl FnOnce() -> Vec<(ProcessId, Lineage)>) {
        if Instant::now() >= self.not_before {
            self.write_now(state, members);
        }
    }

    /// The same, without the limit in time.
    pub(super) fn write_now(&mut self, state: u64, members: impl FnOnce() -> Vec<(ProcessId, Lineage)>) {
        if self.written == Some(state) {
            return;
        }
        self.not_before = Instant::now() + MIN_INTERVAL;
        match self.write(members()) {
            Ok(()) => self.written = Some(state),
            Err(error) => {
                let path = self.path.display();
                self.warning.warn(format_args!("the lineage of processes is not stored: cannot write {path}: {error}"));
            }
        }
    }

    /// Removes the file where the kernel keeps the members: a later daemon must not use outdated ones.
    pub(super) fn remove(self) {
        if let Err(error) = trusted_file::clear(&self.path) {
            let path = self.path.display();
            tracing::warn!("a later daemon may use outdated lineages: cannot remove {path}: {error}");
        }
    }

    fn write(&self, members: Vec<(ProcessId, Lineage)>) -> io::Result<()> {
        let document = Document { version: VERSION, boot_id: self.boot_id.clone(), members };
        trusted_file::replace(&self.path, &serde_json::to_vec(&document)?, false).map(drop)
    }
}

/// The members of this boot; those of another boot have exited.
fn members_of(text: &[u8], boot_id: &str) -> Result<Vec<(ProcessId, Lineage)>, String> {
    let document: Document = serde_json::from_slice(text).map_err(|error| format!("it is damaged: {error}"))?;
    match document {
        Document { version: VERSION, boot_id: of, members } if of == boot_id => Ok(members),
        Document { version: VERSION, .. } => Ok(Vec::new()),
        Document { version, .. } => Err(format!("it has version {version}, but this daemon reads {VERSION}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use watchdog_types::{Pid, Ticks};

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
        file.write_if_changed(1, || vec![member(3), member(4)]);
        file.write_if_changed(2, || panic!("written twice within a second"));
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
        file.write_if_changed(1, || vec![member(3)]);
        assert_eq!(MemberFile::open(dir.path(), "this", &notes).1, [member(3)]);
    }
}
