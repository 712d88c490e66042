//! Exclusive locks on files and directories (flock).

use std::fs::File;
use std::io;

/// An exclusive lock. The kernel releases it when this process exits, in whatever way.
///
/// Dropping it unlocks the file explicitly: closing it is not enough, because a child between fork and exec holds a copy
/// of the descriptor.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Locks without waiting. Returns the file with the error, which is `WouldBlock` if another process holds the lock.
    pub fn take(file: File) -> Result<Self, (File, io::Error)> {
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(error) => Err((file, error.into())),
        }
    }

    pub fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // If this fails, the lock ends with the last copy of the descriptor.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_unlocks_despite_copied_descriptor() {
        let dir = tempfile::tempdir().unwrap();
        let open = || File::open(dir.path()).unwrap();
        let lock = Lock::take(open()).unwrap();
        let of_a_child = lock.file().try_clone().unwrap();
        let (_, error) = Lock::take(open()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        Lock::take(open()).expect("dropping it unlocks the directory");
        drop(of_a_child);
    }
}
