//! Reads what a viewer may see, ordered by the time of the events.
//!
//! Records are written in another order: a death is written when it is explained, after the finding that it caused, and a
//! count when its period ends. A later daemon writes the exits that it missed after its own start.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;

use jiff::{SignedDuration, Timestamp};

use super::filter::RecordFilter;
use super::read::{HistoryLines, StoredLine};

/// A record is written at most this long after its event: the longest period of a count, and some seconds.
const LATEST: SignedDuration = SignedDuration::from_secs(180);
/// Records that are held back, in bytes. Beyond that the oldest is returned sooner.
const MAX_HELD: usize = 128 * 1024;

/// One step of reading.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadStep {
    /// The JSON of the next record.
    Record(String),
    /// A line was read, and there is no next record yet.
    Continue,
    End,
}

#[derive(Debug)]
pub struct HistoryRecords {
    lines: HistoryLines<File>,
    selection: RecordFilter,
    held: BinaryHeap<HeldRecord>,
    /// Of the held records.
    bytes: usize,
    /// Records so far.
    count: u64,
    /// The latest time so far.
    latest: Timestamp,
    ended: bool,
    damaged: u64,
}

/// The greatest one is the oldest; of equally old ones, the one that was written first.
#[derive(Debug, PartialEq, Eq)]
struct HeldRecord {
    at: Timestamp,
    number: u64,
    json: String,
}

impl Ord for HeldRecord {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for HeldRecord {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl HistoryRecords {
    #[must_use]
    pub fn new(lines: HistoryLines<File>, selection: RecordFilter) -> Self {
        let (held, latest) = (BinaryHeap::new(), Timestamp::MIN);
        Self { lines, selection, held, bytes: 0, count: 0, latest, ended: false, damaged: 0 }
    }

    /// Damaged lines so far.
    #[must_use]
    pub const fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Reads at most one line.
    ///
    /// # Errors
    /// When the file cannot be read. The held records follow then.
    pub fn step(&mut self) -> io::Result<ReadStep> {
        if let Some(due) = self.take_due() {
            return Ok(ReadStep::Record(due));
        }
        if self.ended {
            return Ok(ReadStep::End);
        }
        match self.lines.next() {
            Ok(Some(StoredLine::Record(json))) => {
                if let Some((at, json)) = self.selection.show(json) {
                    let json = json.into_owned();
                    self.hold(at, json);
                }
            }
            Ok(Some(StoredLine::Damaged)) => self.damaged += 1,
            Ok(Some(StoredLine::Truncated) | None) => self.ended = true,
            Err(error) => {
                self.ended = true;
                return Err(error);
            }
        }
        Ok(ReadStep::Continue)
    }

    fn hold(&mut self, at: Timestamp, json: String) {
        self.bytes += json.len();
        self.count += 1;
        self.latest = self.latest.max(at);
        self.held.push(HeldRecord { at, number: self.count, json });
    }

    fn take_due(&mut self) -> Option<String> {
        let oldest = self.held.peek()?;
        let is_due = self.ended || self.bytes > MAX_HELD || self.latest.duration_since(oldest.at) > LATEST;
        let HeldRecord { json, .. } = is_due.then(|| self.held.pop()).flatten()?;
        self.bytes -= json.len();
        Some(json)
    }
}

#[cfg(test)]
mod tests {
    use watchdog_types::Viewer;

    use super::super::{Store, codec, open};
    use super::*;

    fn record(run: &str, at: &str, kind: &str) -> String {
        format!(r#"{{"at":"2026-01-02T{at}Z","run":"{run}","owner_uid":1,"type":"{kind}","session":3}}"#)
    }

    /// What is read of a file with these records.
    fn read(records: &[String]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let (mut store, _) = Store::open(dir.path()).unwrap();
        records.iter().for_each(|record| store.append(&codec::encode_json(record)).unwrap());
        let selection = RecordFilter { viewer: Viewer::Root, since: None, session: None };
        let mut reader = HistoryRecords::new(open(dir.path()).unwrap(), selection);
        let mut read = Vec::new();
        loop {
            match reader.step().unwrap() {
                ReadStep::Record(json) => read.push(json),
                ReadStep::Continue => {}
                ReadStep::End => return read,
            }
        }
    }

    fn assert_read(written: &[String], order: &[usize]) {
        let expected: Vec<&String> = order.iter().map(|index| &written[*index]).collect();
        assert_eq!(read(written).iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn death_precedes_finding_written_before() {
        let written = [
            record("a", "12:00:00.116", "finding"),
            record("a", "12:00:00.100", "death"),
            record("a", "12:00:00.116", "action"),
        ];
        assert_read(&written, &[1, 0, 2]);
    }

    #[test]
    fn missed_exit_precedes_later_run() {
        let written = [
            record("a", "12:00:00", "session_started"),
            record("b", "12:01:30", "daemon_started"),
            record("b", "12:01:31", "host"),
            record("b", "12:01:10", "death"),
        ];
        assert_read(&written, &[0, 3, 1, 2]);
    }

    #[test]
    fn clock_set_back_keeps_all_records() {
        let written = [
            record("a", "12:00:00", "host"),
            record("a", "12:00:10", "host"),
            record("b", "03:00:00", "host"),
            record("b", "03:00:10", "host"),
        ];
        let mut read = read(&written);
        read.sort();
        let mut expected = written.to_vec();
        expected.sort();
        assert_eq!(read, expected);
    }

    #[test]
    fn few_records_are_held() {
        let times = |seconds: std::ops::Range<u32>| {
            seconds.map(|second| record("a", &format!("12:{:02}:{:02}", second / 60, second % 60), "host"))
        };
        let written: Vec<String> = times(0..600).collect();
        assert_eq!(read(&written), written);
        // The records of one second are more than are held: they are returned as they were written.
        let flood: Vec<String> = (0..4_000).map(|_| record("a", "12:00:01", "oom")).collect();
        assert_eq!(read(&flood), flood);
    }
}
