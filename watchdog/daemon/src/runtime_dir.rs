//! The runtime directory, locked by a file that holds the daemon's pid: one daemon for each directory.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::set_aside::StateNotes;
use watchdog_files::lock_file::Lock;
use watchdog_files::trusted_file::{self, OpenError, UnsafePath};

#[derive(Debug, thiserror::Error)]
pub(super) enum RuntimeDirError {
    #[error("another watchdogd already runs on {dir} (pid {pid}): stop it first, or choose another --runtime-dir")]
    Taken {
        dir: String,
        /// The content of the lock file: the other daemon's pid.
        pid: String,
    },
    /// Another user could replace what the daemon writes there.
    #[error("the runtime directory {0}")]
    Unsafe(#[from] UnsafePath),
    /// The cause is part of the message, and not a source, which would be printed a second time.
    #[error("cannot {doing} {path}: {cause}; {hint}")]
    Io { doing: &'static str, path: String, cause: io::Error, hint: &'static str },
}

/// Locked for as long as this lives. The directory is locked too: its file may be replaced.
#[derive(Debug)]
pub(super) struct RuntimeDir {
    path: PathBuf,
    _locks: (Option<Lock>, Lock),
}

impl RuntimeDir {
    /// Creates the directory where it is missing, and locks it.
    pub(super) fn take(dir: &Path, notes: &StateNotes) -> Result<Self, RuntimeDirError> {
        trusted_file::check_directory(dir)?;
        let failed = |doing, path: &Path| {
            let path = path.display().to_string();
            move |cause: io::Error| {
                let hint = match cause.kind() {
                    io::ErrorKind::PermissionDenied => "run watchdogd as root, or choose another --runtime-dir",
                    _ => "choose another --runtime-dir",
                };
                RuntimeDirError::Io { doing, path, cause, hint }
            }
        };
        // Every user must reach the socket.
        trusted_file::make_directory(dir, 0o755).map_err(failed("make the directory", dir))?;
        let file = dir.join("watchdogd.pid");
        let take = |opened: File| {
            Lock::take(opened).map_err(|(_, error)| match error.kind() {
                io::ErrorKind::WouldBlock => {
                    RuntimeDirError::Taken { dir: dir.display().to_string(), pid: pid_in(&file) }
                }
                _ => failed("lock", dir)(error),
            })
        };
        let of_directory = match take(File::open(dir).map_err(failed("open", dir))?) {
            Err(taken @ RuntimeDirError::Taken { .. }) => return Err(taken),
            // A file system that cannot lock directories, such as NFS, leaves the file.
            locked => locked.ok(),
        };
        let open = || {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o644);
            trusted_file::open(&file, &mut options)
        };
        let opened = match open() {
            Err(OpenError::Untrusted(why)) => {
                notes.rename(&file, why);
                open()
            }
            opened => opened,
        };
        let opened = opened.map_err(|error| failed("open", &file)(error.into()))?;
        let lock = take(opened)?;
        let mut ours = lock.file();
        let written = ours.set_len(0).and_then(|()| ours.rewind());
        if let Err(error) = written.and_then(|()| writeln!(ours, "{}", std::process::id())) {
            // The file system is full: the lock holds without the pid.
            tracing::warn!("cannot write the pid to {}: {error}", file.display());
        }
        Ok(Self { path: dir.to_owned(), _locks: (of_directory, lock) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path.join("control.sock")
    }
}

/// The pid of another daemon, as a hint for the user.
fn pid_in(file: &Path) -> String {
    let content = trusted_file::read(file, 32).ok().flatten().unwrap_or_default();
    let pid = String::from_utf8_lossy(&content).trim().to_owned();
    if pid.is_empty() { "unknown".to_owned() } else { pid }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn second_daemon_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let first = RuntimeDir::take(dir.path(), &StateNotes::default()).unwrap();
        let refusal = RuntimeDir::take(dir.path(), &StateNotes::default()).unwrap_err();
        assert!(matches!(&refusal, RuntimeDirError::Taken { pid, .. } if *pid == std::process::id().to_string()));
        drop(first);
        RuntimeDir::take(dir.path(), &StateNotes::default()).expect("the lock ends with its holder");
    }

    #[test]
    fn untrusted_pid_file_admits_no_second() {
        let dir = tempfile::tempdir().unwrap();
        let _first = RuntimeDir::take(dir.path(), &StateNotes::default()).unwrap();
        let file = dir.path().join("watchdogd.pid");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
        let spoil: [&dyn Fn(); 2] = [&|| {}, &|| std::fs::remove_file(&file).unwrap()];
        for spoil in spoil {
            spoil();
            let refusal = RuntimeDir::take(dir.path(), &StateNotes::default()).unwrap_err();
            assert!(matches!(&refusal, RuntimeDirError::Taken { pid, .. } if pid == "unknown"), "{refusal}");
        }
    }

    #[test]
    fn missing_directory_is_created() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let taken = RuntimeDir::take(&path, &StateNotes::default()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(taken.socket(), path.join("control.sock"));
    }

    #[test]
    fn longer_pid_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("watchdogd.pid"), "99999999999\n").unwrap();
        let _taken = RuntimeDir::take(dir.path(), &StateNotes::default()).unwrap();
        let text = std::fs::read_to_string(dir.path().join("watchdogd.pid")).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
    }

    #[test]
    fn unusable_path_error_names_option() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let message = RuntimeDir::take(&file.join("below"), &StateNotes::default()).unwrap_err().to_string();
        assert!(message.contains("file/below") && message.contains("--runtime-dir"), "{message}");
    }
}
