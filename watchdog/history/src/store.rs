//! The history file, as the one daemon that writes it sees it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;

use super::compact::{self, STARTED, StoreLimits, signed};
use super::read::{HistoryLines, RecordHead, Slice, StoredLine};
use super::{FILE, HEADER, NEXT};
use watchdog_files::lock_file::Lock;
use watchdog_files::trusted_file::{self, OpenError};

/// The file may exceed its limits by 1/SLACK before it is copied, so each record is copied a few times at most.
const SLACK: u32 = 8;
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("another watchdogd uses {dir}: choose another --state-dir", dir = .0.display())]
    Taken(PathBuf),
    #[error("cannot {doing} {path}: {source}", path = path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    /// Removed or replaced while it was open.
    #[error("{path} was removed", path = .0.display())]
    Gone(PathBuf),
    /// Nothing is written until old records can be removed.
    #[error("{path} is full, and its oldest records cannot be removed", path = .0.display())]
    Full(PathBuf),
}

/// A repair of the file at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    /// A last line without an end was cut off; its bytes.
    Truncated(u64),
    /// Lines with a wrong checksum. Readers skip them, and the next copy drops them.
    Damaged(u64),
    /// The file was not trusted, or nothing in it could be read.
    Quarantined {
        because: String,
        /// Its new path.
        aside: PathBuf,
    },
}

/// A history that is open for writing. Holds a lock on the directory.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    file: File,
    /// End of the last whole line.
    len: u64,
    /// A write has failed, so the file may be longer than `len`.
    ragged: bool,
    oldest: Option<Timestamp>,
    _lock: StateDirLock,
}

/// The right to write to a state directory. One daemon has it at a time.
#[derive(Clone, Debug)]
pub struct StateDirLock(Arc<Lock>);

impl StateDirLock {
    /// Creates the directory if needed, and locks it: not a file, which may be replaced.
    ///
    /// # Errors
    /// When another daemon has the lock, or the directory cannot be created or opened.
    pub fn take(dir: &Path) -> Result<Self, StoreError> {
        let failed = |doing| move |source| StoreError::Io { doing, path: dir.to_owned(), source };
        trusted_file::make_directory(dir, 0o700).map_err(failed("make the directory"))?;
        let opened = File::open(dir).map_err(failed("open the directory"))?;
        let lock = Lock::take(opened).map_err(|(_, error)| match error.kind() {
            io::ErrorKind::WouldBlock => StoreError::Taken(dir.to_owned()),
            _ => failed("lock the directory")(error),
        });
        Ok(Self(Arc::new(lock?)))
    }

    /// Whether this is still the locked directory: it may have been removed and created again.
    #[must_use]
    pub fn is_of(&self, dir: &Path) -> bool {
        let identity = |found: io::Result<fs::Metadata>| found.map(|found| (found.dev(), found.ino())).ok();
        let locked = identity(self.0.file().metadata());
        locked.is_some() && locked == identity(fs::metadata(dir))
    }
}

impl Store {
    /// Opens, creates or repairs the history of a state directory. Reads the whole file.
    ///
    /// # Errors
    /// When another daemon uses the directory, or it cannot be written.
    pub fn open(dir: &Path) -> Result<(Self, Vec<Repair>), StoreError> {
        Self::open_locked(dir, StateDirLock::take(dir)?)
    }

