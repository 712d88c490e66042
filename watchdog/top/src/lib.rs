//! `watchdogctl top`: sessions, their processes and findings on one screen, live, from the history or from a recording.
//!
//! [`model`] is the state: an input in, a new state and requests out. [`draw`] draws it, [`fetch`] talks to the daemon and
//! plays recordings, [`screen`] owns the terminal, and [`app`] is the loop around them.

mod app;
mod draw;
mod events;
mod fetch;
mod model;
mod screen;

use std::io::{self, IsTerminal, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use signal_hook::low_level::emulate_default_handler;
use thiserror::Error;
use watchdog_api::client::ControlClient;
use watchdog_recording::RecordingReadError;

use self::app::{App, AppEnd};
use self::draw::Palette;
use self::screen::Screen;

/// What is shown, and how.
#[derive(Debug)]
pub struct TopOptions {
    /// Where the daemon listens.
    pub client: ControlClient,
    /// Shows this recording instead of the daemon's state.
    pub replay: Option<PathBuf>,
    /// Colours are wanted.
    pub colour: bool,
}

/// Why it could not run.
#[derive(Debug, Error)]
pub enum TopError {
    /// Standard input or output is something else.
    #[error(
        "`top` needs a terminal as standard input and output\nUse `watchdogctl tree` or `watchdogctl status` in scripts."
    )]
    NoTerminal,
    /// It cannot move the cursor.
    #[error(
        "`top` cannot draw on a terminal of type dumb\nUse `watchdogctl tree`, or set TERM to the terminal's type."
    )]
    DumbTerminal,
    /// The recording cannot be read.
    #[error("{} {source}", path.display())]
    Recording {
        /// The file.
        path: PathBuf,
        /// Why.
        source: RecordingReadError,
    },
    /// The terminal failed.
    #[error("terminal: {0}")]
    Terminal(#[from] io::Error),
}

/// Runs until the user quits or a signal ends it; the process then ends by that signal.
///
/// # Errors
/// There is no terminal, or the recording cannot be read.
pub fn run(options: TopOptions) -> Result<ExitCode, TopError> {
    if !stdin().is_terminal() || !stdout().is_terminal() {
        return Err(TopError::NoTerminal);
    }
    if std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
        return Err(TopError::DumbTerminal);
    }
    let palette = Palette { colour: options.colour };
    let mut app = match options.replay {
        None => App::live(options.client, palette)?,
        Some(path) => {
            fetch::open_recording(&path).map_err(|source| TopError::Recording { path: path.clone(), source })?;
            App::replay(&path, palette)?
        }
    };
    let mut screen = Screen::enter()?;
    let end = app.run(&mut screen);
    drop(screen);
    match end {
        Ok(AppEnd::Quit) => Ok(ExitCode::SUCCESS),
        Ok(AppEnd::Signal(signal)) => {
            emulate_default_handler(signal)?;
            Ok(ExitCode::FAILURE)
        }
        // The terminal has gone away, as when a window is closed.
        Err(error) => Err(error.into()),
    }
}
