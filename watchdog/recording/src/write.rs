//! Writes recordings.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use super::{RecordingEntry, RecordingHeader};

/// Uncompressed size at which a member is written.
const MEMBER: usize = 128 * 1024;
/// A higher level saves little of JSON for its CPU time.
const LEVEL: u32 = 3;

/// Writes a recording. Keeps pushed entries in memory until the next flush.
#[derive(Debug)]
pub struct RecordingWriter<W> {
    to: W,
    text: Vec<u8>,
    whole: u64,
}

impl<W: Write> RecordingWriter<W> {
    /// Writes the header at once.
    pub fn new(to: W, header: &RecordingHeader) -> io::Result<Self> {
        let mut writer = Self { to, text: Vec::new(), whole: 0 };
        writer.line(header)?;
        writer.flush()?;
        Ok(writer)
    }

    /// Appends an entry; flushes when a member is full.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn push(&mut self, entry: &RecordingEntry) -> io::Result<()> {
        self.line(entry)?;
        if self.text.len() >= MEMBER { self.flush() } else { Ok(()) }
    }

    /// Writes the pushed entries as one member in one call. They are dropped if that fails.
    ///
    /// # Errors
    /// When the member cannot be written; part of it may be in the file.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.text.is_empty() {
            return Ok(());
        }
        let mut member = GzEncoder::new(Vec::with_capacity(self.text.len() / 8), Compression::new(LEVEL));
        let compressed = member.write_all(&self.text).and_then(|()| member.finish());
        self.text.clear();
        let member = compressed?;
        self.to.write_all(&member)?;
        self.whole += member.len() as u64;
        Ok(())
    }

    /// Bytes written so far, all of them whole members.
    #[must_use]
    pub fn whole(&self) -> u64 {
        self.whole
    }

    pub fn target(&mut self) -> &mut W {
        &mut self.to
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.text, line)?;
        self.text.push(b'\n');
        Ok(())
    }
}
