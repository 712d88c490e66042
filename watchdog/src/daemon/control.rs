//! The control API: HTTP over the unix socket. Who asks is told by the kernel (SO_PEERCRED), once for each connection.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Extension, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use serde::Deserialize;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::act_api;
use super::door::Door;
use super::gate_api::{self, Peer};
use super::historian::Origin;
use super::http::{self, Refusal, Served, json};
use super::lines::Lines;
use super::metrics::{DOOR_CONTROL, Metrics};
use super::past;
use super::readers::{Explainers, Readers};
use super::request::{Asker, NoAnswer, Request};
use super::since;
use crate::engine::deaths;
use crate::engine::id::{Pid, SessionId, Uid};
use crate::engine::view::Viewer;
use crate::host::pinned::Pinned;
use crate::trusted_file;

/// Most bytes of a request's body. The longest that there is names a command, but for those that have a bound of their own.
const BODY: usize = 64 * 1024;
/// How long to leave the listener alone after it failed, which is to say, when descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections that are turned away whose request is waited for, and for how long.
const TURNED_AWAY: usize = 64;
const TURNED_AWAY_PAUSE: Duration = Duration::from_millis(500);
/// What is said to a connection for which there is no room. It may have come to ask for a launch: then this is a refusal.
const NO_ROOM: &str = r#"{"error":"too many connections are open: close some, and try again","granted":false,"reason":"queue_full","detail":"too many connections to the daemon are open","retry_after_seconds":10,"bound":"[gate] max_queue","holders":[]}"#;
/// The OpenAPI document of what follows.
const OPENAPI: &str = include_str!("../../../docs/openapi.json");
/// What is said to whoever asks for something else.
const PATHS: &str = "GET /v1/status, GET /v1/tree[?session=ID], GET /v1/findings[?all=true], \
GET /v1/explain?pid=N|session=N, GET /v1/events[?since=30s][&follow=true], \
GET /v1/history[?since=24h][&session=ID], GET /v1/postmortem[?boot=-1], POST /v1/adopt, \
POST /v1/reap, POST /v1/end, POST /v1/thaw, GET /v1/actions[?id=N], \
POST /v1/launch, GET /v1/queue, POST /v1/queue/cancel, POST /v1/subagent, GET /v1/openapi.json";

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} the control socket {path}: {source}")]
pub(super) struct SocketError {
    doing: &'static str,
    path: String,
    source: std::io::Error,
}

