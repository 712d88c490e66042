//! Files in the runtime directory that say what a daemon has to know which is started after another was gone: `gate.jsonl` and
//! `actions.jsonl`. They are on a tmpfs, so they are written at once and by whoever has something to write, and they go with the
//! host, as everything does that they tell of.
//!
//! The first line says of which boot a file is; each other line is a record. What a daemon that was killed left half written is
//! not there. When a file has grown long it is written anew with what holds now.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::grumble::Grumble;
use crate::engine::act::ActionRecord;
use crate::engine::gate::GateRecord;

/// Below this a file is not worth being written anew.
const LONG: u64 = 1 << 20;
/// A file that is longer than this is not ours.
const LONGEST: u64 = 256 << 20;
/// The time between two tries while it cannot be written.
const RETRY: Duration = Duration::from_secs(1);

/// What a file is made of.
pub(super) trait Record: Serialize + DeserializeOwned {
    /// The file's name.
    const FILE: &'static str;
    /// Counted up when an older daemon could not read the records any more.
    const VERSION: u32;
    /// What they are of, for people.
    const OF: &'static str;
}

impl Record for GateRecord {
    const FILE: &'static str = "gate.jsonl";
    const VERSION: u32 = 1;
    const OF: &'static str = "leases and places in the queue";
}

impl Record for ActionRecord {
    const FILE: &'static str = "actions.jsonl";
    const VERSION: u32 = 1;
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

/// A file, open for more.
#[derive(Debug)]
pub(super) struct RunFile<R> {
    path: PathBuf,
    header: Header,
    /// Why there is none: it has not been written yet, or could not be.
    file: Result<File, FileError>,
    bytes: u64,
    /// It is written anew when it is longer.
    limit: u64,
    retry_at: Instant,
    failed: Grumble,
    records: PhantomData<R>,
}

impl<R: Record> RunFile<R> {
    /// The file of this directory, and what it says of this boot. Nothing is written yet.
    pub(super) fn open(dir: &Path, boot_id: &str) -> (Self, Vec<R>) {
        let path = dir.join(R::FILE);
        let header = Header { version: R::VERSION, boot_id: boot_id.to_owned() };
        let records = match read(&path) {
            Ok(Some(text)) => parse(&path, &text, &header),
            Ok(None) => Vec::new(),
            Err(error) => {
                tracing::warn!("{} of an earlier run are not known: {error}", R::OF);
                Vec::new()
            }
        };
        let file = Err(FileError::new("write", &path, io::Error::other("it has not been begun")));
        let (retry_at, failed) = (Instant::now(), Grumble::default());
        (Self { path, header, file, bytes: 0, limit: 0, retry_at, failed, records: PhantomData }, records)
    }

    /// Whether it is to be written anew, before anything else is.
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

    /// Adds a record. Where that fails it is said, and the whole file is to be written anew.
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

    /// Writes the file anew with these records and no others. Where that fails it is said.
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
        self.file = Ok(OpenOptions::new().write(true).open("/dev/full").unwrap());
    }

    fn try_rewrite(&self, records: &[R]) -> io::Result<(File, u64)> {
        let mut text = Vec::new();
        push(&mut text, &self.header)?;
        records.iter().try_for_each(|record| push(&mut text, record))?;
        let new = self.path.with_extension("new");
        // Commands stand there, so it is for root alone.
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&text)?;
        std::fs::rename(&new, &self.path)?;
        Ok((file, text.len() as u64))
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

fn push(text: &mut Vec<u8>, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *text, value)?;
    text.push(b'\n');
    Ok(())
}

fn read(path: &Path) -> Result<Option<String>, FileError> {
    let failed = |source| FileError::new("read", path, source);
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).map_err(failed)?;
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

