//! Standard output of a command: text or JSON.

use std::io::{self, Write};

use serde::Serialize;

use crate::error::CtlError;
use crate::render::{Terminal, safe_json};

pub(crate) struct CommandOutput<'a> {
    pub(crate) json: bool,
    pub(crate) terminal: Terminal,
    /// Standard output, or a buffer in tests.
    pub(crate) to: &'a mut dyn Write,
}

impl CommandOutput<'_> {
    /// Prints a JSON document of the daemon, or the text that `text` renders.
    pub(crate) fn show(&mut self, document: &str, text: impl FnOnce(&Terminal) -> String) -> Result<(), CtlError> {
        if self.json { self.line(&safe_json(document.trim_ascii())) } else { self.text(&text(&self.terminal)) }
    }

    /// Prints a value as JSON, or the text that `text` renders.
    pub(crate) fn show_value(
        &mut self,
        value: &impl Serialize,
        text: impl FnOnce(&Terminal) -> String,
    ) -> Result<(), CtlError> {
        if self.json { self.line(&safe_json(&serde_json::to_string(value)?)) } else { self.text(&text(&self.terminal)) }
    }

    pub(crate) fn line(&mut self, line: &str) -> Result<(), CtlError> {
        self.text(&format!("{line}\n"))
    }

    /// Prints text that ends its own lines, unbuffered: `events --follow` must show each event at once.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), CtlError> {
        self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush()).map_err(CtlError::Output)
    }
}

/// Prints to standard error. A failure to do so is ignored.
pub(crate) fn print_error(message: &str) {
    let _ = io::stderr().write_all(message.as_bytes());
}
