use std::time::Instant;

use super::connection::{Connection, Received};
use super::error::ClientError;

/// The kernel's events hold a bounded part of argv, so no line is longer.
const MAX_LINE: usize = 1 << 20;

/// A response that the daemon sends line by line. Empty lines are skipped.
pub struct LineStream {
    connection: Connection,
    /// Start of the first line in the body that was not returned.
    start: usize,
    /// Bytes before this offset hold no further line break.
    searched: usize,
}

/// A step of a stream.
enum StreamStep {
    Line(String),
    End,
    TimedOut,
}

impl LineStream {
    pub(super) const fn new(connection: Connection) -> Self {
        Self { connection, start: 0, searched: 0 }
    }

    /// The next line of an endless stream, without its line break.
    ///
    /// # Errors
    /// The daemon ends the stream, or sends a line over 1 MiB.
    pub fn next_line(&mut self) -> Result<String, ClientError> {
        loop {
            if let Some(line) = self.next_before(None)? {
                return Ok(line);
            }
        }
    }

    /// The next line of an endless stream; `None` if none arrived before `deadline`.
    ///
    /// # Errors
    /// As [`Self::next_line`].
    pub fn next_before(&mut self, deadline: Option<Instant>) -> Result<Option<String>, ClientError> {
        match self.step(deadline)? {
            StreamStep::Line(line) => Ok(Some(line)),
            StreamStep::End => Err(self.connection.stream_ended()),
            StreamStep::TimedOut => Ok(None),
        }
    }

    /// The next line of a finite stream; `None` at its end.
    ///
    /// # Errors
    /// The connection breaks, no line arrives within the client's time limit, or a line is over 1 MiB.
    pub fn next_or_end(&mut self) -> Result<Option<String>, ClientError> {
        match self.step(Some(Instant::now() + self.connection.time_limit()))? {
            StreamStep::Line(line) => Ok(Some(line)),
            StreamStep::End => Ok(None),
            StreamStep::TimedOut => Err(self.connection.timed_out()),
        }
    }

    fn step(&mut self, deadline: Option<Instant>) -> Result<StreamStep, ClientError> {
        loop {
            let ended = self.connection.decode()?;
            if let Some(line) = self.take_line()? {
                return Ok(StreamStep::Line(line));
            }
            if ended {
                return Ok(StreamStep::End);
            }
            if self.connection.body.len() > MAX_LINE {
                return Err(self.connection.invalid(format!("a line is longer than {} MiB", MAX_LINE >> 20)));
            }
            match self.connection.receive(deadline)? {
                Received::Data => {}
                Received::TimedOut => return Ok(StreamStep::TimedOut),
                Received::End if self.connection.ends_with_the_connection() => return Ok(StreamStep::End),
                Received::End => return Err(self.connection.truncated("the connection was closed")),
            }
        }
    }

    /// A complete line, if one has arrived. Returned lines are removed from the body only when none is left.
    fn take_line(&mut self) -> Result<Option<String>, ClientError> {
        let body = &self.connection.body;
        while let Some(length) = body[self.searched..].iter().position(|&byte| byte == b'\n') {
            let end = self.searched + length;
            let line = body[self.start..end].trim_ascii();
            (self.start, self.searched) = (end + 1, end + 1);
            if !line.is_empty() {
                let line = String::from_utf8(line.to_vec());
                return line.map(Some).map_err(|error| self.connection.invalid(error.to_string()));
            }
        }
        self.connection.body.drain(..self.start);
        (self.start, self.searched) = (0, self.connection.body.len());
        Ok(None)
    }
}
