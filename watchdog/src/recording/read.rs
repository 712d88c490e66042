//! Reads recordings, up to where they are torn.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;
use serde::Deserialize;

use super::{End, Entry, Header, VERSION};
use crate::engine::id::BootTime;

/// A member that is larger than this was not written by us: a scan of some hundred thousand processes is smaller. It bounds
/// what a crafted file can make us hold in memory.
const LARGEST: u64 = 256 * 1024 * 1024;
/// The first byte of a gzip member (RFC 1952), and of no line of JSON.
const GZIP: u8 = 0x1f;

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file system says no.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// Not even a header.
    #[error("holds no recording: it is empty, or was torn before its first line ended")]
    Empty,
    /// Something else.
    #[error("is no recording of watchdogd")]
    NotARecording,
    /// Ours, and not of this version.
    #[error(
        "is a recording in version {found} of the format, written by agent-watchdog {written_by}; this watchdogctl reads \
         version {VERSION}: replay it with the one that came with the watchdogd that wrote it"
    )]
    Version {
        /// Its version.
        found: u32,
        /// Who wrote it.
        written_by: String,
    },
    /// It is whole, and yet means nothing to us.
    #[error("cannot be replayed: line {line} is not understood ({why}); it was written by agent-watchdog {written_by}")]
    Line {
        /// Counted from 1, the header's.
        line: u64,
        /// What is wrong.
        why: String,
        /// Who wrote it.
        written_by: String,
    },
}

/// How a recording ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As it says itself.
    Said(BootTime, End),
    /// It does not say: the daemon was killed, or still runs.
    Unsaid,
    /// It breaks off inside something, or what follows is damaged.
    Torn(String),
}

/// Gives a recording's entries one by one.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    compressed: bool,
    header: Header,
    /// What was read last: a member, or a line.
    text: Vec<u8>,
    /// How much of it has been given.
    given: usize,
    line: u64,
    ending: Option<Ending>,
}

/// What every version's header has.
#[derive(Deserialize)]
struct AnyHeader {
    agent_watchdog_recording: u32,
    #[serde(default)]
    written_by: String,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// When there is none, it is of another version, or the source cannot be read.
    pub fn new(mut source: R) -> Result<Self, ReadError> {
        let compressed = source.fill_buf()?.first() == Some(&GZIP);
        let header = Header {
            agent_watchdog_recording: VERSION,
            written_by: String::new(),
            kernel: String::new(),
            boot_id: String::new(),
            booted_ns: 0,
            began: BootTime(0),
            whole_argv: false,
            config: String::new(),
        };
        let mut reader = Self { source, compressed, header, text: Vec::new(), given: 0, line: 0, ending: None };
        let first = reader.next_line()?;
        let Some(first) = first.map(<[u8]>::to_vec) else {
            return Err(match reader.ending {
                // What breaks off without a line end may be anything.
                Some(Ending::Torn(_)) if !compressed => ReadError::NotARecording,
                _ => ReadError::Empty,
            });
        };
        if !first.starts_with(b"{") {
            // An array would do as well for a struct.
            return Err(ReadError::NotARecording);
        }
        let any: AnyHeader = serde_json::from_slice(&first).map_err(|_| ReadError::NotARecording)?;
        if any.agent_watchdog_recording != VERSION {
            return Err(ReadError::Version { found: any.agent_watchdog_recording, written_by: any.written_by });
        }
        reader.header.written_by = any.written_by;
        reader.header = serde_json::from_slice(&first).map_err(|error| reader.misunderstood(&error))?;
        Ok(reader)
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How it ends; `None` before that was reached.
    #[must_use]
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// Something in the last line is not understood.
    pub(super) fn misunderstood(&self, why: &impl ToString) -> ReadError {
        ReadError::Line { line: self.line, why: why.to_string(), written_by: self.header.written_by.clone() }
    }

    fn next_line(&mut self) -> Result<Option<&[u8]>, ReadError> {
        if self.given == self.text.len() && !self.read_on()? {
            return Ok(None);
        }
        let begin = self.given;
        let Some(length) = self.text[begin..].iter().position(|&byte| byte == b'\n') else {
            self.ending = Some(Ending::Torn("the last line has no end".to_owned()));
            return Ok(None);
        };
        self.given = begin + length + 1;
        self.line += 1;
        Ok(Some(&self.text[begin..begin + length]))
    }

    /// Reads the next member, or the next line; `false` when there is none.
    fn read_on(&mut self) -> Result<bool, ReadError> {
        self.text.clear();
        self.given = 0;
        if self.source.fill_buf()?.is_empty() {
            self.ending = Some(Ending::Unsaid);
            return Ok(false);
        }
        let read = if self.compressed {
            GzDecoder::new(&mut self.source).take(LARGEST + 1).read_to_end(&mut self.text)
        } else {
            (&mut self.source).take(LARGEST + 1).read_until(b'\n', &mut self.text)
        };
        let torn = match read {
            Ok(length) if length as u64 > LARGEST => "more follows in one piece than is ever written".to_owned(),
            Ok(_) => return Ok(true),
            // What the decoder says of damaged data; anything else is the source's.
            Err(error) if is_damage(error.kind()) => error.to_string(),
            Err(error) => return Err(error.into()),
        };
        self.ending = Some(Ending::Torn(torn));
        self.text.clear();
        Ok(false)
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Entry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ending.is_some() {
            return None;
        }
        let entry = match self.next_line() {
            Ok(line) => serde_json::from_slice(line?),
            Err(error) => return Some(Err(error)),
        };
        Some(match entry {
            Ok(Entry::Ended(at, end)) => {
                self.ending = Some(Ending::Said(at, end.clone()));
                Ok(Entry::Ended(at, end))
            }
            Ok(entry) => Ok(entry),
            Err(error) => Err(self.misunderstood(&error)),
        })
    }
}

fn is_damage(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)
}
