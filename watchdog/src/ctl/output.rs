//! Standard output, for a person or for a program.

use std::io::{self, Write};

use super::failure::Failure;
use super::show::{Screen, safe_json};

/// Where a command's result goes.
pub(crate) struct Output<'a> {
    /// As JSON.
    pub(crate) json: bool,
    /// What is known of the terminal, if it is one.
    pub(crate) screen: Screen,
    /// Standard output.
    pub(crate) to: &'a mut dyn Write,
}

impl Output<'_> {
    /// Prints a JSON document that the daemon wrote, or else what `text` makes of the screen.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn show(&mut self, document: &str, text: impl FnOnce(&Screen) -> String) -> Result<(), Failure> {
        if self.json { self.line(&safe_json(document.trim_ascii())) } else { self.text(&text(&self.screen)) }
    }

    /// Prints one line.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn line(&mut self, line: &str) -> Result<(), Failure> {
        self.text(&format!("{line}\n"))
    }

    /// Prints text that ends its own lines.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        // At once: whoever follows events waits for each.
        self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush()).map_err(Failure::Output)
    }
}

/// Prints to standard error; there is nobody to tell when that fails.
pub(crate) fn complain(message: &str) {
    let _ = io::stderr().write_all(message.as_bytes());
}
