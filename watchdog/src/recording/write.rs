//! Writes recordings.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use super::{Entry, Header};

/// A member is closed when it holds this much text, or when [`Writer::flush`] is called.
const MEMBER: usize = 128 * 1024;
/// What a higher level saves of JSON is not worth its time.
const LEVEL: u32 = 3;

/// Writes a recording. What was pushed and not flushed is in memory only.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    text: Vec<u8>,
    whole: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a recording, and writes its header at once.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(to: W, header: &Header) -> io::Result<Self> {
        let mut writer = Self { to, text: Vec::new(), whole: 0 };
        writer.line(header)?;
        writer.flush()?;
        Ok(writer)
    }

    /// Appends an entry; many at a time are written.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn push(&mut self, entry: &Entry) -> io::Result<()> {
        self.line(entry)?;
        if self.text.len() >= MEMBER { self.flush() } else { Ok(()) }
    }

    /// Writes what was pushed, as one member in one call. What could not be written is forgotten.
    ///
    /// # Errors
    /// When it cannot be written; then part of it may be in the file.
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

    /// How many bytes were written so far, all of them whole members.
    #[must_use]
    pub fn whole(&self) -> u64 {
        self.whole
    }

    /// Where it is written.
    pub fn target(&mut self) -> &mut W {
        &mut self.to
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.text, line)?;
        self.text.push(b'\n');
        Ok(())
    }
}
