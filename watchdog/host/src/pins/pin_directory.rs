//! The locked directory of one daemon.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::bpffs::BASE;
use super::pin_error::PinError;
use watchdog_files::lock_file::Lock;

/// Retries when another process removes the directory between two calls.
const TRIES: usize = 4;
/// Wait for a lock: a starting daemon briefly locks the pins of all others.
const LOCKED_WITHIN: Duration = Duration::from_millis(500);
const LOCK_AGAIN: Duration = Duration::from_millis(10);

/// Creates a directory that no other user can enter. Renames anything else in its place: every user may create
/// directories at the top of this file system.
pub(super) fn make_private(dir: &Path) -> Result<(), PinError> {
    for _ in 0..TRIES {
        match DirBuilder::new().mode(0o700).create(dir) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(PinError::io("make the directory", dir)(error)),
        }
        let found = fs::symlink_metadata(dir).map_err(PinError::io("read the attributes of", dir))?;
        if is_private(&found) {
            return Ok(());
        }
        // Other users cannot predict this name, and take it first.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let aside = dir.with_file_name(format!("{BASE}-set-aside-{now}"));
        tracing::warn!(
            "{} is not a directory that only this user can enter (owner {}, mode {:o}): it is renamed to {}",
            dir.display(),
            found.uid(),
            found.mode(),
            aside.display()
        );
        fs::rename(dir, &aside).map_err(PinError::io("rename", dir))?;
    }
    Err(PinError::io("make the directory", dir)(io::ErrorKind::AlreadyExists.into()))
}

/// Whether this is a directory, and no link to one, that only this user can enter.
pub(super) fn is_private(found: &Metadata) -> bool {
    found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0
}

/// Creates the directory if needed, and locks it.
pub(super) fn take_directory(dir: &Path) -> Result<Lock, PinError> {
    for _ in 0..TRIES {
        make_private(dir)?;
        if let Some(lock) = wait_for_lock(dir)? {
            return Ok(lock);
        }
    }
    Err(PinError::io("lock", dir)(io::ErrorKind::NotFound.into()))
}

/// As [`lock`], with a wait of at most [`LOCKED_WITHIN`].
pub(super) fn wait_for_lock(dir: &Path) -> Result<Option<Lock>, PinError> {
    let began = Instant::now();
    loop {
        match lock(dir) {
            Err(PinError::InUse(_)) if began.elapsed() < LOCKED_WITHIN => std::thread::sleep(LOCK_AGAIN),
            locked => return locked,
        }
    }
}

/// `None` when the directory does not exist.
pub(super) fn lock(dir: &Path) -> Result<Option<Lock>, PinError> {
    let file = match File::open(dir) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(PinError::io("open", dir)(error)),
    };
    let lock = Lock::take(file).map_err(|(_, error)| match error.kind() {
        io::ErrorKind::WouldBlock => PinError::InUse(dir.to_owned()),
        _ => PinError::io("lock", dir)(error),
    })?;
    let locked = lock.file().metadata().map(|metadata| metadata.ino()).map_err(PinError::io("lock", dir))?;
    Ok(fs::metadata(dir).is_ok_and(|there| there.ino() == locked).then_some(lock))
}
