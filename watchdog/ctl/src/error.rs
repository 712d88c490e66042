//! Errors of all commands, with their exit codes.

use std::io;
use std::process::ExitCode;

use thiserror::Error;

use crate::render::escape;
use watchdog_api::client::ClientError;

/// Why a command failed. The first line of the text is the error, the others are the next step.
#[derive(Debug, Error)]
pub(crate) enum CtlError {
    #[error("{0}")]
    Failed(String),
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{0}")]
    RefusedForNow(String),
    /// The command to launch exists, and cannot be executed.
    #[error("{0}")]
    NotExecutable(String),
    /// The command to launch does not exist.
    #[error("{0}")]
    CommandNotFound(String),
    #[error("cannot write the output: {0}")]
    Output(#[source] io::Error),
}

impl CtlError {
    /// The exit code of the contract.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Client(ClientError::BadRequest(_)) => 2,
            Self::Client(ClientError::Unreachable { .. }) => 69,
            Self::RefusedForNow(_) | Self::Client(ClientError::Busy { .. }) => 75,
            Self::Client(ClientError::Forbidden(_)) => 77,
            Self::NotExecutable(_) => 126,
            Self::CommandNotFound(_) => 127,
            Self::Failed(_)
            | Self::Output(_)
            | Self::Client(ClientError::NotFound(_) | ClientError::Failed(_) | ClientError::InvalidResponse { .. }) => {
                1
            }
        }
    }

    /// The reader closed the pipe, as `head` does. This is no error.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The first line, without the next step.
    pub(crate) fn summary(&self) -> String {
        self.to_string().lines().next().unwrap_or_default().to_owned()
    }

    /// The text for standard error. Escaped: parts of it come from the daemon.
    pub(crate) fn message(&self) -> String {
        let text = self.to_string();
        let lines: Vec<_> = text.lines().map(escape).collect();
        format!("watchdogctl: {}\n", lines.join("\n  "))
    }
}

impl From<serde_json::Error> for CtlError {
    fn from(error: serde_json::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<&CtlError> for ExitCode {
    fn from(error: &CtlError) -> Self {
        Self::from(error.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use watchdog_api::client::RequestProgress;

    #[test]
    fn message_is_indented_and_escaped() {
        let error = CtlError::from(ClientError::Unreachable {
            socket: "/run/agent-watchdog/control.sock".into(),
            why: "no such file".into(),
            hint: "Start the daemon.".into(),
            progress: RequestProgress::NotConnected,
        });
        insta::assert_snapshot!(error.message(), @r"
        watchdogctl: cannot reach the daemon at /run/agent-watchdog/control.sock: no such file
          Start the daemon.
        ");
        let error = CtlError::Failed("no process \x1b[2J is known".into());
        insta::assert_snapshot!(error.message(), @r"watchdogctl: no process \u{1b}[2J is known");
    }
}
