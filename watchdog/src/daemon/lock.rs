//! One daemon for one runtime directory: a locked file that names the daemon's pid.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::set_aside::StateNotes;
use crate::lock_file::Lock;
use crate::trusted_file::{self, OpenError, UnsafePath};

/// Why a runtime directory could not be taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum LockError {
    /// Another daemon has it.
    #[error("another watchdogd already runs on {dir} (pid {pid}): stop it first, or choose another --runtime-dir")]
    Taken {
        /// The directory.
        dir: String,
        /// What the lock file says, which is the other daemon's pid.
        pid: String,
    },
    /// Another user could replace what the daemon writes there.
    #[error("the runtime directory {0}")]
    Unsafe(#[from] UnsafePath),
    /// Something about the directory or the file failed.
    #[error("cannot {doing} {path}: {source}; {hint}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: String,
        /// Why it failed.
        source: io::Error,
        /// What to do about it.
        hint: &'static str,
    },
}

/// A runtime directory that is ours for as long as this lives.
#[derive(Debug)]
pub(super) struct RuntimeDir {
    path: PathBuf,
    _lock: Lock,
}

impl RuntimeDir {
    /// Makes the directory where it is missing, and takes it.
    pub(super) fn take(dir: &Path, notes: &StateNotes) -> Result<Self, LockError> {
        trusted_file::check_directory(dir)?;
        let failed = |doing, path: &Path| {
            let path = path.display().to_string();
            move |source: io::Error| {
                let hint = match source.kind() {
                    io::ErrorKind::PermissionDenied => "run watchdogd as root, or choose another --runtime-dir",
                    _ => "choose another --runtime-dir",
                };
                LockError::Io { doing, path, source, hint }
            }
        };
        // Every user must reach the socket.
        trusted_file::make_directory(dir, 0o755).map_err(failed("make the directory", dir))?;
        let file = dir.join("watchdogd.pid");
        let open = || {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o644);
            trusted_file::open(&file, &mut options)
        };
        let opened = match open() {
            Err(OpenError::Untrusted(why)) => {
                notes.moved(&file, why);
                open()
            }
            opened => opened,
        };
        let opened = opened.map_err(|error| failed("open", &file)(error.into()))?;
        let lock = Lock::take(opened).map_err(|(theirs, error)| match error.kind() {
            io::ErrorKind::WouldBlock => {
                let mut pid = String::new();
                // The pid is a help to the reader: without it the refusal stands all the same.
                let _ = theirs.take(32).read_to_string(&mut pid);
                LockError::Taken { dir: dir.display().to_string(), pid: pid.trim().to_owned() }
            }
            _ => failed("lock", &file)(error),
        })?;
        let mut ours = lock.file();
        ours.set_len(0)
            .and_then(|()| ours.rewind())
            .and_then(|()| writeln!(ours, "{}", std::process::id()))
            .map_err(failed("write", &file))?;
        Ok(Self { path: dir.to_owned(), _lock: lock })
    }

    /// The directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the control socket is.
    pub(super) fn socket(&self) -> PathBuf {
        self.path.join("control.sock")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_second_daemon_is_refused_and_told_the_pid_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let first = RuntimeDir::take(dir.path(), &StateNotes::default()).unwrap();
        let refusal = RuntimeDir::take(dir.path(), &StateNotes::default()).unwrap_err();
        assert!(matches!(&refusal, LockError::Taken { pid, .. } if *pid == std::process::id().to_string()));
        drop(first);
        RuntimeDir::take(dir.path(), &StateNotes::default()).expect("the lock ends with its holder");
    }

    #[test]
    fn a_directory_that_is_missing_is_made_for_every_user_to_enter() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let taken = RuntimeDir::take(&path, &StateNotes::default()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(taken.socket(), path.join("control.sock"));
    }

    #[test]
    fn a_pid_longer_than_the_new_one_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("watchdogd.pid"), "99999999999\n").unwrap();
        let _taken = RuntimeDir::take(dir.path(), &StateNotes::default()).unwrap();
        let text = std::fs::read_to_string(dir.path().join("watchdogd.pid")).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
    }

    #[test]
    fn a_path_that_cannot_be_a_directory_is_named_with_the_next_step() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let message = RuntimeDir::take(&file.join("below"), &StateNotes::default()).unwrap_err().to_string();
        assert!(message.contains("file/below") && message.contains("--runtime-dir"), "{message}");
    }
}
