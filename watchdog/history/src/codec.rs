//! One record per line: `CRC-32 in hexadecimal, a space, JSON, a line feed`. JSON contains no raw line feed, so a reader
//! continues at the next line after damage.

use watchdog_api::{Evidence, Past, Record};

/// Bytes before the JSON.
pub(super) const PREFIX: usize = 9;
/// Bytes of a written line; beyond that evidence is left out.
const MAX_WRITTEN: usize = 64 * 1024;
/// Bytes of a line that is read.
pub(super) const MAX_READ: usize = 1 << 20;

/// With the line feed.
#[must_use]
pub fn encode(record: &Record) -> Vec<u8> {
    let line = seal(record);
    if line.len() <= MAX_WRITTEN {
        return line;
    }
    let mut shorter = record.clone();
    match &mut shorter.what {
        Past::Finding(finding) => finding.finding.evidence = Evidence::left_out(),
        Past::Death(death) => death.retain(|_, value| !value.is_array() && !value.is_object()),
        Past::Action(action) => action.pids.truncate(1_000),
        _ => {}
    }
    seal(&shorter)
}

fn seal(record: &Record) -> Vec<u8> {
    // Strings, numbers and maps with string keys always serialise.
    encode_json(&serde_json::to_string(record).unwrap_or_default())
}

/// `json` must not contain a line feed; the result ends with one.
pub fn encode_json(json: &str) -> Vec<u8> {
    let mut line = Vec::with_capacity(PREFIX + json.len() + 1);
    line.resize(PREFIX, b' ');
    line.extend_from_slice(json.as_bytes());
    let checksum = format!("{:08x}", crc32fast::hash(&line[PREFIX..]));
    line[..PREFIX - 1].copy_from_slice(checksum.as_bytes());
    line.push(b'\n');
    line
}

/// The JSON of a line, which has no line feed; `None` when the checksum does not match.
#[must_use]
pub fn decode(line: &[u8]) -> Option<&str> {
    let (prefix, json) = line.split_at_checked(PREFIX)?;
    let written = std::str::from_utf8(prefix).ok()?.strip_suffix(' ')?;
    let written = u32::from_str_radix(written, 16).ok()?;
    (crc32fast::hash(json) == written).then(|| std::str::from_utf8(json).ok())?
}
