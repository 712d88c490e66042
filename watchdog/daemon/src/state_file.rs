//! State files in the runtime directory, for the next run of the daemon: `gate.jsonl` and `actions.jsonl`. They are on a
//! tmpfs: writing never blocks, and they vanish with the boot, as does everything that they describe.
//!
//! The first line is a header with the version and the boot; each other line is a record. Every line is JSON after its
//! CRC-32, as in the history. An empty line separates records, so that a damaged byte costs one record at most, even if it
//! was a line feed. The first write replaces the whole file, and so does a write to a long file; others append.
//!
//! A file cannot be written before its records are restored: [`StoredFile`] only reads, and [`StoredFile::restore`] hands
//! out the records before it returns the [`StateFile`] that writes.

use std::fs::File;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::log_throttle::ThrottledWarning;
use super::set_aside::StateNotes;
use watchdog_engine::actions::ActionLogRecord;
use watchdog_engine::gate::GateRecord;
use watchdog_files::trusted_file;
use watchdog_history::codec;

/// Incremented when an older daemon can no longer read the records.
const VERSION: u32 = 2;
/// A version without checksums: a line is JSON alone.
const WITHOUT_CHECKSUMS: u32 = 1;
/// A shorter file is not replaced because of its length.
const REWRITE_BYTES: u64 = 1 << 20;
/// A longer file was not written by this daemon.
const MAX_BYTES: u64 = 256 << 20;
/// The time between two attempts while the file cannot be written.
const RETRY: Duration = Duration::from_secs(1);

pub(super) trait StateRecord: Serialize + DeserializeOwned {
    const FILE: &'static str;
    /// RequestedAction the records describe, for messages.
    const CONTENT: &'static str;
}

impl StateRecord for GateRecord {
    const FILE: &'static str = "gate.jsonl";
    const CONTENT: &'static str = "leases and queued launches";
}

