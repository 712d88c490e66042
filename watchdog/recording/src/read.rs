//! Reads recordings, up to the first damage.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;
use serde::Deserialize;

use super::{RecordingEnd, RecordingEntry, RecordingHeader, VERSION};
use watchdog_types::BootTime;

/// Larger members are rejected, which bounds the memory that a crafted file can use. A scan of some hundred thousand
/// processes is smaller.
const MAX_MEMBER: u64 = 256 * 1024 * 1024;
/// The first byte of a gzip member (RFC 1952), and of no line of JSON.
const GZIP: u8 = 0x1f;

/// The messages complete "FILE ...".
#[derive(Debug, thiserror::Error)]
pub enum RecordingReadError {
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("contains no recording: it is empty, or truncated within its first line")]
    Empty,
    #[error("is not a recording of watchdogd")]
    NotARecording,
    #[error(
        "has format version {found}, written by agent-watchdog {written_by}; this watchdogctl reads version {VERSION}: \
         replay it with the watchdogctl of that release"
    )]
    Version {
        found: u32,
        /// Version of the daemon.
        written_by: String,
    },
    /// Undamaged, but unknown to this version.
    #[error("cannot be replayed: invalid line {line} ({why}), written by agent-watchdog {written_by}")]
    Line {
        /// The header is line 1.
        line: u64,
        why: String,
        /// Version of the daemon.
        written_by: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With an entry that says so.
    Stated(BootTime, RecordingEnd),
    /// Without such an entry: the daemon was killed, or is still running.
    Unstated,
    /// Within a member or line, or at damage.
    Truncated(String),
}

/// Iterates over the entries of a recording.
#[derive(Debug)]
pub struct RecordingReader<R> {
    source: R,
    compressed: bool,
    header: RecordingHeader,
    /// The last member or line.
    text: Vec<u8>,
    /// Bytes of it that were returned.
    returned: usize,
    line: u64,
    ending: Option<Ending>,
}

/// The fields that the header of every version has.
#[derive(Deserialize)]
struct AnyVersionHeader {
    agent_watchdog_recording: u32,
    #[serde(default)]
    written_by: String,
}

impl<R: BufRead> RecordingReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// When the header is missing or of another version, or the source cannot be read.
    pub fn new(mut source: R) -> Result<Self, RecordingReadError> {
        let compressed = source.fill_buf()?.first() == Some(&GZIP);
        let header = RecordingHeader {
            agent_watchdog_recording: VERSION,
            written_by: String::new(),
            kernel: String::new(),
            boot_id: String::new(),
            booted_ns: 0,
            began: BootTime(0),
            whole_argv: false,
            config: String::new(),
        };
        let mut reader = Self { source, compressed, header, text: Vec::new(), returned: 0, line: 0, ending: None };
        let first = reader.next_line()?;
        let Some(first) = first.map(<[u8]>::to_vec) else {
            return Err(match reader.ending {
                // Without a line end it may be any file.
                Some(Ending::Truncated(_)) if !compressed => RecordingReadError::NotARecording,
                _ => RecordingReadError::Empty,
            });
        };
        if !first.starts_with(b"{") {
            // serde would accept an array for the struct.
            return Err(RecordingReadError::NotARecording);
        }
        let any: AnyVersionHeader = serde_json::from_slice(&first).map_err(|_| RecordingReadError::NotARecording)?;
        if any.agent_watchdog_recording != VERSION {
            return Err(RecordingReadError::Version {
                found: any.agent_watchdog_recording,
                written_by: any.written_by,
            });
        }
        reader.header.written_by = any.written_by;
        reader.header = serde_json::from_slice(&first).map_err(|error| reader.line_error(&error))?;
        Ok(reader)
    }

    #[must_use]
    pub fn header(&self) -> &RecordingHeader {
        &self.header
    }

    /// `None` before the end was reached.
    #[must_use]
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// An error about the last line.
    pub(super) fn line_error(&self, why: &impl ToString) -> RecordingReadError {
        RecordingReadError::Line { line: self.line, why: why.to_string(), written_by: self.header.written_by.clone() }
    }

    fn next_line(&mut self) -> Result<Option<&[u8]>, RecordingReadError> {
        if self.returned == self.text.len() && !self.fill()? {
            return Ok(None);
        }
        let begin = self.returned;
        let Some(length) = self.text[begin..].iter().position(|&byte| byte == b'\n') else {
            self.ending = Some(Ending::Truncated("the last line is incomplete".to_owned()));
            return Ok(None);
        };
        self.returned = begin + length + 1;
        self.line += 1;
        Ok(Some(&self.text[begin..begin + length]))
    }

    /// Reads the next member or line; `false` at the end.
    fn fill(&mut self) -> Result<bool, RecordingReadError> {
        self.text.clear();
        self.returned = 0;
        if self.source.fill_buf()?.is_empty() {
            self.ending = Some(Ending::Unstated);
            return Ok(false);
        }
        let read = if self.compressed {
            GzDecoder::new(&mut self.source).take(MAX_MEMBER + 1).read_to_end(&mut self.text)
        } else {
            (&mut self.source).take(MAX_MEMBER + 1).read_until(b'\n', &mut self.text)
        };
        let damage = match read {
            Ok(length) if length as u64 > MAX_MEMBER => "member too large".to_owned(),
            Ok(_) => return Ok(true),
            // From the decoder: damaged data. Other errors come from the source.
            Err(error) if is_damage(error.kind()) => error.to_string(),
            Err(error) => return Err(error.into()),
        };
        self.ending = Some(Ending::Truncated(damage));
        self.text.clear();
        Ok(false)
    }
}

impl<R: BufRead> Iterator for RecordingReader<R> {
    type Item = Result<RecordingEntry, RecordingReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ending.is_some() {
            return None;
        }
        let entry = match self.next_line() {
            Ok(line) => serde_json::from_slice(line?),
            Err(error) => return Some(Err(error)),
        };
        Some(match entry {
            Ok(RecordingEntry::Ended(at, end)) => {
                self.ending = Some(Ending::Stated(at, end.clone()));
                Ok(RecordingEntry::Ended(at, end))
            }
            Ok(entry) => Ok(entry),
            Err(error) => Err(self.line_error(&error)),
        })
    }
}

fn is_damage(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)
}