    /// The same, with the lock of this directory.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn open_locked(dir: &Path, lock: StateDirLock) -> Result<(Self, Vec<Repair>), StoreError> {
        // Left by a daemon that was killed while it copied. If this fails, the next copy fails too and says why.
        let _ = fs::remove_file(dir.join(NEXT));
        let mut repairs = Vec::new();
        let mut file = match open_file(dir) {
            Ok(file) => file,
            Err(OpenError::Untrusted(why)) => {
                repairs.push(set_aside(dir, why.to_string())?);
                open_file(dir).map_err(|error| failed("open", dir, error.into()))?
            }
            Err(OpenError::Io(source)) => return Err(failed("open", dir, source)),
        };
        let mut seen = scan(&file).map_err(|source| failed("read", dir, source))?;
        if seen.is_foreign() {
            repairs.push(set_aside(dir, "it is not a history, or nothing in it can be read".to_owned())?);
            file = open_file(dir).map_err(|error| failed("open", dir, error.into()))?;
            seen = StoreScan::default();
        }
        if seen.damaged > 0 {
            repairs.push(Repair::Damaged(seen.damaged));
        }
        let mut store = Self {
            dir: dir.to_owned(),
            file,
            len: seen.good,
            ragged: seen.truncated > 0,
            oldest: seen.oldest,
            _lock: lock,
        };
        if seen.truncated > 0 && seen.good > 0 {
            repairs.push(Repair::Truncated(seen.truncated));
        }
        store.mend()?;
        if store.len == 0 {
            store.append(HEADER)?;
            sync_dir(dir).map_err(|source| failed("make", dir, source))?;
        }
        Ok((store, repairs))
    }

    /// Size of the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.len
    }

    #[cfg(test)]
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        self.oldest
    }

    /// Appends whole lines, and waits until they are on disk. After an error the file contains none of them.
    ///
    /// # Errors
    /// When the disk is full, read-only or broken, or the file was removed.
    pub fn append(&mut self, lines: &[u8]) -> Result<(), StoreError> {
        let path = || self.dir.join(FILE);
        if self.file.metadata().map_or(0, |file| file.nlink()) == 0 {
            return Err(StoreError::Gone(path()));
        }
        self.mend()?;
        self.ragged = true;
        self.file
            .write_all(lines)
            .and_then(|()| self.file.sync_data())
            .map_err(|source| failed("write", &self.dir, source))
            .inspect_err(|_| {
                // If this fails too, `mend` retries before the next write.
                let _ = self.file.set_len(self.len);
            })?;
        self.ragged = false;
        self.len += lines.len() as u64;
        Ok(())
    }

    /// Reports the time of a record that was appended.
    pub fn noted(&mut self, at: Timestamp) {
        self.oldest = self.oldest.or(Some(at));
    }

    /// Whether old records are due for removal.
    #[must_use]
    pub fn is_overdue(&self, limits: &StoreLimits, now: Timestamp) -> bool {
        let max_age = limits.retention + limits.retention / SLACK;
        self.len > limits.max_bytes || self.oldest.is_some_and(|oldest| now.duration_since(oldest) > signed(max_age))
    }

    /// Whether the file is so large that nothing may be appended.
    #[must_use]
    pub fn is_full(&self, limits: &StoreLimits) -> bool {
        self.len > limits.max_bytes + limits.max_bytes / u64::from(SLACK)
    }

    /// The error of a file that [is full](Self::is_full).
    #[must_use]
    pub fn full(&self) -> StoreError {
        StoreError::Full(self.dir.join(FILE))
    }

    /// Replaces the file with a copy without expired records, damaged lines and, if it is too large, the oldest records of
    /// the users and sessions that hold the most. A kill or an error leaves the file unchanged.
    ///
    /// # Errors
    /// When the copy cannot be written, mostly because the disk is full.
    pub fn retire(&mut self, limits: &StoreLimits, now: Timestamp) -> Result<(), StoreError> {
        let path = self.dir.join(NEXT);
        let (file, len, oldest) = compact::copy(&self.file, self.len, &path, limits, now).map_err(|source| {
            let _ = fs::remove_file(&path);
            StoreError::Io { doing: "copy the history to", path: path.clone(), source }
        })?;
        fs::rename(&path, self.dir.join(FILE)).map_err(|source| failed("replace", &self.dir, source))?;
        (self.file, self.len, self.oldest, self.ragged) = (file, len, oldest, false);
        sync_dir(&self.dir).map_err(|source| failed("replace", &self.dir, source))
    }

    /// Cuts off the remains of a failed write.
    fn mend(&mut self) -> Result<(), StoreError> {
        if self.ragged {
            self.file.set_len(self.len).map_err(|source| failed("repair", &self.dir, source))?;
            self.ragged = false;
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct StoreScan {
    /// Bytes up to the end of the last whole line.
    good: u64,
    /// Bytes after that.
    truncated: u64,
    damaged: u64,
    records: u64,
    oldest: Option<Timestamp>,
    foreign: bool,
}

impl StoreScan {
    /// Not a history, or nothing in it can be read.
    fn is_foreign(&self) -> bool {
        self.foreign || self.records == 0 && self.damaged > 0
    }
}

fn scan(file: &File) -> io::Result<StoreScan> {
    let end = file.metadata()?.len();
    let mut seen = StoreScan { truncated: end, ..StoreScan::default() };
    let Some(mut lines) = HistoryLines::new(Slice { file, at: 0, end })? else {
        // The daemon may have been killed while it wrote the header.
        let mut beginning = Vec::new();
        Slice { file, at: 0, end: end.min(HEADER.len() as u64) }.read_to_end(&mut beginning)?;
        seen.foreign = end >= HEADER.len() as u64 || !HEADER.starts_with(&beginning);
        return Ok(seen);
    };
    while let Some(found) = lines.next()? {
        match found {
            StoredLine::Record(json) => {
                seen.records += 1;
                if seen.oldest.is_none() {
                    seen.oldest = RecordHead::of(json).filter(|head| head.kind != STARTED).map(|head| head.at);
                }
            }
            StoredLine::Damaged => seen.damaged += 1,
            StoredLine::Truncated => break,
        }
    }
    seen.good = lines.offset();
    seen.truncated = end.saturating_sub(seen.good);
    Ok(seen)
}

/// Readable for the daemon's user alone, since it has all users' processes.
fn open_file(dir: &Path) -> Result<File, OpenError> {
    trusted_file::open(&dir.join(FILE), OpenOptions::new().read(true).append(true).create(true).mode(0o600))
}

fn set_aside(dir: &Path, because: String) -> Result<Repair, StoreError> {
    let aside = trusted_file::set_aside(&dir.join(FILE)).map_err(|source| failed("set aside", dir, source))?;
    Ok(Repair::Quarantined { because, aside })
}

/// Makes a file name durable.
fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn failed(doing: &'static str, dir: &Path, source: io::Error) -> StoreError {
    StoreError::Io { doing, path: dir.join(FILE), source }
}