impl StateRecord for ActionLogRecord {
    const FILE: &'static str = "actions.jsonl";
    const CONTENT: &'static str = "actions";
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StateHeader {
    version: u32,
    boot_id: String,
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot {doing} {path}: {source}")]
pub(super) struct StateFileError {
    doing: &'static str,
    path: String,
    source: Arc<io::Error>,
}

/// A file of an earlier run. Nothing is written to it yet.
#[derive(Debug)]
pub(super) struct StoredFile<R> {
    path: PathBuf,
    header: StateHeader,
    records: Vec<R>,
    /// A copy is kept aside; the file should be replaced soon.
    damaged: bool,
}

/// A file that can be written.
#[derive(Debug)]
pub(super) struct StateFile<R> {
    path: PathBuf,
    header: StateHeader,
    /// The open file, or why there is none.
    file: Result<File, StateFileError>,
    bytes: u64,
    /// Length beyond which it is replaced, in bytes.
    limit: u64,
    retry_at: Instant,
    warning: ThrottledWarning,
    records: PhantomData<R>,
}

impl<R: StateRecord> StoredFile<R> {
    /// Opens the file of this directory, and reads its records of this boot. A damaged file is set aside.
    pub(super) fn open(dir: &Path, boot_id: &str, notes: &StateNotes) -> Self {
        let path = dir.join(R::FILE);
        let header = StateHeader { version: VERSION, boot_id: boot_id.to_owned() };
        let (records, damaged) = match trusted_file::read(&path, MAX_BYTES) {
            Ok(None) => (Vec::new(), false),
            Ok(Some(content)) => match parse(&content, boot_id) {
                Ok(ParsedState { records, damaged: 0 }) => (records, false),
                Ok(ParsedState { records, damaged }) => {
                    let all = records.len() as u64 + damaged;
                    notes.copy(&path, format!("{damaged} of {all} records are damaged; using the others"));
                    (records, true)
                }
                Err(why) => {
                    notes.copy(&path, why);
                    (Vec::new(), true)
                }
            },
            Err(error) => {
                notes.rename(&path, error);
                (Vec::new(), false)
            }
        };
        Self { path, header, records, damaged }
    }

    /// In the order in which they were written.
    pub(super) fn records(&self) -> &[R] {
        &self.records
    }

    pub(super) fn is_damaged(&self) -> bool {
        self.damaged
    }

    /// Restores the records. From then on the file can be written, and the first write contains what was restored.
    pub(super) fn restore(self, take: impl FnOnce(Vec<R>)) -> StateFile<R> {
        let Self { path, header, records, damaged: _ } = self;
        take(records);
        let file = Err(StateFileError::new("write", &path, io::Error::other("it is not written yet")));
        let (retry_at, warning) = (Instant::now(), ThrottledWarning::default());
        StateFile { path, header, file, bytes: 0, limit: 0, retry_at, warning, records: PhantomData }
    }
}

impl<R: StateRecord> StateFile<R> {
    /// Whether it must be replaced before a record is appended. One system call, 0.3 µs.
    pub(super) fn is_due(&self) -> bool {
        match &self.file {
            Ok(file) => self.bytes > self.limit || is_removed(file),
            Err(_) => Instant::now() >= self.retry_at,
        }
    }

    /// Whether the next daemon finds everything in it that was appended.
    pub(super) fn is_whole(&self) -> bool {
        self.file.as_ref().is_ok_and(|file| !is_removed(file))
    }

    /// Appends a record. A failure is logged, and the whole file is due for a rewrite.
    ///
    /// # Errors
    ///
    /// When it cannot be written, now or since an earlier failure.
    pub(super) fn append(&mut self, record: &R) -> Result<(), StateFileError> {
        let file = self.file.as_mut().map_err(|error| error.clone())?;
        let mut line = Vec::new();
        let written = push(&mut line, record).and_then(|()| file.write_all(&line));
        written.map_err(|source| self.fail(source))?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Replaces the file with these records. A failure is logged.
    pub(super) fn rewrite(&mut self, records: &[R]) {
        match self.try_rewrite(records) {
            Ok((file, bytes)) => {
                (self.file, self.bytes, self.limit) = (Ok(file), bytes, REWRITE_BYTES.max(bytes.saturating_mul(2)));
            }
            Err(source) => drop(self.fail(source)),
        }
    }

    /// Makes every later write fail.
    #[cfg(test)]
    pub(super) fn break_writes(&mut self) {
        self.file = Ok(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    }

    fn try_rewrite(&self, records: &[R]) -> io::Result<(File, u64)> {
        let mut content = Vec::new();
        push(&mut content, &self.header)?;
        records.iter().try_for_each(|record| push(&mut content, record))?;
        // No sync: a tmpfs ends with the host.
        let file = trusted_file::replace(&self.path, &content, false)?;
        Ok((file, content.len() as u64))
    }

    fn fail(&mut self, source: io::Error) -> StateFileError {
        let error = StateFileError::new("write", &self.path, source);
        self.warning.warn(format_args!("a restarted daemon would not know all {}: {error}", R::CONTENT));
        self.file = Err(error.clone());
        self.retry_at = Instant::now() + RETRY;
        error
    }
}

impl StateFileError {
    fn new(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self { doing, path: path.display().to_string(), source: Arc::new(source) }
    }
}

/// Whether the next daemon would not find it: it was removed, or another file has its name.
fn is_removed(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.nlink() == 0)
}

fn push(content: &mut Vec<u8>, value: &impl Serialize) -> io::Result<()> {
    content.extend(codec::encode_json(&serde_json::to_string(value)?));
    content.push(b'\n');
    Ok(())
}

struct ParsedState<R> {
    records: Vec<R>,
    damaged: u64,
}

/// Parses a file; one of another boot has no records.
///
/// # Errors
///
/// When its header is damaged, or of another version.
fn parse<R: StateRecord>(content: &[u8], boot_id: &str) -> Result<ParsedState<R>, String> {
    let mut lines = content.split_inclusive(|byte| *byte == b'\n').filter(|line| *line != b"\n");
    let first = lines.next().unwrap_or_default().trim_ascii_end();
    let sealed = codec::decode(first).map(str::as_bytes);
    let header: StateHeader =
        serde_json::from_slice(sealed.unwrap_or(first)).map_err(|_| "its header is damaged".to_owned())?;
    match (header.version, sealed) {
        (VERSION, Some(_)) | (WITHOUT_CHECKSUMS, None) => {}
        (version, _) => return Err(format!("it has format {version}, but this daemon writes {VERSION}")),
    }
    let mut parsed = ParsedState { records: Vec::new(), damaged: 0 };
    if header.boot_id != boot_id {
        return Ok(parsed);
    }
    for line in lines {
        let text = line.trim_ascii_end();
        let json = if sealed.is_some() { codec::decode(text).map(str::as_bytes) } else { Some(text) };
        match json.and_then(|json| serde_json::from_slice(json).ok()) {
            Some(record) => parsed.records.push(record),
            // The daemon was killed while it appended this, and did nothing that depends on it.
            None if line.last() != Some(&b'\n') => {}
            None => parsed.damaged += 1,
        }
    }
    Ok(parsed)
}

#[cfg(test)]
#[path = "state_file_tests.rs"]
mod tests;
