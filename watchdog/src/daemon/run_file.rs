//! Files in the runtime directory with what the next run of the daemon needs: `gate.jsonl` and `actions.jsonl`. They are on a
//! tmpfs, so writing them blocks nothing, and they end with the boot, as everything that they describe does.
//!
//! The first line is a header with the version and the boot; each other line is a record. Every line is JSON behind its CRC-32, as
//! in the history. An empty line stands between two records, so that a damaged byte costs one record at most, also when it
//! was a line feed. The first write replaces the whole file, and so does one when it has grown long; others append.
//!
//! A file cannot be written before its records are restored: [`StoredFile`] only reads, and [`StoredFile::restore`] hands the records
//! over before it gives the [`RunFile`] that writes.

use std::fs::File;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::grumble::Grumble;
use super::set_aside::StateNotes;
use crate::engine::act::ActionRecord;
use crate::engine::gate::GateRecord;
use crate::history::line;
use crate::trusted_file;

/// Counted up when an older daemon could not read the records any more.
const VERSION: u32 = 2;
/// This version has no checksums: a line is JSON alone.
const WITHOUT_CHECKSUMS: u32 = 1;
/// A shorter file is not replaced only because it has grown.
const LONG: u64 = 1 << 20;
/// A longer file was not written by this daemon.
const LONGEST: u64 = 256 << 20;
/// The time between two tries while it cannot be written.
const RETRY: Duration = Duration::from_secs(1);

/// What a file is made of.
pub(super) trait Record: Serialize + DeserializeOwned {
    /// The file's name.
    const FILE: &'static str;
    /// What the records describe, for people.
    const OF: &'static str;
}

impl Record for GateRecord {
    const FILE: &'static str = "gate.jsonl";
    const OF: &'static str = "leases and places in the queue";
}

impl Record for ActionRecord {
    const FILE: &'static str = "actions.jsonl";
    const OF: &'static str = "actions";
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    version: u32,
    boot_id: String,
}

/// What cannot be done with a file.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot {doing} {path}: {source}")]
pub(super) struct FileError {
    doing: &'static str,
    path: String,
    source: Arc<io::Error>,
}

/// A file as an earlier run left it. Nothing is written to it yet.
#[derive(Debug)]
pub(super) struct StoredFile<R> {
    path: PathBuf,
    header: Header,
    records: Vec<R>,
    /// It is set aside, and should be replaced soon.
    damaged: bool,
}

/// A file, open for more.
#[derive(Debug)]
pub(super) struct RunFile<R> {
    path: PathBuf,
    header: Header,
    /// The open file, or why there is none.
    file: Result<File, FileError>,
    bytes: u64,
    /// It is replaced when it is longer.
    limit: u64,
    retry_at: Instant,
    failed: Grumble,
    records: PhantomData<R>,
}

impl<R: Record> StoredFile<R> {
    /// The file of this directory, and the records that it has of this boot. A file that cannot be believed is set aside.
    pub(super) fn open(dir: &Path, boot_id: &str, notes: &StateNotes) -> Self {
        let path = dir.join(R::FILE);
        let header = Header { version: VERSION, boot_id: boot_id.to_owned() };
        let (records, damaged) = match trusted_file::read(&path, LONGEST) {
            Ok(None) => (Vec::new(), false),
            Ok(Some(content)) => match parse(&content, boot_id) {
                Ok(Parsed { records, damaged: 0 }) => (records, false),
                Ok(Parsed { records, damaged }) => {
                    let all = records.len() as u64 + damaged;
                    notes.copied(&path, format!("{damaged} of {all} records are damaged; the others are used"));
                    (records, true)
                }
                Err(why) => {
                    notes.copied(&path, why);
                    (Vec::new(), true)
                }
            },
            Err(error) => {
                notes.moved(&path, error);
                (Vec::new(), false)
            }
        };
        Self { path, header, records, damaged }
    }

    /// What an earlier run wrote, in that order.
    pub(super) fn records(&self) -> &[R] {
        &self.records
    }

    /// Whether a part of the file could not be read.
    pub(super) fn is_damaged(&self) -> bool {
        self.damaged
    }

    /// Restores the records; from then on the file can be written, and holds whatever is restored from the first write on.
    pub(super) fn restore(self, take: impl FnOnce(Vec<R>)) -> RunFile<R> {
        let Self { path, header, records, damaged: _ } = self;
        take(records);
        let file = Err(FileError::new("write", &path, io::Error::other("it is not written yet")));
        let (retry_at, failed) = (Instant::now(), Grumble::default());
        RunFile { path, header, file, bytes: 0, limit: 0, retry_at, failed, records: PhantomData }
    }
}