/// The records of a file, if it is of this boot and version.
fn parse<R: Record>(path: &Path, text: &str, expected: &Header) -> Vec<R> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut lines = whole.lines();
    match lines.next().map(serde_json::from_str::<Header>) {
        Some(Ok(header)) if header == *expected => {}
        Some(Ok(Header { version, .. })) if version != R::VERSION => {
            tracing::warn!("{} is of another version of this daemon, and is not read", path.display());
            return Vec::new();
        }
        // Of another boot: nobody of whom it tells is alive.
        _ => return Vec::new(),
    }
    let (mut records, mut damaged) = (Vec::new(), 0_u64);
    for line in lines {
        match serde_json::from_str(line) {
            Ok(record) => records.push(record),
            Err(_) => damaged += 1,
        }
    }
    if damaged > 0 {
        tracing::warn!("{}: {damaged} lines cannot be read, and what they tell is lost", path.display());
    }
    records
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::engine::gate::Lease;
    use crate::engine::id::{BootTime, Bytes, Pid, ProcessId, Ticks, Uid};

    const BOOT: &str = "this boot";

    fn process(pid: u32) -> ProcessId {
        ProcessId { pid: Pid(pid), start_time: Ticks(1) }
    }

    fn granted(pid: u32) -> GateRecord {
        let profile = "claude-code".to_owned();
        let (granted, expected) = (BootTime(5), Bytes(6));
        GateRecord::Granted(Lease {
            process: process(pid),
            profile,
            uid: Uid(1000),
            granted,
            expected,
            cgroups: vec!["/box".to_owned()],
        })
    }

    /// A file that has been begun with these records.
    fn begun(dir: &Path, records: &[GateRecord]) -> RunFile<GateRecord> {
        let (mut file, _) = RunFile::<GateRecord>::open(dir, BOOT);
        assert!(file.is_due(), "it has not been written yet");
        file.rewrite(records);
        assert!(!file.is_due());
        file
    }

    fn read_again(dir: &Path) -> Vec<GateRecord> {
        RunFile::<GateRecord>::open(dir, BOOT).1
    }

    #[test]
    fn records_are_read_in_the_order_in_which_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_again(dir.path()), []);
        let mut file = begun(dir.path(), &[granted(1)]);
        file.append(&GateRecord::Ended(process(1))).unwrap();
        file.append(&granted(2)).unwrap();
        assert_eq!(read_again(dir.path()), [granted(1), GateRecord::Ended(process(1)), granted(2)]);
        let mode = std::fs::metadata(dir.path().join(GateRecord::FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn half_a_line_at_the_end_is_not_there_and_a_damaged_one_costs_only_itself() {
        let dir = tempfile::tempdir().unwrap();
        begun(dir.path(), &[granted(1), granted(2), granted(3)]);
        let path = dir.path().join(GateRecord::FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        for cut in 1..text.lines().last().unwrap().len() {
            std::fs::write(&path, &text[..text.len() - cut]).unwrap();
            assert_eq!(read_again(dir.path()), [granted(1), granted(2)], "{cut} bytes are missing");
        }
        std::fs::write(&path, text.replacen("granted", "gr\u{fffd}nted", 1)).unwrap();
        assert_eq!(read_again(dir.path()), [granted(2), granted(3)]);
    }

    #[test]
    fn what_was_written_in_another_boot_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        begun(dir.path(), &[granted(1)]);
        assert_eq!(RunFile::<GateRecord>::open(dir.path(), "another boot").1, []);
        for bad in ["", "\n", "nonsense\n", "{\"version\":2,\"boot_id\":\"this boot\"}\n{}\n"] {
            std::fs::write(dir.path().join(GateRecord::FILE), bad).unwrap();
            assert_eq!(read_again(dir.path()), [], "{bad:?}");
        }
    }

    #[test]
    fn a_long_file_is_written_anew_with_what_holds_now() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = begun(dir.path(), &[]);
        let mut pid = 0;
        while !file.is_due() {
            pid += 1;
            file.append(&granted(pid)).unwrap();
            file.append(&GateRecord::Ended(process(pid))).unwrap();
        }
        assert!(std::fs::metadata(dir.path().join(GateRecord::FILE)).unwrap().len() > LONG);
        file.rewrite(&[granted(pid)]);
        assert!(!file.is_due());
        file.append(&granted(7)).unwrap();
        assert_eq!(read_again(dir.path()), [granted(pid), granted(7)]);
    }

    #[test]
    fn a_file_that_cannot_be_written_keeps_nobody_and_is_whole_once_it_can() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("below");
        let (mut file, _) = RunFile::<GateRecord>::open(&below, BOOT);
        file.rewrite(&[granted(1)]);
        let refused = file.append(&granted(2)).unwrap_err().to_string();
        assert!(refused.contains("gate.jsonl") && refused.contains("No such file"), "{refused}");
        assert!(!file.is_whole() && !file.is_due(), "not tried again at once");
        std::fs::create_dir(&below).unwrap();
        crate::host::testing::eventually("it is tried again", || file.is_due());
        file.rewrite(&[granted(1), granted(2)]);
        assert_eq!(read_again(&below), [granted(1), granted(2)]);
    }
}
