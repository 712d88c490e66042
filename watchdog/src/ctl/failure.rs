//! What can go wrong, what a person should do about it, and the exit code that a script sees.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use thiserror::Error;

use super::show::visible;
use crate::api::Refused;

/// Why a command did not do what it was asked.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// The answer is no: the daemon, or a check on this side, says so in a full sentence.
    #[error("{0}")]
    No(String),
    /// The daemon knows nothing of what was asked for, and says so in a full sentence.
    #[error("{0}")]
    Unknown(String),
    /// The daemon answered, but not in a way that can be understood.
    #[error(
        "the daemon's answer to {request} cannot be used: {why}\n\
         watchdogctl is version {}; `watchdogctl doctor` shows the daemon's.",
        env!("CARGO_PKG_VERSION")
    )]
    Answer {
        /// Method and path.
        request: String,
        /// What is wrong with it.
        why: String,
    },
    /// What was given on the command line cannot be meant.
    #[error("{0}")]
    Usage(String),
    /// There is no daemon at the socket, or it went away.
    #[error("the daemon is not reachable at {}: {why}\n{next}", socket.display())]
    Unreachable {
        /// The path that was tried.
        socket: PathBuf,
        /// What was found there.
        why: String,
        /// What to do about it.
        next: String,
        /// It took the request, and went away before its answer was complete.
        was_there: bool,
    },
    /// The daemon is busy: the same request may succeed later.
    #[error("refused for now: {why}\nTry again later.")]
    Busy {
        /// What it says.
        why: String,
        /// The same as the refusal of a launch, where it said that as well.
        refused: Option<Box<Refused>>,
        /// When the daemon wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// This user may not do that.
    #[error("not permitted: {0}")]
    Forbidden(String),
    /// The command that was to be started is there, and cannot be executed.
    #[error("{0}")]
    NotExecutable(String),
    /// The command that was to be started is not there.
    #[error("{0}")]
    NotFound(String),
    /// Standard output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[source] io::Error),
}

impl Failure {
    /// The exit code, by the contract.
    #[must_use]
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::No(_) | Self::Unknown(_) | Self::Answer { .. } | Self::Output(_) => 1,
            Self::Usage(_) => 2,
            Self::Unreachable { .. } => 69,
            Self::Busy { .. } => 75,
            Self::Forbidden(_) => 77,
            Self::NotExecutable(_) => 126,
            Self::NotFound(_) => 127,
        }
    }

    /// Whoever read the output has seen enough, as `head` does: nothing went wrong.
    #[must_use]
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The message on standard error. Parts of it come from the other end of the socket.
    #[must_use]
    pub(crate) fn message(&self) -> String {
        let text = self.to_string();
        let lines: Vec<_> = text.lines().map(visible).collect();
        format!("watchdogctl: {}\n", lines.join("\n  "))
    }
}

impl From<&Failure> for ExitCode {
    fn from(failure: &Failure) -> Self {
        Self::from(failure.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_next_step_and_obeys_nobody() {
        let failure = Failure::Unreachable {
            socket: "/run/agent-watchdog/control.sock".into(),
            why: "there is no such file".into(),
            next: "Start the daemon.".into(),
            was_there: false,
        };
        insta::assert_snapshot!(failure.message(), @r"
        watchdogctl: the daemon is not reachable at /run/agent-watchdog/control.sock: there is no such file
          Start the daemon.
        ");
        let failure = Failure::No("no process \x1b[2J is known".into());
        insta::assert_snapshot!(failure.message(), @r"watchdogctl: no process \u{1b}[2J is known");
    }
}
