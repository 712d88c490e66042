//! `config`: check, show and edit the daemon's configuration.

mod config_check;
mod config_edit;
mod config_reload;
mod config_set;
mod config_show;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use self::config_edit::KeyPath;
use crate::error::CtlError;
use crate::output::CommandOutput;
use watchdog_api::Status;
use watchdog_api::client::ControlClient;

/// The daemon's default.
const DEFAULT_FILE: &str = "/etc/agent-watchdog/config.toml";

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a configuration file; report each error with file, line, key and allowed values
    #[command(after_help = "\
Examples:
  watchdogctl config check /etc/agent-watchdog/config.toml && sudo kill -HUP \"$(pidof watchdogd)\"
  watchdogctl config check new.toml --json | jq -r '.errors[]'")]
    Check {
        /// The configuration file
        file: PathBuf,
    },
    /// Set a key of the configuration file, and reload the daemon
    #[command(after_help = "\
The value is TOML, or else a string: true, 20, 30s, 10%, '[\"*/postgres\"]'. Comments and layout of the file are kept.
The whole file is checked first: if it would be invalid, nothing is written. The exit code is 1 if the new value is
invalid, or if the daemon rejects the file.

Examples:
  sudo watchdogctl config set actions.enforce true
  sudo watchdogctl config set gate.max_sessions 20
  sudo watchdogctl config set orphans.keep '[\"*/my-daemon\"]'
  sudo watchdogctl config set profile.claude-code.max_memory 8GiB")]
    Set {
        /// The key: TABLE.KEY, or profile.NAME.KEY
        key: KeyPath,
        /// The value
        value: String,
        #[command(flatten)]
        file: ConfigFileArg,
    },
    /// Remove a key from the configuration file, so that its default applies, and reload the daemon
    #[command(after_help = "\
Example:
  sudo watchdogctl config unset gate.max_sessions")]
    Unset {
        /// The key: TABLE.KEY, or profile.NAME.KEY
        key: KeyPath,
        #[command(flatten)]
        file: ConfigFileArg,
    },
    /// Print the value of a key, or else its default
    #[command(after_help = "\
The exit code is 1 if the key is not set and has no default.

Example:
  watchdogctl config get actions.enforce")]
    Get {
        /// The key: TABLE.KEY, or profile.NAME.KEY
        key: KeyPath,
        #[command(flatten)]
        file: ConfigFileArg,
    },
    /// Print all keys with their values and defaults
    Show {
        #[command(flatten)]
        file: ConfigFileArg,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ConfigFileArg {
    /// The configuration file [default: the one that the daemon uses, or else /etc/agent-watchdog/config.toml]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl ConfigFileArg {
    fn path(&self, client: &ControlClient) -> PathBuf {
        let of_daemon = || client.get::<Status>("/v1/status").ok()?.document.config.map(|config| config.file.into());
        self.file.clone().or_else(of_daemon).unwrap_or_else(|| DEFAULT_FILE.into())
    }
}

pub(crate) fn run(
    client: &ControlClient,
    command: &ConfigCommand,
    output: &mut CommandOutput<'_>,
) -> Result<ExitCode, CtlError> {
    match command {
        ConfigCommand::Check { file } => config_check::run(file, output),
        ConfigCommand::Set { key, value, file } => {
            config_set::run(client, &file.path(client), key, Some(value), output)
        }
        ConfigCommand::Unset { key, file } => config_set::run(client, &file.path(client), key, None, output),
        ConfigCommand::Get { key, file } => config_show::get(&file.path(client), key, output),
        ConfigCommand::Show { file } => config_show::show(&file.path(client), output).map(|()| ExitCode::SUCCESS),
    }
}

/// The file's content; empty if it does not exist.
fn read(file: &Path) -> Result<String, CtlError> {
    match std::fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(|error| CtlError::Failed(format!("cannot read {}: {error}", file.display()))),
    }
}
