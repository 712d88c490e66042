//! A file that a person also edits: replaced atomically, while no other program edits it in the same way.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::lock_file::Lock;

const MAX_BYTES: u64 = 16 << 20;
/// Write permission of the owner, the group and all users.
const WRITE_BITS: u32 = 0o222;
/// An edit takes milliseconds; after this time the other program hangs.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Why a file was not edited.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{}: it is not a regular file", .0.display())]
    NotRegular(PathBuf),
    #[error("{}: it is not UTF-8, near byte {at}", path.display())]
    NotText { path: PathBuf, at: usize },
    #[error("{} is read-only (mode {mode:04o}): `chmod u+w` it first", path.display())]
    ReadOnly { path: PathBuf, mode: u32 },
    #[error("another program has edited {} for more than {} s", .0.display(), LOCK_TIMEOUT.as_secs())]
    Locked(PathBuf),
    #[error("{} changed during the edit; nothing was written, try again", .0.display())]
    Changed(PathBuf),
}

/// An opened file. It is locked until this is dropped.
#[derive(Debug)]
pub struct EditedFile {
    /// Where its symbolic links lead.
    target: PathBuf,
    /// `None` if there is no file yet.
    text: Option<String>,
    _lock: EditLock,
}

impl EditedFile {
    /// Locks and reads a file, which may not exist. Its directory must exist.
    ///
    /// # Errors
    /// When it cannot be read or locked, or is no text.
    pub fn open(path: &Path) -> Result<Self, EditError> {
        let target = resolve(path)?;
        let lock = EditLock::take(&target)?;
        let text = read(&target)?;
        Ok(Self { target, text, _lock: lock })
    }

    /// The content, or `None` if there is no file.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Replaces the content. Owner, group and mode stay; a new file has mode `new_mode`. After a crash the file has
    /// either the old or the new content.
    ///
    /// # Errors
    /// When it cannot be written, is read-only, or changed since it was read. The old content is unchanged.
    pub fn replace(&mut self, text: &str, new_mode: u32) -> Result<(), EditError> {
        self.check_writable()?;
        let new = beside(&self.target, "new");
        self.write(&new, text, new_mode).inspect_err(|_| drop(fs::remove_file(&new)))?;
        self.text = Some(text.to_owned());
        Ok(())
    }

    /// The permissions of the directory alone decide whether a file can be replaced. A mode without any write permission
    /// was set to prevent that.
    fn check_writable(&self) -> Result<(), EditError> {
        let mode = fs::metadata(&self.target).map_or(WRITE_BITS, |found| found.mode() & 0o7777);
        if mode & WRITE_BITS == 0 {
            return Err(EditError::ReadOnly { path: self.target.clone(), mode });
        }
        Ok(())
    }

    fn write(&self, new: &Path, text: &str, new_mode: u32) -> Result<(), EditError> {
        let failed = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| EditError::Io { doing, path, source }
        };
        // A killed program may have left it; the lock is held.
        match fs::remove_file(new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("replace", new)(error)),
            _ => {}
        }
        let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(new);
        let mut file = created.map_err(failed("create", new))?;
        file.write_all(text.as_bytes()).map_err(failed("write", new))?;
        let mode = match fs::metadata(&self.target) {
            Ok(old) => {
                let made = file.metadata().map_err(failed("examine", new))?;
                if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
                    fchown(&file, Some(old.uid()), Some(old.gid()))
                        .map_err(failed("keep the owner of", &self.target))?;
                }
                old.mode() & 0o7777
            }
            Err(_) => new_mode,
        };
        file.set_permissions(Permissions::from_mode(mode)).map_err(failed("set the mode of", new))?;
        file.sync_all().map_err(failed("write", new))?;
        if read(&self.target)? != self.text {
            return Err(EditError::Changed(self.target.clone()));
        }
        fs::rename(new, &self.target).map_err(failed("replace", &self.target))?;
        sync_directory(&self.target).map_err(failed("write", &self.target))
    }

    /// Removes the file.
    ///
    /// # Errors
    /// When it cannot be removed, is read-only, or changed since it was read.
    pub fn remove(&mut self) -> Result<(), EditError> {
        self.check_writable()?;
        if read(&self.target)? != self.text {
            return Err(EditError::Changed(self.target.clone()));
        }
        let removed = fs::remove_file(&self.target).and_then(|()| sync_directory(&self.target));
        removed.map_err(|source| EditError::Io { doing: "remove", path: self.target.clone(), source })?;
        self.text = None;
        Ok(())
    }
}

/// Creates the missing directories of a path.
pub fn make_parents(path: &Path, mode: u32) -> Result<(), EditError> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let made = fs::DirBuilder::new().recursive(true).mode(mode).create(parent);
    made.map_err(|source| EditError::Io { doing: "create", path: parent.to_owned(), source })
}

/// Where the symbolic links of a path lead. The file may be missing, its directory may not.
fn resolve(path: &Path) -> Result<PathBuf, EditError> {
    let failed = |source| EditError::Io { doing: "find", path: path.to_owned(), source };
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {
            let absolute = std::path::absolute(path).map_err(failed)?;
            let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
                return Err(failed(error));
            };
            Ok(fs::canonicalize(parent).map_err(failed)?.join(name))
        }
        found => found.map_err(failed),
    }
}

fn read(path: &Path) -> Result<Option<String>, EditError> {
    let failed = |source| EditError::Io { doing: "read", path: path.to_owned(), source };
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if !found.is_file() {
        return Err(EditError::NotRegular(path.to_owned()));
    }
    if found.len() > MAX_BYTES {
        return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than 16 MiB")));
    }
    let text = String::from_utf8(fs::read(path).map_err(failed)?);
    text.map(Some).map_err(|error| EditError::NotText { path: path.to_owned(), at: error.utf8_error().valid_up_to() })
}

fn sync_directory(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

/// `.NAME.SUFFIX` in the same directory.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{suffix}"))
}

/// A lock in a separate file that only its owner can open: on the file itself any reader could hold a lock.
#[derive(Debug)]
struct EditLock {
    path: PathBuf,
    _lock: Lock,
}

impl EditLock {
    fn take(target: &Path) -> Result<Self, EditError> {
        let path = beside(target, "lock");
        let end = Instant::now() + LOCK_TIMEOUT;
        let failed = |source| EditError::Io { doing: "lock", path: target.to_owned(), source };
        loop {
            let flags = OFlags::NOFOLLOW.bits().cast_signed();
            let opened =
                OpenOptions::new().read(true).append(true).create(true).mode(0o600).custom_flags(flags).open(&path);
            match Lock::take(opened.map_err(failed)?) {
                // The previous holder may have removed the file.
                Ok(lock) if is_at(lock.file(), &path).map_err(failed)? => return Ok(Self { path, _lock: lock }),
                Ok(_) => {}
                Err((_, error)) if error.kind() != io::ErrorKind::WouldBlock => return Err(failed(error)),
                Err(_) if Instant::now() > end => return Err(EditError::Locked(target.to_owned())),
                Err(_) => sleep(LOCK_PAUSE),
            }
        }
    }
}

impl Drop for EditLock {
    fn drop(&mut self) {
        // Before it is unlocked, so that no other program holds a lock on it.
        let _ = fs::remove_file(&self.path);
    }
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (own.dev(), own.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "edited_file_tests.rs"]
mod tests;
