//! The command line of `watchdogd`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, ValueEnum};

pub(super) const DEFAULT_CONFIG: &str = "/etc/agent-watchdog/config.toml";

/// Track the process trees of AI agents: which process belongs to which agent, how much memory it uses, and what was left
/// behind
#[derive(Clone, Debug, Parser)]
#[command(name = "watchdogd", version)]
pub struct WatchdogdOptions {
    /// Configuration file [default: /etc/agent-watchdog/config.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory of the control socket and the lock
    #[arg(long, value_name = "DIR", default_value = "/run/agent-watchdog")]
    pub runtime_dir: PathBuf,
    /// Directory of state that outlives the daemon, such as the history
    #[arg(long, value_name = "DIR", default_value = "/var/lib/agent-watchdog")]
    pub state_dir: PathBuf,
    /// Address of /metrics and /healthz, or "off"; overrides `listen` of the configuration
    #[arg(long, value_name = "ADDR|off")]
    pub listen: Option<Listen>,
    /// Record all inputs of the engine to FILE for `watchdogctl replay`. FILE must be new or empty, and becomes readable by
    /// its owner only. Of arguments it contains only program, script and the words that identify programs
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Record all arguments unchanged, including prompts and secrets
    #[arg(long, requires = "record")]
    pub record_argv: bool,
    /// Remove everything that a daemon with this runtime directory left in the kernel, and exit. The daemon must not be
    /// running
    #[arg(long, conflicts_with_all = ["record", "listen", "config"])]
    pub unpin: bool,
    /// Format of the log on stderr; RUST_LOG sets its level
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub foreground_log: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    Off,
    At(SocketAddr),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    /// One JSON object per line.
    Json,
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        text.parse().map(Self::At).map_err(|_| "expected ADDRESS:PORT, such as 127.0.0.1:9719, or off".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        <WatchdogdOptions as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn listen_takes_address_or_off() {
        assert_eq!("off".parse(), Ok(Listen::Off));
        assert_eq!("[::1]:80".parse(), Ok(Listen::At(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 80)))));
        for bad in ["", "9719", "localhost", "127.0.0.1", "127.0.0.1:99999", "OFF"] {
            assert!(bad.parse::<Listen>().is_err(), "{bad} was taken");
        }
    }
}
