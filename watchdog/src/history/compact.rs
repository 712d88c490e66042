//! The copy that takes the place of a file that is too large or too old.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use jiff::Timestamp;

use super::HEADER;
use super::holdings::{Holdings, Surplus};
use super::line::{self, PREFIX};
use super::read::{Found, Head, Lines};
use super::store::{Limits, STARTED, Slice, signed};
use crate::trusted_file;

/// What stays of a file that has become too large, in quarters.
const KEPT_QUARTERS: u64 = 3;
/// The type of the record that ends a run.
const STOPPED: &str = "daemon_stopped";
/// What is written at a time.
const BUFFER: usize = 32 * 1024;

/// Copies what stays to `path`: the new file, its length, and its oldest record.
///
/// # Errors
/// When it cannot be written, for want of room above all.
pub(super) fn copy(
    from: &File,
    len: u64,
    path: &Path,
    limits: &Limits,
    now: Timestamp,
) -> io::Result<(File, u64, Option<Timestamp>)> {
    let cutoff = now.checked_sub(signed(limits.retention)).unwrap_or(Timestamp::MIN);
    let mut surplus = surplus(from, len, limits, cutoff)?;
    let mut source = lines(from, len)?;
    let target = trusted_file::create(path)?;
    let mut copy = Copy { to: BufWriter::with_capacity(BUFFER, target), len: 0, oldest: None };
    copy.write(HEADER)?;
    // A run that goes on is still named by its beginning, which is the only record that tells the boot.
    let mut beginning: Option<(String, String)> = None;
    let mut last_run = String::new();
    while let Some(found) = source.next()? {
        let Found::Record(json) = found else { continue };
        let Some(head) = Head::of(json) else { continue };
        // How a run ended is kept for as long as anything else of it.
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

/// Whose records have to leave. None, where the file is only too old.
fn surplus(from: &File, len: u64, limits: &Limits, cutoff: Timestamp) -> io::Result<Surplus> {
    if len <= limits.max_bytes {
        return Ok(Surplus::default());
    }
    let mut holdings = Holdings::default();
    let mut lines = lines(from, len)?;
    while let Some(found) = lines.next()? {
        let Found::Record(json) = found else { continue };
        if let Some(head) = Head::of(json).filter(|head| head.at >= cutoff) {
            holdings.add(head.owner_uid, head.session, line_length(json));
        }
    }
    Ok(holdings.surplus((limits.max_bytes / 4 * KEPT_QUARTERS).saturating_sub(HEADER.len() as u64)))
}

fn lines(from: &File, len: u64) -> io::Result<Lines<Slice<'_>>> {
    Lines::new(Slice { file: from, at: 0, end: len })?
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its first line is gone"))
}

/// Bytes of a record in the file.
fn line_length(json: &str) -> u64 {
    (PREFIX + json.len() + 1) as u64
}

struct Copy {
    to: BufWriter<File>,
    len: u64,
    oldest: Option<Timestamp>,
}

impl Copy {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.len += bytes.len() as u64;
        self.to.write_all(bytes)
    }

    fn record(&mut self, json: &str) -> io::Result<()> {
        self.write(&line::of_json(json))
    }
}
