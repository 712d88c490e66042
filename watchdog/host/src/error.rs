//! Errors of reading the host. A process that has exited is not an error: it is `None`.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{}: {what}", path.display())]
    Malformed { path: PathBuf, what: &'static str },
}

impl HostError {
    pub(crate) fn io(action: &'static str, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        Self::Io { action, path: path.as_ref().to_owned(), source: source.into() }
    }

    pub(crate) fn malformed(path: impl AsRef<Path>, what: &'static str) -> Self {
        Self::Malformed { path: path.as_ref().to_owned(), what }
    }

    /// Whether the daemon lacks the permission.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// Whether the process, or its file, does not exist: ENOENT from a path of /proc, ESRCH from a file in it that was
/// opened while the process was alive.
pub(crate) fn is_missing(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::SRCH)
}
