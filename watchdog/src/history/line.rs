//! One record as one line: `CRC-32 in hexadecimal, a space, JSON, a line feed`. JSON has no raw line feed in it, so where a
//! line ends is never in doubt, and after damage reading goes on with the next one.

use serde_json::Map;

use crate::api::{Past, Record};

/// Bytes before the JSON.
pub(super) const PREFIX: usize = 9;
/// Most bytes of a line that is written. Evidence that is larger than this is left out.
const LONGEST_WRITTEN: usize = 64 * 1024;
/// Most bytes of a line that is read.
pub(super) const LONGEST_READ: usize = 1 << 20;

/// The record as a line, with its line feed.
#[must_use]
pub fn encode(record: &Record) -> Vec<u8> {
    let line = seal(record);
    if line.len() <= LONGEST_WRITTEN {
        return line;
    }
    let mut shorter = record.clone();
    match &mut shorter.what {
        Past::Finding(finding) => finding.finding.evidence = Map::from_iter([("left_out".to_owned(), true.into())]),
        Past::Death(death) => death.retain(|_, value| !value.is_array() && !value.is_object()),
        Past::Action(action) => action.pids.truncate(1_000),
        _ => {}
    }
    seal(&shorter)
}

fn seal(record: &Record) -> Vec<u8> {
    // Strings, numbers and maps with string keys: nothing here can fail to be JSON.
    of_json(&serde_json::to_string(record).unwrap_or_default())
}

/// JSON without a line feed as a line, with its line feed.
pub(crate) fn of_json(json: &str) -> Vec<u8> {
    let mut line = Vec::with_capacity(PREFIX + json.len() + 1);
    line.resize(PREFIX, b' ');
    line.extend_from_slice(json.as_bytes());
    let checksum = format!("{:08x}", crc32fast::hash(&line[PREFIX..]));
    line[..PREFIX - 1].copy_from_slice(checksum.as_bytes());
    line.push(b'\n');
    line
}

/// The JSON of a line without its line feed; `None` when it is not as it was written.
#[must_use]
pub fn decode(line: &[u8]) -> Option<&str> {
    let (prefix, json) = line.split_at_checked(PREFIX)?;
    let written = std::str::from_utf8(prefix).ok()?.strip_suffix(' ')?;
    let written = u32::from_str_radix(written, 16).ok()?;
    (crc32fast::hash(json) == written).then(|| std::str::from_utf8(json).ok())?
}
