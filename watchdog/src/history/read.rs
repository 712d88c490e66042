//! Reading a history from its beginning, line by line, in bounded memory, and past whatever is damaged.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use jiff::Timestamp;
use rustix::fs::OFlags;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::line::{self, LONGEST_READ};
use super::{FILE, HEADER};

/// What is read at a time.
const BUFFER: usize = 32 * 1024;

/// Why a history cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened or read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is something else.
    #[error("{path} is no history that this version can read", path = .0.display())]
    Foreign(PathBuf),
}

/// What stands at a place of the file.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// A record's JSON.
    Record(&'a str),
    /// A line that is not as it was written.
    Damaged,
    /// The beginning of a line that has no end: it is being written, or never was.
    Torn,
}

/// The members of a record by which it is chosen.
#[derive(Debug, Deserialize)]
pub struct Head<'a> {
    /// When.
    #[serde(deserialize_with = "moment")]
    pub at: Timestamp,
    /// In which run of the daemon.
    #[serde(borrow)]
    pub run: Cow<'a, str>,
    /// Whose.
    pub owner_uid: Option<u32>,
    /// What.
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    /// Of which session.
    pub session: Option<u64>,
}

fn moment<'de, D: Deserializer<'de>>(text: D) -> Result<Timestamp, D::Error> {
    Cow::<str>::deserialize(text)?.parse().map_err(D::Error::custom)
}

impl<'a> Head<'a> {
    /// The head of a record; `None` for what no version ever wrote.
    #[must_use]
    pub fn of(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}

/// The lines of a history.
#[derive(Debug)]
pub struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    /// Where the next line begins.
    offset: u64,
    /// Set when what is read is no longer waited for.
    cancelled: Arc<AtomicBool>,
}

/// The history of a state directory, for reading. The file may be appended to or replaced meanwhile: what is read is what
/// was there at the beginning, and whole lines of what came later.
///
/// # Errors
/// When there is none, it may not be read, or it is something else.
pub fn open(state_dir: &Path) -> Result<Lines<File>, ReadError> {
    let path = state_dir.join(FILE);
    let failed = |source| ReadError::Io { path: path.clone(), source };
    // Not blocking: whoever puts a fifo in the file's place must not hold us up.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(&path).map_err(failed)?;
    Lines::new(file).map_err(failed)?.ok_or(ReadError::Foreign(path))
}

impl<R: Read> Lines<R> {
    /// The lines behind the header; `None` when there is no such header.
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

    /// The same lines; [`next`](Self::next) fails once the flag is set.
    #[must_use]
    pub fn until(self, cancelled: Arc<AtomicBool>) -> Self {
        Self { cancelled, ..self }
    }

    /// Where the next line begins, in bytes from the beginning of the file.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next line; `None` at the end.
    ///
    /// # Errors
    /// When the file cannot be read, or reading was [cancelled](Self::until).
    #[expect(clippy::should_implement_trait, reason = "it lends what it found")]
    pub fn next(&mut self) -> io::Result<Option<Found<'_>>> {
        if self.cancelled.load(Relaxed) {
            return Err(io::Error::other("it is no longer waited for"));
        }
        self.line.clear();
        let limit = LONGEST_READ as u64;
        let mut taken = (&mut self.reader).take(limit).read_until(b'\n', &mut self.line)? as u64;
        if taken == 0 {
            return Ok(None);
        }
        let mut ended = self.line.pop_if(|last| *last == b'\n').is_some();
        let whole = ended;
        while !ended && taken >= limit {
            // Too long to be one of ours: only its end is looked for.
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
            return Ok(Some(Found::Torn));
        }
        self.offset += taken;
        let record = if whole { line::decode(&self.line) } else { None };
        Ok(Some(record.map_or(Found::Damaged, Found::Record)))
    }
}
