//! Makes the daemon reload its configuration, and waits for the result.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::process::Signal;
use serde::Serialize;

use crate::error::CtlError;
use watchdog_api::client::ControlClient;
use watchdog_api::{ConfigStatus, Status};
use watchdog_host::pidfd::PidFd;
use watchdog_types::Pid;

/// A reload takes milliseconds; the engine answers within 5 s or not at all.
const TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// The daemon's response to the edited file.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub(super) enum ReloadOutcome {
    Accepted,
    Rejected {
        problem: String,
    },
    /// It uses another file.
    OtherFile {
        file: String,
    },
    /// It did not answer, or could not be signalled.
    Unknown {
        problem: String,
    },
}

/// Reloads the daemon if it uses this file.
pub(super) fn reload(client: &ControlClient, file: &Path) -> ReloadOutcome {
    try_reload(client, file).unwrap_or_else(|problem| ReloadOutcome::Unknown { problem })
}

fn try_reload(client: &ControlClient, file: &Path) -> Result<ReloadOutcome, String> {
    let before = status(client)?;
    if !is_same_file(file, Path::new(&before.file)) {
        return Ok(ReloadOutcome::OtherFile { file: before.file });
    }
    signal(client.socket())?;
    let end = Instant::now() + TIMEOUT;
    while Instant::now() < end {
        sleep(PAUSE);
        match status(client)? {
            ConfigStatus { reloads, .. } if reloads == before.reloads => {}
            ConfigStatus { problem: Some(problem), .. } => return Ok(ReloadOutcome::Rejected { problem }),
            ConfigStatus { problem: None, .. } => return Ok(ReloadOutcome::Accepted),
        }
    }
    Err(format!("no result within {} s; see the daemon's log", TIMEOUT.as_secs()))
}

fn status(client: &ControlClient) -> Result<ConfigStatus, String> {
    let reply = client.get::<Status>("/v1/status").map_err(|error| CtlError::from(error).summary())?;
    let Status { config, version, .. } = reply.document;
    config.ok_or_else(|| format!("version {version} of the daemon does not report reloads"))
}

/// Sends SIGHUP to the process that listens on the socket, as the kernel reports it.
fn signal(socket: &Path) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("cannot signal the daemon: {error}");
    let stream = UnixStream::connect(socket).map_err(|error| failed(&error))?;
    let peer = socket_peercred(&stream).map_err(|error| failed(&error))?;
    let pid = Pid(peer.pid.as_raw_nonzero().get().unsigned_abs());
    let daemon = PidFd::peer(&stream, pid).map_err(|error| failed(&error))?;
    let signalled = daemon.map_or(Ok(false), |daemon| daemon.signal(Signal::HUP)).map_err(|error| failed(&error))?;
    if signalled { Ok(()) } else { Err(failed(&"it has exited")) }
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)).ok();
    real(one).is_some_and(|one| Some(one) == real(other))
}
