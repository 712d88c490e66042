//! The control socket: HTTP over a unix socket. The kernel identifies each client (SO_PEERCRED), once for each connection.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::connection_limit::ConnectionLimiter;
use super::gate_api::{self, ClientProcess};
use super::history_writer::RunContext;
use super::http::{self, Served};
use super::metrics::{LISTENER_CONTROL, Metrics};
use super::request::EngineClient;
use super::routes::router;
use watchdog_api::{ConnectionRefused, RefusalReason, Refused};
use watchdog_files::trusted_file;
use watchdog_host::pidfd::PidFd;
use watchdog_types::{Pid, Uid, Viewer};

/// The pause after a failed accept, which usually means that descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Rejected connections whose request is awaited, and for how long.
const MAX_REJECTING: usize = 64;
const REJECT_READ_TIMEOUT: Duration = Duration::from_millis(500);
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} the control socket {path}: {source}")]
pub(super) struct SocketError {
    doing: &'static str,
    path: String,
    source: std::io::Error,
}

/// Removes the socket when it is dropped.
#[derive(Debug)]
pub(super) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlSocket {
    /// Binds the socket, for every user to connect to. Replaces a socket that is left over: the caller holds the lock of
    /// the directory, so no living daemon owns it.
    pub(super) fn bind(path: &Path) -> Result<Self, SocketError> {
        use std::os::unix::fs::PermissionsExt;
        let failed = |doing| {
            let path = path.display().to_string();
            move |source| SocketError { doing, path, source }
        };
        if trusted_file::clear(path).map_err(failed("replace"))? {
            tracing::info!("removed the control socket of a daemon that did not stop cleanly");
        }
        let listener = UnixListener::bind(path).map_err(failed("bind"))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).map_err(failed("open to all users"))?;
        Ok(Self { listener, path: path.to_owned() })
    }

    pub(super) async fn serve(
        &self,
        limiter: ConnectionLimiter,
        engine: EngineClient,
        metrics: Arc<Metrics>,
        origin: Arc<RunContext>,
    ) {
        let router = router(engine, origin);
        let threshold = Arc::new(Semaphore::new(MAX_REJECTING));
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    if let Some(stream) = admit(stream, &limiter, &router, &metrics) {
                        reject(stream, &threshold);
                    }
                }
                Err(error) => {
                    tracing::warn!("cannot accept a control connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
            // Give each new connection time to send its request: while idle it is the first to be closed.
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // It may have been removed already.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Serves a connection. Returns it when there is no room for it.
fn admit(
    stream: UnixStream,
    limiter: &ConnectionLimiter,
    router: &Router,
    metrics: &Arc<Metrics>,
) -> Option<UnixStream> {
    // A peer without credentials has disconnected already.
    let Ok(peer) = stream.peer_cred() else { return None };
    let uid = Uid(peer.uid());
    let Some(permit) = limiter.try_acquire(uid) else {
        metrics.refused(LISTENER_CONTROL);
        return Some(stream);
    };
    let pinned = peer.pid().and_then(|pid| u32::try_from(pid).ok()).and_then(|pid| {
        let found = PidFd::peer(&stream, Pid(pid));
        found.unwrap_or_else(|error| {
            tracing::debug!("cannot open a pidfd of the client: {error}");
            None
        })
    });
    let peer = ClientProcess { uid, pinned };
    let viewer = if uid == Uid::ROOT { Viewer::Root } else { Viewer::User(uid) };
    let (router, metrics) = (router.clone(), Arc::clone(metrics));
    tokio::spawn(async move {
        let served = http::serve(stream, router, permit, |request| {
            request.extensions_mut().insert(viewer);
            request.extensions_mut().insert(peer.clone());
            // Launches wait for long, so they have no part in the limit of requests in progress.
            request.uri().path() != gate_api::LAUNCH
        });
        if served.await == Served::Evicted {
            metrics.evicted(LISTENER_CONTROL);
        }
    });
    None
}

/// Answers that there is no room. A client that is still sending when the connection is closed may see a broken connection
/// instead, so its request is awaited, for a limited number of connections.
fn reject(stream: UnixStream, threshold: &Arc<Semaphore>) {
    // The empty buffer of a new socket has room for the answer; if not, the client gets none.
    let answer = |stream: &UnixStream| drop(stream.try_write(rejection().as_bytes()));
    let Ok(permit) = Arc::clone(threshold).try_acquire_owned() else {
        answer(&stream);
        return;
    };
    tokio::spawn(async move {
        let mut request = [0; 4096];
        if tokio::time::timeout(REJECT_READ_TIMEOUT, stream.readable()).await.is_ok() {
            let _ = stream.try_read(&mut request);
        }
        answer(&stream);
        drop(permit);
    });
}

pub(super) fn rejection() -> String {
    let refused = Refused {
        granted: false,
        reason: RefusalReason::QueueFull,
        detail: "too many connections to the daemon are open".to_owned(),
        retry_after_seconds: Some(10.0),
        bound: "[gate] max_queue".to_owned(),
        holders: Vec::new(),
    };
    let error = "too many connections are open: close some, and try again".to_owned();
    // Strings and numbers always serialise.
    let body = serde_json::to_string(&ConnectionRefused { error, refused }).unwrap_or_default();
    let length = body.len();
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
