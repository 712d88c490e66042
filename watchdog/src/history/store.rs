//! The file of a history, for the one daemon that writes it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::compact;
use super::read::{Found, Head, Lines};
use super::{FILE, HEADER, NEXT};
use crate::lock_file::Lock;
use crate::trusted_file::{self, OpenError};

/// The file may exceed its bounds by this part before it is copied: each record is so copied a few times at most.
const SLACK: u32 = 8;
/// The type of the record that begins a run.
pub(super) const STARTED: &str = "daemon_started";

/// How long and how much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// No record is older than this and an eighth.
    pub retention: Duration,
    /// The file is no larger than this and an eighth, in bytes.
    pub max_bytes: u64,
}

/// Why a history cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another daemon writes it.
    #[error("another watchdogd keeps its history in {dir}: give this one another --state-dir", dir = .0.display())]
    Taken(PathBuf),
    /// Something about the directory or the file failed.
    #[error("cannot {doing} {path}: {source}", path = path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The file was removed or replaced while it was open.
    #[error("{path} was removed", path = .0.display())]
    Gone(PathBuf),
    /// What should have gone could not be removed, and nothing more is written until it can.
    #[error("{path} is full, and its oldest records cannot be removed", path = .0.display())]
    Full(PathBuf),
}

/// What was wrong with a file, and what was done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    /// The last line had no end: so many bytes were cut off.
    Torn(u64),
    /// So many lines were not as they were written. They are passed over, and go with the next copy.
    Damaged(u64),
    /// The whole file could not be believed or read.
    SetAside {
        /// Why.
        because: String,
        /// Where it is now.
        aside: PathBuf,
    },
}

/// A history that is open for writing. The directory is locked for as long as this lives.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    file: File,
    /// The end of what is known to be good.
    len: u64,
    /// The file may be longer than `len`: a write has failed halfway.
    ragged: bool,
    oldest: Option<Timestamp>,
    _lock: Lock,
}

impl Store {
    /// Opens the history of a state directory, and makes or repairs what is missing or broken. Reads the whole file.
    ///
    /// # Errors
    /// When another daemon has the directory, or it cannot be written.
    pub fn open(dir: &Path) -> Result<(Self, Vec<Repair>), StoreError> {
        let lock = lock(dir)?;
        // Left by a daemon that was killed while it copied. If it stays, the next copy fails and says why.
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
        let mut seen = survey(&file).map_err(|source| failed("read", dir, source))?;
        if seen.is_foreign() {
            repairs.push(set_aside(dir, "it is no history, or none of it can be read".to_owned())?);
            file = open_file(dir).map_err(|error| failed("open", dir, error.into()))?;
            seen = Survey::default();
        }
        if seen.damaged > 0 {
            repairs.push(Repair::Damaged(seen.damaged));
        }
        let mut store =
            Self { dir: dir.to_owned(), file, len: seen.good, ragged: seen.torn > 0, oldest: seen.oldest, _lock: lock };
        if seen.torn > 0 && seen.good > 0 {
            repairs.push(Repair::Torn(seen.torn));
        }
        store.mend()?;
        if store.len == 0 {
            store.append(HEADER)?;
            sync_dir(dir).map_err(|source| failed("make", dir, source))?;
        }
        Ok((store, repairs))
    }

    /// The size of the file, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// The moment of the oldest record.
    #[must_use]
    pub fn oldest(&self) -> Option<Timestamp> {
        self.oldest
    }

