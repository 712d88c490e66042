//! `gate.jsonl` in the runtime directory: what the gate has to know when the daemon was gone. It is on a tmpfs, so it is written at
//! once and by whoever has something to write, and it goes with the host, as everything does that it tells of.
//!
//! The first line says of which boot it is; each other line is a [`GateRecord`]. What a daemon that was killed left half
//! written is not there. When the file has grown long it is written anew with what holds now.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::grumble::Grumble;
use crate::engine::gate::GateRecord;

/// The file's name.
pub(super) const FILE: &str = "gate.jsonl";
/// Counted up when an older daemon could not read the records any more.
const VERSION: u32 = 1;
/// Below this the file is not worth being written anew.
const LONG: u64 = 1 << 20;
/// A file that is longer than this is not ours.
const LONGEST: u64 = 256 << 20;
/// The time between two tries while it cannot be written.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    version: u32,
    boot_id: String,
}

/// What cannot be done with the file.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {path}: {source}")]
struct FileError {
    doing: &'static str,
    path: String,
    source: io::Error,
}

/// The file, open for more.
#[derive(Debug)]
pub(super) struct GateFile {
    path: PathBuf,
    header: Header,
    /// `None` until it has been written once, and after it could not be.
    file: Option<File>,
    bytes: u64,
    /// It is written anew when it is longer.
    limit: u64,
    retry_at: Instant,
    failed: Grumble,
}

impl GateFile {
    /// The file of this directory, and what it says of this boot. Nothing is written yet.
    pub(super) fn open(dir: &Path, boot_id: &str) -> (Self, Vec<GateRecord>) {
        let path = dir.join(FILE);
        let header = Header { version: VERSION, boot_id: boot_id.to_owned() };
        let records = match read(&path) {
            Ok(Some(text)) => parse(&path, &text, &header),
            Ok(None) => Vec::new(),
            Err(error) => {
                tracing::warn!("leases and places in the queue of an earlier run are not known: {error}");
                Vec::new()
            }
        };
        let (retry_at, failed) = (Instant::now(), Grumble::default());
        (Self { path, header, file: None, bytes: 0, limit: 0, retry_at, failed }, records)
    }

    /// Whether it is to be written anew, before anything else is.
    pub(super) fn is_due(&self) -> bool {
        match self.file {
            Some(_) => self.bytes > self.limit,
            None => Instant::now() >= self.retry_at,
        }
    }

    /// Adds a record. Where that fails it is said, and the whole file is tried again later: nobody is kept from anything.
    pub(super) fn append(&mut self, record: &GateRecord) {
        let Some(file) = &mut self.file else { return };
        let mut line = Vec::new();
        let written = push(&mut line, record).and_then(|()| file.write_all(&line));
        match written {
            Ok(()) => self.bytes += line.len() as u64,
            Err(source) => self.give_up("write", source),
        }
    }

    /// Writes the file anew with these records and no others.
    pub(super) fn rewrite(&mut self, records: &[GateRecord]) {
        match self.try_rewrite(records) {
            Ok((file, bytes)) => {
                (self.file, self.bytes, self.limit) = (Some(file), bytes, LONG.max(bytes.saturating_mul(2)));
            }
            Err(source) => self.give_up("write", source),
        }
    }

    fn try_rewrite(&self, records: &[GateRecord]) -> io::Result<(File, u64)> {
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

    fn give_up(&mut self, doing: &'static str, source: io::Error) {
        let error = FileError { doing, path: self.path.display().to_string(), source };
        self.failed.say(format_args!("a daemon that is started now would not know every lease and place: {error}"));
        self.file = None;
        self.retry_at = Instant::now() + RETRY;
    }
}

fn push(text: &mut Vec<u8>, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *text, value)?;
    text.push(b'\n');
    Ok(())
}

fn read(path: &Path) -> Result<Option<String>, FileError> {
    let failed = |source| FileError { doing: "read", path: path.display().to_string(), source };
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).map_err(failed)?;
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

/// The records of a file, if it is of this boot and version.
fn parse(path: &Path, text: &str, expected: &Header) -> Vec<GateRecord> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut lines = whole.lines();
    match lines.next().map(serde_json::from_str::<Header>) {
        Some(Ok(header)) if header == *expected => {}
        Some(Ok(Header { version, .. })) if version != VERSION => {
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
    fn begun(dir: &Path, records: &[GateRecord]) -> GateFile {
        let (mut file, _) = GateFile::open(dir, BOOT);
        assert!(file.is_due(), "it has not been written yet");
        file.rewrite(records);
        assert!(!file.is_due());
        file
    }

    fn read_again(dir: &Path) -> Vec<GateRecord> {
        GateFile::open(dir, BOOT).1
    }

    #[test]
    fn records_are_read_in_the_order_in_which_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_again(dir.path()), []);
        let mut file = begun(dir.path(), &[granted(1)]);
        file.append(&GateRecord::Ended(process(1)));
        file.append(&granted(2));
        assert_eq!(read_again(dir.path()), [granted(1), GateRecord::Ended(process(1)), granted(2)]);
        let mode = std::fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn half_a_line_at_the_end_is_not_there_and_a_damaged_one_costs_only_itself() {
        let dir = tempfile::tempdir().unwrap();
        begun(dir.path(), &[granted(1), granted(2), granted(3)]);
        let path = dir.path().join(FILE);
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
        assert_eq!(GateFile::open(dir.path(), "another boot").1, []);
        for bad in ["", "\n", "nonsense\n", "{\"version\":2,\"boot_id\":\"this boot\"}\n{}\n"] {
            std::fs::write(dir.path().join(FILE), bad).unwrap();
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
            file.append(&granted(pid));
            file.append(&GateRecord::Ended(process(pid)));
        }
        assert!(std::fs::metadata(dir.path().join(FILE)).unwrap().len() > LONG);
        file.rewrite(&[granted(pid)]);
        assert!(!file.is_due());
        file.append(&granted(7));
        assert_eq!(read_again(dir.path()), [granted(pid), granted(7)]);
    }

    #[test]
    fn a_file_that_cannot_be_written_keeps_nobody_and_is_whole_once_it_can() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("below");
        let (mut file, _) = GateFile::open(&below, BOOT);
        file.rewrite(&[granted(1)]);
        file.append(&granted(2));
        assert!(!file.is_due(), "not tried again at once");
        std::fs::create_dir(&below).unwrap();
        crate::host::testing::eventually("it is tried again", || file.is_due());
        file.rewrite(&[granted(1), granted(2)]);
        assert_eq!(read_again(&below), [granted(1), granted(2)]);
    }
}