/// The control socket; removed when this is dropped.
#[derive(Debug)]
pub(super) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlSocket {
    /// Binds the socket, for every user to connect to. What a dead daemon left at its place is removed: the caller holds
    /// the lock of the directory, so it cannot be a living one's.
    pub(super) fn bind(path: &Path) -> Result<Self, SocketError> {
        use std::os::unix::fs::PermissionsExt;
        let failed = |doing| {
            let path = path.display().to_string();
            move |source| SocketError { doing, path, source }
        };
        if trusted_file::clear(path).map_err(failed("replace"))? {
            tracing::info!("removed the control socket of a daemon that did not end cleanly");
        }
        let listener = UnixListener::bind(path).map_err(failed("bind"))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).map_err(failed("open to all users"))?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Serves whoever comes through the door, for ever.
    pub(super) async fn serve(&self, door: Door, asker: Asker, metrics: Arc<Metrics>, origin: Arc<Origin>) {
        let router = router(asker, origin);
        let threshold = Arc::new(Semaphore::new(TURNED_AWAY));
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    if let Some(stream) = admit(stream, &door, &router, &metrics) {
                        turn_away(stream, &threshold);
                    }
                }
                Err(error) => {
                    tracing::warn!("cannot accept a control connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
            // The request of a connection is read before many more are let in, which may take its place while it is idle.
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // It may have been removed from outside; then there is nothing left to do.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Lets a connection in, and serves it. Gives it back when there is no room for it.
fn admit(stream: UnixStream, door: &Door, router: &Router, metrics: &Arc<Metrics>) -> Option<UnixStream> {
    // A peer without credentials is gone already.
    let Ok(peer) = stream.peer_cred() else { return None };
    let uid = Uid(peer.uid());
    let Some(place) = door.enter(uid) else {
        metrics.refused(DOOR_CONTROL);
        return Some(stream);
    };
    let pinned = peer.pid().and_then(|pid| u32::try_from(pid).ok()).and_then(|pid| {
        let found = Pinned::peer(&stream, Pid(pid));
        found.unwrap_or_else(|error| {
            tracing::debug!("who connects cannot be held: {error}");
            None
        })
    });
    let peer = Peer { uid, pinned };
    let viewer = if uid == Uid::ROOT { Viewer::Root } else { Viewer::User(uid) };
    let (router, metrics) = (router.clone(), Arc::clone(metrics));
    tokio::spawn(async move {
        let served = http::serve(stream, router, place, |request| {
            request.extensions_mut().insert(viewer);
            request.extensions_mut().insert(peer.clone());
            // Launches wait for long, and do not keep others from being served.
            request.uri().path() != gate_api::LAUNCH
        });
        if served.await == Served::Evicted {
            metrics.evicted(DOOR_CONTROL);
        }
    });
    None
}

/// Says that there is no room. A client that is still sending when the connection ends may see nothing but that it broke off, so
/// its request is waited for, as long as not too many are turned away at once.
fn turn_away(stream: UnixStream, threshold: &Arc<Semaphore>) {
    // A fresh socket's buffer takes this at once, or the client does without.
    let say = |stream: &UnixStream| drop(stream.try_write(no_room().as_bytes()));
    let Ok(place) = Arc::clone(threshold).try_acquire_owned() else {
        say(&stream);
        return;
    };
    tokio::spawn(async move {
        let mut request = [0; 4096];
        if tokio::time::timeout(TURNED_AWAY_PAUSE, stream.readable()).await.is_ok() {
            let _ = stream.try_read(&mut request);
        }
        say(&stream);
        drop(place);
    });
}

fn no_room() -> String {
    let length = NO_ROOM.len();
    let head =
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n";
    format!("{head}content-length: {length}\r\n\r\n{NO_ROOM}")
}

/// Every route with its method; the OpenAPI document holds the same.
fn routes() -> [(&'static str, &'static str, MethodRouter<Asker>); 17] {
    let longer = || DefaultBodyLimit::max(act_api::BODY);
    [
        ("get", "/v1/status", get(status)),
        ("get", "/v1/tree", get(tree)),
        ("get", "/v1/findings", get(findings)),
        ("get", "/v1/events", get(events)),
        ("get", "/v1/explain", get(explain)),
        ("get", "/v1/history", get(past::history)),
        ("get", "/v1/postmortem", get(past::postmortem)),
        ("post", "/v1/adopt", post(act_api::adopt)),
        ("post", "/v1/reap", post(act_api::reap).layer(longer())),
        ("post", "/v1/end", post(act_api::end).layer(longer())),
        ("post", "/v1/thaw", post(act_api::thaw)),
        ("get", "/v1/actions", get(act_api::actions)),
        ("post", gate_api::LAUNCH, post(gate_api::launch)),
        ("get", "/v1/queue", get(gate_api::queue)),
        ("post", "/v1/queue/cancel", post(gate_api::cancel)),
        ("post", "/v1/subagent", post(gate_api::subagent)),
        ("get", "/v1/openapi.json", get(openapi)),
    ]
}

fn router(asker: Asker, origin: Arc<Origin>) -> Router {
    let routed = routes().into_iter().fold(Router::new(), |router, (_, path, method)| router.route(path, method));
    routed
        .method_not_allowed_fallback(|| async {
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, format!("not with this method; there are: {PATHS}"))
        })
        .fallback(|| async { Refusal::new(StatusCode::NOT_FOUND, format!("no such path; there are: {PATHS}")) })
        .layer(DefaultBodyLimit::max(BODY))
        .layer(Extension(origin))
        .layer(Extension(Readers::new()))
        .layer(Extension(Explainers(Readers::new())))
        .with_state(asker)
}

type Answer = Result<Response, Refusal>;

/// The document that describes this API.
async fn openapi() -> Response {
    ([("content-type", "application/json")], OPENAPI).into_response()
}

async fn status(State(asker): State<Asker>, Extension(viewer): Extension<Viewer>) -> Answer {
    Ok(json(&asker.ask(|reply| Request::Status(viewer, reply)).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TreeQuery {
    session: Option<u64>,
}

async fn tree(
    State(asker): State<Asker>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<TreeQuery>, QueryRejection>,
) -> Answer {
    let Query(query) = query?;
    let mut tree = asker.ask(|reply| Request::Tree(viewer, reply)).await?;
    if let Some(session) = query.session {
        tree.sessions.retain(|one| one.id == session);
        if tree.sessions.is_empty() {
            return Err(Refusal::new(StatusCode::NOT_FOUND, format!("there is no session {session}")));
        }
    }
    Ok(json(&tree))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FindingsQuery {
    #[serde(default)]
    all: bool,
}

async fn findings(
    State(asker): State<Asker>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<FindingsQuery>, QueryRejection>,
) -> Answer {
    let Query(FindingsQuery { all }) = query?;
    Ok(json(&asker.ask(|reply| Request::Findings { viewer, all, reply }).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    since: Option<String>,
    #[serde(default)]
    follow: bool,
}

async fn events(
    State(asker): State<Asker>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Answer {
    let Query(EventsQuery { since, follow }) = query?;
    let since = since
        .map(|text| since::parse(&text))
        .transpose()
        .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))?;
    let (kind, lines) = if follow {
        let feed = asker.ask(|reply| Request::Follow(viewer, since, reply)).await?;
        ("application/x-ndjson", Lines::stream(feed))
    } else {
        let events = asker.ask(|reply| Request::Events(viewer, since, reply)).await?;
        ("application/json", Lines::document(events))
    };
    Ok(([("content-type", kind)], Body::new(lines)).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainQuery {
    pid: Option<u32>,
    session: Option<u64>,
}

async fn explain(
    State(asker): State<Asker>,
    Extension(Explainers(explainers)): Extension<Explainers>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<ExplainQuery>, QueryRejection>,
) -> Answer {
    let (who, unknown) = match query?.0 {
        ExplainQuery { pid: Some(pid), session: None } => {
            let unknown = "it was in no session, or died too long ago: `watchdogctl tree` lists the living";
            (deaths::Subject::Pid(Pid(pid)), format!("nothing is known of a process {pid}: {unknown}"))
        }
        ExplainQuery { pid: None, session: Some(session) } => {
            let unknown = "there was none, or it ended too long ago: `watchdogctl tree` lists those there are";
            (
                deaths::Subject::Session(SessionId(session)),
                format!("nothing is known of a session {session}: {unknown}"),
            )
        }
        ExplainQuery { .. } => {
            let expected = "name one process or one session: /v1/explain?pid=123 or /v1/explain?session=4";
            return Err(Refusal::new(StatusCode::BAD_REQUEST, expected));
        }
    };
    let _explaining = explainers.enter(viewer).await?;
    match asker.ask(|reply| Request::Explain(viewer, who, reply)).await? {
        Some(explanation) => Ok(json(&explanation)),
        None => Err(Refusal::new(StatusCode::NOT_FOUND, unknown)),
    }
}

impl From<NoAnswer> for Refusal {
    fn from(error: NoAnswer) -> Self {
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string());
        if error == NoAnswer::Starting { refusal.starting() } else { refusal }
    }
}

impl From<QueryRejection> for Refusal {
    fn from(error: QueryRejection) -> Self {
        Self::new(error.status(), error.body_text())
    }
}

impl From<BytesRejection> for Refusal {
    fn from(error: BytesRejection) -> Self {
        Self::new(error.status(), error.body_text())
    }
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "openapi_schema.rs"]
mod openapi_schema;

#[cfg(test)]
#[path = "openapi_tests.rs"]
mod openapi_tests;

#[cfg(test)]
#[path = "act_api_tests.rs"]
mod act_api_tests;