    /// Appends whole lines, and waits until they are on the disk. After an error nothing of them is in the file.
    ///
    /// # Errors
    /// When the disk is full, read-only or broken, or somebody has removed the file.
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
                // If this fails too, it is tried again before the next write.
                let _ = self.file.set_len(self.len);
            })?;
        self.ragged = false;
        self.len += lines.len() as u64;
        Ok(())
    }

    /// Takes note of a record that was appended.
    pub fn noted(&mut self, at: Timestamp) {
        self.oldest = self.oldest.or(Some(at));
    }

    /// Whether the file is too large or too old.
    #[must_use]
    pub fn is_overdue(&self, limits: &Limits, now: Timestamp) -> bool {
        let patience = limits.retention + limits.retention / SLACK;
        self.len > limits.max_bytes || self.oldest.is_some_and(|oldest| now.duration_since(oldest) > signed(patience))
    }

    /// Whether the file is so much too large that nothing may be added.
    #[must_use]
    pub fn is_full(&self, limits: &Limits) -> bool {
        self.len > limits.max_bytes + limits.max_bytes / u64::from(SLACK)
    }

    /// The error of a file that [is full](Self::is_full).
    #[must_use]
    pub fn full(&self) -> StoreError {
        StoreError::Full(self.dir.join(FILE))
    }

    /// Removes what is too old, what is too much, and damaged lines: copies the rest. Of what is too much, the oldest
    /// records of the users and sessions that hold the most are removed. A kill or an error leaves the file as it was.
    ///
    /// # Errors
    /// When the copy cannot be written, for want of room above all.
    pub fn retire(&mut self, limits: &Limits, now: Timestamp) -> Result<(), StoreError> {
        let path = self.dir.join(NEXT);
        let (file, len, oldest) = compact::copy(&self.file, self.len, &path, limits, now).map_err(|source| {
            let _ = fs::remove_file(&path);
            StoreError::Io { doing: "copy the history to", path: path.clone(), source }
        })?;
        fs::rename(&path, self.dir.join(FILE)).map_err(|source| failed("replace", &self.dir, source))?;
        (self.file, self.len, self.oldest, self.ragged) = (file, len, oldest, false);
        sync_dir(&self.dir).map_err(|source| failed("replace", &self.dir, source))
    }

    /// Cuts off what a failed write has left.
    fn mend(&mut self) -> Result<(), StoreError> {
        if self.ragged {
            self.file.set_len(self.len).map_err(|source| failed("repair", &self.dir, source))?;
            self.ragged = false;
        }
        Ok(())
    }
}

/// What a file holds.
#[derive(Debug, Default)]
struct Survey {
    /// Bytes up to the end of the last whole line.
    good: u64,
    /// Bytes behind that.
    torn: u64,
    damaged: u64,
    records: u64,
    oldest: Option<Timestamp>,
    foreign: bool,
}

impl Survey {
    /// Something else, or so broken that nothing of it can be read: it is left to a person.
    fn is_foreign(&self) -> bool {
        self.foreign || self.records == 0 && self.damaged > 0
    }
}

fn survey(file: &File) -> io::Result<Survey> {
    let end = file.metadata()?.len();
    let mut seen = Survey { torn: end, ..Survey::default() };
    let Some(mut lines) = Lines::new(Slice { file, at: 0, end })? else {
        // A daemon may have been killed while it wrote the header of a new file.
        let mut beginning = Vec::new();
        Slice { file, at: 0, end: end.min(HEADER.len() as u64) }.read_to_end(&mut beginning)?;
        seen.foreign = end >= HEADER.len() as u64 || !HEADER.starts_with(&beginning);
        return Ok(seen);
    };
    while let Some(found) = lines.next()? {
        match found {
            Found::Record(json) => {
                seen.records += 1;
                if seen.oldest.is_none() {
                    seen.oldest = Head::of(json).filter(|head| head.kind != STARTED).map(|head| head.at);
                }
            }
            Found::Damaged => seen.damaged += 1,
            Found::Torn => break,
        }
    }
    seen.good = lines.offset();
    seen.torn = end.saturating_sub(seen.good);
    Ok(seen)
}

/// A part of a file, read without moving the place at which it is written.
pub(super) struct Slice<'a> {
    pub(super) file: &'a File,
    pub(super) at: u64,
    pub(super) end: u64,
}

impl Read for Slice<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.file.read_at(&mut buffer[..left], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Makes the directory where it is missing, and takes it. The directory itself is locked, since the file in it is replaced
/// now and then.
fn lock(dir: &Path) -> Result<Lock, StoreError> {
    let failed = |doing| move |source| StoreError::Io { doing, path: dir.to_owned(), source };
    trusted_file::make_directory(dir, 0o700).map_err(failed("make the directory"))?;
    let opened = File::open(dir).map_err(failed("open the directory"))?;
    Lock::take(opened).map_err(|(_, error)| match error.kind() {
        io::ErrorKind::WouldBlock => StoreError::Taken(dir.to_owned()),
        _ => failed("lock the directory")(error),
    })
}

/// For the daemon's user alone, since it holds all users' processes.
fn open_file(dir: &Path) -> Result<File, OpenError> {
    trusted_file::open(&dir.join(FILE), OpenOptions::new().read(true).append(true).create(true).mode(0o600))
}

fn set_aside(dir: &Path, because: String) -> Result<Repair, StoreError> {
    let aside = trusted_file::set_aside(&dir.join(FILE)).map_err(|source| failed("set aside", dir, source))?;
    Ok(Repair::SetAside { because, aside })
}

/// Makes sure that a name in the directory outlives a crash of the host.
fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn failed(doing: &'static str, dir: &Path, source: io::Error) -> StoreError {
    StoreError::Io { doing, path: dir.join(FILE), source }
}

pub(super) fn signed(span: Duration) -> SignedDuration {
    SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX)
}
