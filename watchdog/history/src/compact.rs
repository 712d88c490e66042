//! Replaces a history that is too large or too old with a copy of the records that stay.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::HEADER;
use super::codec::{self, PREFIX};
use super::holdings::{Holdings, Surplus};
use super::read::{HistoryLines, RecordHead, Slice, StoredLine};
use watchdog_files::trusted_file;

/// Type of the record that begins a run of the daemon.
pub(super) const STARTED: &str = "daemon_started";
/// Type of the record that ends it.
const STOPPED: &str = "daemon_stopped";
/// Quarters of `max_bytes` that stay of a file that is too large.
const KEPT_QUARTERS: u64 = 3;
/// Bytes per write.
const BUFFER: usize = 32 * 1024;

/// Age and size at which old records are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// No record is older than 9/8 of this.
    pub retention: Duration,
    /// The file is no larger than 9/8 of this.
    pub max_bytes: u64,
}

/// Copies the records that stay to `path`. Returns the new file, its length, and the time of its oldest record.
///
/// # Errors
/// When it cannot be written, mostly because the disk is full.
pub(super) fn copy(
    from: &File,
    len: u64,
    path: &Path,
    limits: &StoreLimits,
    now: Timestamp,
) -> io::Result<(File, u64, Option<Timestamp>)> {
    let cutoff = now.checked_sub(signed(limits.retention)).unwrap_or(Timestamp::MIN);
    let mut surplus = surplus(from, len, limits, cutoff)?;
    let mut source = lines(from, len)?;
    let target = trusted_file::create(path)?;
    let mut copy = CompactedFile { to: BufWriter::with_capacity(BUFFER, target), len: 0, oldest: None };
    copy.write(HEADER)?;
    // The first record of a run stays while any other of it does: it alone has the boot id.
    let mut beginning: Option<(String, String)> = None;
    let mut last_run = String::new();
    while let Some(found) = source.next()? {
        let StoredLine::Record(json) = found else { continue };
        let Some(head) = RecordHead::of(json) else { continue };
        // The end of a run stays while any other record of it does.
        let stays = head.at >= cutoff
            && match head.kind.as_ref() {
                STOPPED => last_run == head.run,
                _ => !surplus.takes(head.owner_uid, head.session, line_length(json)),
            };
        if stays {
            if let Some((run, beginning)) = beginning.take()
                && run == head.run
            {
                copy.record(&beginning)?;
            }
            if last_run != head.run {
                head.run.as_ref().clone_into(&mut last_run);
            }
            copy.oldest = copy.oldest.or(Some(head.at));
            copy.record(json)?;
        } else if head.kind == STARTED {
            beginning = Some((head.run.into_owned(), json.to_owned()));
        }
    }
    if let Some((_, beginning)) = beginning {
        copy.record(&beginning)?;
    }
    let file = copy.to.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    Ok((file, copy.len, copy.oldest))
}

/// The bytes to remove by owner. None if the file is only too old.
fn surplus(from: &File, len: u64, limits: &StoreLimits, cutoff: Timestamp) -> io::Result<Surplus> {
    if len <= limits.max_bytes {
        return Ok(Surplus::default());
    }
    let mut holdings = Holdings::default();
    let mut lines = lines(from, len)?;
    while let Some(found) = lines.next()? {
        let StoredLine::Record(json) = found else { continue };
        if let Some(head) = RecordHead::of(json).filter(|head| head.at >= cutoff) {
            holdings.add(head.owner_uid, head.session, line_length(json));
        }
    }
    Ok(holdings.surplus((limits.max_bytes / 4 * KEPT_QUARTERS).saturating_sub(HEADER.len() as u64)))
}

fn lines(from: &File, len: u64) -> io::Result<HistoryLines<Slice<'_>>> {
    HistoryLines::new(Slice { file: from, at: 0, end: len })?
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its first line is missing"))
}

fn line_length(json: &str) -> u64 {
    (PREFIX + json.len() + 1) as u64
}

struct CompactedFile {
    to: BufWriter<File>,
    len: u64,
    oldest: Option<Timestamp>,
}

impl CompactedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.len += bytes.len() as u64;
        self.to.write_all(bytes)
    }

    fn record(&mut self, json: &str) -> io::Result<()> {
        self.write(&codec::encode_json(json))
    }
}

pub(super) fn signed(span: Duration) -> SignedDuration {
    SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX)
}
