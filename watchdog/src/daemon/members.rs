//! `members.json` in the runtime directory: where the processes of sessions belong, for a daemon that begins after this one where
//! the kernel's map does not outlive it.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::grumble::Grumble;
use crate::engine::id::ProcessId;
use crate::engine::input::Lineage;

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
    pub(super) fn open(dir: &Path, boot_id: &str) -> (Self, Vec<(ProcessId, Lineage)>) {
        let path = dir.join(FILE);
        let members = match read(&path) {
            Ok(Some(Document { version: VERSION, boot_id: of, members })) if of == boot_id => members,
            // Of another version, or of processes that do not exist any more.
            Ok(_) => Vec::new(),
            Err(error) => {
                tracing::warn!("where processes belonged is not known: cannot read {}: {error}", path.display());
                Vec::new()
            }
        };
        let boot_id = boot_id.to_owned();
        (Self { path, boot_id, written: None, not_before: Instant::now(), failed: Grumble::default() }, members)
    }

    /// Writes the members, if the table is in another state than when they were last written.
    pub(super) fn bring_up_to_date(&mut self, state: u64, members: impl FnOnce() -> Vec<(ProcessId, Lineage)>) {
        let now = Instant::now();
        if self.written == Some(state) || now < self.not_before {
            return;
        }
        self.not_before = now + PAUSE;
        match self.write(members()) {
            Ok(()) => self.written = Some(state),
            Err(error) => {
                let path = self.path.display();
                self.failed.say(format_args!("where processes belong is not kept: cannot write {path}: {error}"));
            }
        }
    }

    /// Writes another file and renames it: whatever happens, one of the two is there and whole.
    fn write(&self, members: Vec<(ProcessId, Lineage)>) -> io::Result<()> {
        let document = Document { version: VERSION, boot_id: self.boot_id.clone(), members };
        let new = self.path.with_extension("new");
        // A file that was left half written, or anything else of that name.
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(&document)?)?;
        std::fs::rename(&new, &self.path)
    }
}

/// Reads a regular file of this user's own.
fn read(path: &Path) -> io::Result<Option<Document>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it is not a regular file of this user"));
    }
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text)?;
    Ok(Some(serde_json::from_slice(&text)?))
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
        let (mut file, before) = MemberFile::open(dir.path(), "this");
        assert_eq!(before, []);
        file.bring_up_to_date(1, || vec![member(3), member(4)]);
        file.bring_up_to_date(2, || panic!("written twice within a second"));
        assert_eq!(MemberFile::open(dir.path(), "this").1, [member(3), member(4)]);
        assert_eq!(MemberFile::open(dir.path(), "another").1, []);
    }

    #[test]
    fn foreign_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        std::fs::write(&path, "{\"version\":1").unwrap();
        assert_eq!(MemberFile::open(dir.path(), "this").1, []);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(read(&path).is_err_and(|error| error.raw_os_error() == Some(libc::ELOOP)));
        let (mut file, _) = MemberFile::open(dir.path(), "this");
        file.bring_up_to_date(1, || vec![member(3)]);
        assert_eq!(MemberFile::open(dir.path(), "this").1, [member(3)]);
    }
}
