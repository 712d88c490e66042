//! A lock on a file or a directory, for one holder on this host.

use std::fs::File;
use std::io;

use rustix::fs::{FlockOperation, flock};

/// A lock (flock) that is held for as long as this lives; the kernel lets go of it whatever way we end.
///
/// Closing the descriptor is not enough to let go of it: a child that has just been forked, and has not executed anything
/// yet, holds it too.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Lock {
    /// Locks the file.
    ///
    /// # Errors
    /// When it cannot be locked: `WouldBlock` when somebody else has it. The file is given back, to be read.
    pub(crate) fn take(file: File) -> Result<Self, (File, io::Error)> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self(file)),
            Err(errno) => Err((file, errno.into())),
        }
    }

    /// What is locked.
    pub(crate) fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Where this fails, the lock ends with the last holder of the descriptor.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_with_its_holder_whoever_else_has_the_descriptor() {
        let dir = tempfile::tempdir().unwrap();
        let open = || File::open(dir.path()).unwrap();
        let lock = Lock::take(open()).unwrap();
        let of_a_child = lock.file().try_clone().unwrap();
        let (_, error) = Lock::take(open()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        Lock::take(open()).expect("it was let go of by name");
        drop(of_a_child);
    }
}
