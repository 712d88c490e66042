//! `watchdogctl`: the command-line client of the daemon.
//!
//! [`cli`] defines the command line, with the values of [`args`] and [`target`]. A file in [`commands`] implements each
//! command, [`launch`] the one that replaces this program. [`watchdog_render`] turns data into text without side effects.
//! [`completion`] answers shells. [`error`] assigns each error its exit code.

mod args;
mod cli;
mod commands;
mod completion;
mod error;
mod launch;
mod output;
mod target;

use std::process::ExitCode;

pub use self::completion::VARIABLE as COMPLETION_VARIABLE;

use self::cli::{Cli, CtlCommand};
use self::output::{CommandOutput, print_error};
use self::render::{Terminal, safe_json};
use watchdog_api::Problem;
use watchdog_render as render;

/// The definition of the command line.
#[must_use]
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

/// Runs the command of the process's arguments, and returns its exit code.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(code) = completion::answer(command) {
        return code;
    }
    let cli = Cli::parse_or_exit();
    let follows = matches!(cli.command, CtlCommand::Events { follow: true, .. });
    let mut output = CommandOutput { json: cli.json, terminal: Terminal::of_stdout(), to: &mut std::io::stdout() };
    match cli.run(&mut output) {
        Ok(code) => code,
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            // Standard output is one JSON document, except that a stream holds events only.
            if cli.json && !follows {
                let problem = Problem { error: error.to_string(), starting: false };
                // The error below is the one to report.
                let _ = output.line(&safe_json(&serde_json::to_string(&problem).unwrap_or_default()));
            }
            print_error(&error.message());
            ExitCode::from(&error)
        }
    }
}
