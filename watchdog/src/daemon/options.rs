//! The command line of `watchdogd`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, ValueEnum};

/// Where the configuration is looked for when none is named. It need not exist.
pub(super) const DEFAULT_CONFIG: &str = "/etc/agent-watchdog/config.toml";

/// Watches the process trees of AI agents: which process belongs to which agent, what it costs in memory, and what was
/// left behind.
#[derive(Clone, Debug, Parser)]
#[command(name = "watchdogd", version)]
pub struct Options {
    /// Configuration file [default: /etc/agent-watchdog/config.toml, if it exists].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the control socket and the lock are.
    #[arg(long, value_name = "DIR", default_value = "/run/agent-watchdog")]
    pub runtime_dir: PathBuf,
    /// Where what outlives the daemon is kept: the history.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/agent-watchdog")]
    pub state_dir: PathBuf,
    /// Where metrics and /healthz are served, or "off"; goes before the configuration's `listen`.
    #[arg(long, value_name = "ADDR|off")]
    pub listen: Option<Listen>,
    /// Write everything that the engine is told into FILE, which must be new or empty, for `watchdogctl replay`. It is
    /// readable by its owner only, and of arguments it holds nothing but program, script and the words by which programs
    /// are told apart.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Record all arguments as they are: prompts and secrets stand there.
    #[arg(long, requires = "record")]
    pub record_argv: bool,
    /// Remove everything that a daemon with this runtime directory left in the kernel, and exit. It must not run any more.
    #[arg(long, conflicts_with_all = ["record", "listen", "config"])]
    pub unpin: bool,
    /// How the log on stderr is written. What is logged is set by RUST_LOG.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub foreground_log: LogFormat,
}

/// Where metrics are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Nowhere.
    Off,
    /// On this address.
    At(SocketAddr),
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
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
    fn the_command_line_is_consistent() {
        <Options as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn listen_takes_an_address_or_off_and_nothing_else() {
        assert_eq!("off".parse(), Ok(Listen::Off));
        assert_eq!("[::1]:80".parse(), Ok(Listen::At(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 80)))));
        for bad in ["", "9719", "localhost", "127.0.0.1", "127.0.0.1:99999", "OFF"] {
            assert!(bad.parse::<Listen>().is_err(), "{bad} was taken");
        }
    }
}
