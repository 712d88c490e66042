use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use super::framing::ResponseHead;
use crate::{Problem, Refused};

/// Pause before the next request to a daemon that is starting.
const STARTING_PAUSE: Duration = Duration::from_millis(200);
const START: &str = "Start the daemon with `sudo systemctl start watchdogd`, or without systemd with `sudo watchdogd`.";
const OTHER_SOCKET: &str = "If its socket is elsewhere, name it with --socket or WATCHDOG_SOCKET.";

/// How far a failed request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestProgress {
    /// There is no connection, or none to a daemon.
    NotConnected,
    /// The connection exists, and no response came within the time limit.
    NoResponse,
    /// The daemon accepted the request and closed the connection before the response was complete.
    Disconnected,
}

/// Why a request failed. The texts are for users: a sentence, and where it helps the next step on a second line.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No daemon answers at the socket, or the connection broke.
    #[error("cannot reach the daemon at {}: {why}\n{hint}", socket.display())]
    Unreachable {
        /// The path of the socket.
        socket: PathBuf,
        /// The cause.
        why: String,
        /// The next step.
        hint: String,
        /// How far the request got.
        progress: RequestProgress,
    },
    /// Status 429 or 503: the same request may succeed later.
    #[error("refused for now: {why}\nTry again later.")]
    Busy {
        /// The reason.
        why: String,
        /// The same as the refusal of a launch, if the daemon sent one.
        refused: Option<Box<Refused>>,
        /// Pause that the daemon asks for.
        retry_after: Option<Duration>,
    },
    /// Status 401 or 403, or this user cannot open the socket.
    #[error("not permitted: {0}")]
    Forbidden(String),
    /// Status 404.
    #[error("{0}")]
    NotFound(String),
    /// Status 400, or the request is not valid JSON.
    #[error("{0}")]
    BadRequest(String),
    /// Any other status.
    #[error("{0}")]
    Failed(String),
    /// The response is not the expected document.
    #[error(
        "invalid response to {request}: {why}\n\
         watchdogctl and the daemon may differ in version; see `watchdogctl doctor`."
    )]
    InvalidResponse {
        /// Method and path.
        request: String,
        /// The cause.
        why: String,
    },
}

impl ClientError {
    pub(super) fn from_response(request: &str, head: &ResponseHead, body: &[u8]) -> Self {
        let ResponseHead { status, retry_after, .. } = *head;
        let Problem { error: reason, starting } = serde_json::from_slice(body).unwrap_or_else(|_| {
            let error =
                format!("the daemon answered {request} with {status} {} and no reason; see its log", head.reason);
            Problem { error, starting: false }
        });
        match status {
            401 | 403 => Self::Forbidden(reason),
            400 => Self::BadRequest(reason),
            404 => Self::NotFound(reason),
            429 | 503 => {
                let retry_after = retry_after.or(starting.then_some(STARTING_PAUSE));
                Self::Busy { why: reason, refused: serde_json::from_slice(body).ok(), retry_after }
            }
            _ => Self::Failed(reason),
        }
    }

    pub(super) fn connect(socket: &Path, error: &io::Error) -> Self {
        let start = format!("{START} {OTHER_SOCKET}");
        let unreachable = |why: String, hint: String| Self::Unreachable {
            socket: socket.to_owned(),
            why,
            hint,
            progress: RequestProgress::NotConnected,
        };
        match error.kind() {
            io::ErrorKind::NotFound => unreachable("no such file".into(), start),
            io::ErrorKind::PermissionDenied => Self::Forbidden(format!(
                "this user cannot open the socket {}\nUse sudo, or a user with access to the socket and its directory.",
                socket.display()
            )),
            io::ErrorKind::ConnectionRefused => match socket.metadata() {
                Ok(found) if !found.file_type().is_socket() => unreachable("not a socket".into(), OTHER_SOCKET.into()),
                _ => unreachable("connection refused: no daemon is listening".into(), start),
            },
            _ => unreachable(error.to_string(), start),
        }
    }

    pub(super) fn timeout(socket: &Path, limit: Duration) -> Self {
        Self::Unreachable {
            socket: socket.to_owned(),
            why: format!("no response within {limit:?}"),
            hint: "Check the daemon's log and, with `ps`, its state.".into(),
            progress: RequestProgress::NoResponse,
        }
    }

    pub(super) fn not_http(socket: &Path) -> Self {
        Self::Unreachable {
            socket: socket.to_owned(),
            why: "the response is not HTTP".into(),
            hint: OTHER_SOCKET.into(),
            progress: RequestProgress::NotConnected,
        }
    }

    pub(super) fn truncated(socket: &Path, cause: &str) -> Self {
        Self::Unreachable {
            socket: socket.to_owned(),
            why: format!("the response is incomplete: {cause}"),
            hint: "Check the daemon's log (`journalctl -u agent-watchdog`), then try again.".into(),
            progress: RequestProgress::Disconnected,
        }
    }

    pub(super) fn stream_ended(socket: &Path) -> Self {
        Self::Unreachable {
            socket: socket.to_owned(),
            why: "the daemon ended the stream".into(),
            hint: "The daemon was stopped or restarted; run the command again.".into(),
            progress: RequestProgress::Disconnected,
        }
    }
}
