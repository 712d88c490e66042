//! What can go wrong while reading the host. That a process is gone is no error: it is `None`.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// A failure to read something of the host.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The kernel refused, or the device failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// `open`, `read`, …
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The file is there, but does not say what its format promises.
    #[error("{}: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What was looked for and not found.
        what: &'static str,
    },
}

impl HostError {
    /// `action` on `path` failed.
    pub(crate) fn io(action: &'static str, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        Self::Io { action, path: path.as_ref().to_owned(), source: source.into() }
    }

    /// `path` lacks `what`.
    pub(crate) fn malformed(path: impl AsRef<Path>, what: &'static str) -> Self {
        Self::Malformed { path: path.as_ref().to_owned(), what }
    }

    /// The kernel refused because of who we are, not because of what is there.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// The process (or what was asked of it) does not exist: ENOENT from a path of /proc, ESRCH from a file in it that
/// was opened while the process lived.
pub(crate) fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::SRCH)
}
