//! Reads a history line by line, in bounded memory; damaged lines are skipped.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use jiff::Timestamp;
use rustix::fs::OFlags;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::codec::{self, MAX_READ};
use super::{FILE, HEADER};

/// Bytes per read.
const BUFFER: usize = 32 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum HistoryReadError {
    #[error("cannot read {path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is not a history that this version can read", path = .0.display())]
    Foreign(PathBuf),
}

#[derive(Debug, PartialEq, Eq)]
pub enum StoredLine<'a> {
    /// The record's JSON.
    Record(&'a str),
    /// The checksum does not match.
    Damaged,
    /// A last line without an end: it is being written, or the daemon was killed while it wrote.
    Truncated,
}

/// The fields of a record by which it is filtered.
#[derive(Debug, Deserialize)]
pub struct RecordHead<'a> {
    #[serde(deserialize_with = "moment")]
    pub at: Timestamp,
    /// The run of the daemon.
    #[serde(borrow)]
    pub run: Cow<'a, str>,
    pub owner_uid: Option<u32>,
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    pub session: Option<u64>,
}

fn moment<'de, D: Deserializer<'de>>(text: D) -> Result<Timestamp, D::Error> {
    Cow::<str>::deserialize(text)?.parse().map_err(D::Error::custom)
}

impl<'a> RecordHead<'a> {
    /// `None` when a required field is missing.
    #[must_use]
    pub fn of(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}

#[derive(Debug)]
pub struct HistoryLines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    /// Start of the next line, in bytes.
    offset: u64,
    /// Set when the reader has given up.
    cancelled: Arc<AtomicBool>,
}

/// Opens the history of a state directory for reading. The daemon may append to it or replace it meanwhile: the reader sees
/// the file as opened, and whole lines that are appended.
///
/// # Errors
/// When it is missing, unreadable, or not a history.
pub fn open(state_dir: &Path) -> Result<HistoryLines<File>, HistoryReadError> {
    let path = state_dir.join(FILE);
    let failed = |source| HistoryReadError::Io { path: path.clone(), source };
    // Not blocking: a FIFO in the place of the file must not block the reader.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(&path).map_err(failed)?;
    HistoryLines::new(file).map_err(failed)?.ok_or(HistoryReadError::Foreign(path))
}

impl<R: Read> HistoryLines<R> {
    /// `None` when the header is missing.
    pub(super) fn new(reader: R) -> io::Result<Option<Self>> {
        let mut lines = Self {
            reader: BufReader::with_capacity(BUFFER, reader),
            line: Vec::new(),
            offset: 0,
            cancelled: Arc::default(),
        };
        let mut header = vec![0; HEADER.len()];
        match lines.reader.read_exact(&mut header) {
            Ok(()) if header == HEADER => lines.offset = HEADER.len() as u64,
            Ok(()) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        Ok(Some(lines))
    }

    /// Makes [`next`](Self::next) fail once the flag is set.
    #[must_use]
    pub fn until(self, cancelled: Arc<AtomicBool>) -> Self {
        Self { cancelled, ..self }
    }

    /// Start of the next line, in bytes.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// `None` at the end.
    ///
    /// # Errors
    /// When the file cannot be read, or reading was [cancelled](Self::until).
    #[expect(clippy::should_implement_trait, reason = "the line is borrowed from the reader")]
    pub fn next(&mut self) -> io::Result<Option<StoredLine<'_>>> {
        if self.cancelled.load(Relaxed) {
            return Err(io::Error::other("cancelled"));
        }
        self.line.clear();
        let limit = MAX_READ as u64;
        let mut taken = (&mut self.reader).take(limit).read_until(b'\n', &mut self.line)? as u64;
        if taken == 0 {
            return Ok(None);
        }
        let mut ended = self.line.pop_if(|last| *last == b'\n').is_some();
        let whole = ended;
        while !ended && taken >= limit {
            // Longer than any record: skip to its end.
            self.line.clear();
            let more = (&mut self.reader).take(limit).read_until(b'\n', &mut self.line)?;
            taken += more as u64;
            ended = self.line.last() == Some(&b'\n');
            if more == 0 {
                break;
            }
        }
        self.line.shrink_to(BUFFER);
        if !ended {
            return Ok(Some(StoredLine::Truncated));
        }
        self.offset += taken;
        let record = if whole { codec::decode(&self.line) } else { None };
        Ok(Some(record.map_or(StoredLine::Damaged, StoredLine::Record)))
    }
}

/// A part of a file, read without moving the file's write position.
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
