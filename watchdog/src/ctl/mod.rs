//! `watchdogctl`: what the daemon knows, for a person at a terminal or a script.
//!
//! [`cli`] reads the command line, each command has a file of its own, [`client`] asks the daemon, [`show`] makes text
//! of the answer, and [`failure`] says what went wrong and with which exit code.

mod act;
mod actions;
mod adopt;
mod cli;
mod client;
mod config;
mod doctor;
mod end;
mod events;
mod explain;
mod failure;
mod findings;
mod history;
mod hook;
mod launch;
mod output;
mod plan;
mod postmortem;
mod queue;
mod reap;
mod receipt;
mod replay;
mod show;
mod status;
mod statusline;
mod thaw;
mod tree;

use std::process::ExitCode;

use clap::Parser;

use self::cli::{Cli, Command, ConfigCommand};
use self::client::Client;
use self::failure::Failure;
use self::output::{Output, complain};
use self::show::{Screen, safe_json};
use crate::api::Problem;

/// The whole program: arguments in, text out, and the exit code of the contract.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let follows = matches!(cli.command, Command::Events { follow: true, .. });
    let mut output = Output { json: cli.json, screen: Screen::of_stdout(), to: &mut std::io::stdout() };
    match run(&cli, &mut output) {
        Ok(code) => code,
        Err(failure) if failure.is_closed_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            // Standard output is one JSON document in every case, but a stream holds events only.
            if cli.json && !follows {
                let problem =
                    serde_json::to_string(&Problem { error: failure.to_string(), starting: false }).unwrap_or_default();
                // The failure below is the one to tell.
                let _ = output.line(&safe_json(&problem));
            }
            complain(&failure.message());
            ExitCode::from(&failure)
        }
    }
}

fn run(cli: &Cli, output: &mut Output<'_>) -> Result<ExitCode, Failure> {
    let client = Client::new(cli.socket.clone());
    match &cli.command {
        Command::Status => wait(status::run(&client, output))?,
        Command::Tree { session } => wait(tree::run(&client, *session, output))?,
        Command::Events { follow: true, since } => wait(events::follow(&client, *since, output))?,
        Command::Events { follow: false, since } => wait(events::run(&client, *since, output))?,
        Command::Findings { all } => wait(findings::run(&client, *all, output))?,
        Command::History { since, session, host, state_dir } => {
            let wanted = history::Wanted { since: *since, session: *session, host: *host };
            return wait(history::run(&client, state_dir, wanted, output));
        }
        Command::Postmortem { boot, state_dir } => wait(postmortem::run(&client, state_dir, *boot, output))?,
        Command::Queue(options) => wait(queue::run(&client, options, output))?,
        Command::Plan(options) => return plan::run(&client, options, output),
        Command::Hook(hook) => hook::run(client, hook, output)?,
        Command::Statusline => statusline::run(client, output)?,
        Command::Launch(options) => return Ok(launch::run(&client, cli.json, options)),
        Command::Reap(options) => return wait(reap::run(&client, options, output)),
        Command::End(options) => return wait(end::run(&client, options, output)),
        Command::Thaw(options) => wait(thaw::run(&client, options, output))?,
        Command::Actions(options) => wait(actions::run(&client, options, output))?,
        Command::Adopt { target, undo } => wait(adopt::run(&client, *target, *undo, output))?,
        Command::Explain { target } => wait(explain::run(&client, *target, output))?,
        Command::Doctor => return wait(doctor::run(&client, crate::host::capability::probe(), output)),
        Command::Config(ConfigCommand::Check { file }) => return config::check(file, output),
        Command::Replay { file } => replay::run(file, output)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Does what has to wait for the daemon, on this thread. Nothing is left of it afterwards: no thread, no descriptor.
fn wait<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| Failure::No(format!("cannot wait for input and output on this host: {error}")))?;
    runtime.block_on(work)
}