impl<R: Record> RunFile<R> {
    /// Whether it must be replaced before anything is appended.
    pub(super) fn is_due(&self) -> bool {
        match self.file {
            Ok(_) => self.bytes > self.limit,
            Err(_) => Instant::now() >= self.retry_at,
        }
    }

    /// Whether all that was added is in it, and more can be.
    pub(super) fn is_whole(&self) -> bool {
        self.file.is_ok()
    }

    /// Adds a record. When that fails it is logged, and the whole file is due.
    ///
    /// # Errors
    /// When it cannot be written, now or since an earlier time.
    pub(super) fn append(&mut self, record: &R) -> Result<(), FileError> {
        let file = self.file.as_mut().map_err(|error| error.clone())?;
        let mut line = Vec::new();
        let written = push(&mut line, record).and_then(|()| file.write_all(&line));
        written.map_err(|source| self.give_up(source))?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Replaces the file with these records. When that fails it is logged.
    pub(super) fn rewrite(&mut self, records: &[R]) {
        match self.try_rewrite(records) {
            Ok((file, bytes)) => {
                (self.file, self.bytes, self.limit) = (Ok(file), bytes, LONG.max(bytes.saturating_mul(2)));
            }
            Err(source) => drop(self.give_up(source)),
        }
    }

    /// Nothing more can be written into what is open now.
    #[cfg(test)]
    pub(super) fn fill_up(&mut self) {
        self.file = Ok(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    }

    fn try_rewrite(&self, records: &[R]) -> io::Result<(File, u64)> {
        let mut content = Vec::new();
        push(&mut content, &self.header)?;
        records.iter().try_for_each(|record| push(&mut content, record))?;
        // What is on a tmpfs ends with the host: there is nothing to flush.
        let file = trusted_file::replace(&self.path, &content, false)?;
        Ok((file, content.len() as u64))
    }

    fn give_up(&mut self, source: io::Error) -> FileError {
        let error = FileError::new("write", &self.path, source);
        self.failed.say(format_args!("a daemon that is started now would not know all {}: {error}", R::OF));
        self.file = Err(error.clone());
        self.retry_at = Instant::now() + RETRY;
        error
    }
}

impl FileError {
    fn new(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self { doing, path: path.display().to_string(), source: Arc::new(source) }
    }
}

fn push(content: &mut Vec<u8>, value: &impl Serialize) -> io::Result<()> {
    content.extend(line::of_json(&serde_json::to_string(value)?));
    content.push(b'\n');
    Ok(())
}

/// The records of a file, and the number of those that are not as they were written.
struct Parsed<R> {
    records: Vec<R>,
    damaged: u64,
}

/// Reads a file; one of another boot has no records.
///
/// # Errors
/// When its beginning does not say what it is, or says that another version wrote it.
fn parse<R: Record>(content: &[u8], boot_id: &str) -> Result<Parsed<R>, String> {
    let mut lines = content.split_inclusive(|byte| *byte == b'\n').filter(|line| *line != b"\n");
    let first = lines.next().unwrap_or_default().trim_ascii_end();
    let sealed = line::decode(first).map(str::as_bytes);
    let header: Header =
        serde_json::from_slice(sealed.unwrap_or(first)).map_err(|_| "its header is damaged".to_owned())?;
    match (header.version, sealed) {
        (VERSION, Some(_)) | (WITHOUT_CHECKSUMS, None) => {}
        (version, _) => return Err(format!("it has the format {version}, and this daemon writes {VERSION}")),
    }
    let mut parsed = Parsed { records: Vec::new(), damaged: 0 };
    if header.boot_id != boot_id {
        return Ok(parsed);
    }
    for line in lines {
        let text = line.trim_ascii_end();
        let json = if sealed.is_some() { line::decode(text).map(str::as_bytes) } else { Some(text) };
        match json.and_then(|json| serde_json::from_slice(json).ok()) {
            Some(record) => parsed.records.push(record),
            // A daemon was killed while it appended this; it acted on nothing that is not written.
            None if line.last() != Some(&b'\n') => {}
            None => parsed.damaged += 1,
        }
    }
    Ok(parsed)
}

#[cfg(test)]
#[path = "run_file_tests.rs"]
mod tests;
