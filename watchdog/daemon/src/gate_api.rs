//! Launches, the queue and subagents. The kernel identifies the client: the process at the other end of the socket.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, Request as HttpRequest, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::http::{ApiError, ApiResult, json, read_json};
use super::journal::Feed;
use super::ndjson_body::NdjsonBody;
use super::request::{CancelError, EngineClient, EngineRequest, UnknownProfile};
use watchdog_api::{Cancel, LaunchRequest, LaunchUpdate, SubagentCall};
use watchdog_engine::gate::{Launch, SubagentHook};
use watchdog_host::HostError;
use watchdog_host::limits::CgroupTree;
use watchdog_host::pidfd::{PidFd, ProcessIdentity, descends};
use watchdog_host::tasks::TaskLimits;
use watchdog_types::{Bytes as Amount, FleetName, Image, Pid, ProcessId, Ticks, Uid, Viewer};

/// Does not count against the limit of requests in progress.
pub(super) const LAUNCH: &str = "/v1/launch";
/// Stored arguments of a command, and the bytes of each and of its path: the beginning identifies a program.
const ARGUMENTS: usize = 16;
const ARGUMENT_BYTES: usize = 256;
const PATH_BYTES: usize = 512;
const PRIORITIES: std::ops::RangeInclusive<i32> = -100..=100;
/// How long a response waits for its first line: a client that is granted at once wakes up once.
const FIRST_LINE_WAIT: Duration = Duration::from_millis(20);
const MAX_WAIT: Duration = Duration::from_secs(30 * 86_400);

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(super) struct ClientProcess {
    /// Its user, when it connected.
    pub(super) uid: Uid,
    /// The process that connected; `None` without a pidfd.
    pub(super) pinned: Option<PidFd>,
}

impl ClientProcess {
    /// Returns the process, once it is certain that it is the one that connected.
    fn process(&self) -> Result<(&PidFd, ProcessIdentity), ApiError> {
        let pinned = self.pinned.as_ref().ok_or_else(|| {
            let why = "cannot identify the client: it has exited, or this kernel provides no pidfd";
            ApiError::new(StatusCode::FORBIDDEN, why)
        })?;
        let gone = || ApiError::new(StatusCode::FORBIDDEN, "the process that connected has exited");
        let identity = pinned.identity()?.ok_or_else(gone)?;
        // Without SO_PEERPIDFD the pid may have been reused; and a process that changed its user is not the one that
        // connected.
        if identity.users.effective != self.uid {
            return Err(ApiError::new(StatusCode::FORBIDDEN, "the client's user changed after it connected"));
        }
        Ok((pinned, identity))
    }
}

pub(super) async fn launch(
    State(engine): State<EngineClient>,
    Extension(peer): Extension<ClientProcess>,
    request: HttpRequest,
) -> ApiResult {
    let asked: LaunchRequest = read_json(request, r#"{"path":"/usr/bin/claude","argv":["claude"]}"#).await?;
    let (pinned, launch) = candidate(&peer, asked)?;
    // SAFETY: an `Arc<OwnedFd>` keeps its descriptor open and unchanged for as long as it exists.
    let pidfd = unsafe { AsyncFd::register_with_interest(pinned.pidfd(), Interest::READABLE) }.map_err(|error| {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot watch the process: {error}"))
    })?;
    let (accepted, when_accepted) = oneshot::channel();
    let (lines, live) = mpsc::channel(1);
    // Spawned, since a handler ends with its connection, and the gate must then be informed.
    tokio::spawn(forward_updates(engine, launch, pidfd, accepted, lines));
    when_accepted
        .await
        .unwrap_or_else(|_| Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping")))?;
    let body = Body::new(NdjsonBody::stream(Feed { backlog: VecDeque::new(), live }));
    Ok(([("content-type", "application/x-ndjson"), ("connection", "close")], body).into_response())
}

/// Requests the launch and forwards updates until the decision, or until the client disconnects or the process to launch exits.
async fn forward_updates(
    engine: EngineClient,
    launch: Launch,
    pidfd: AsyncFd<Arc<OwnedFd>>,
    accepted: oneshot::Sender<Result<(), ApiError>>,
    lines: mpsc::Sender<Bytes>,
) {
    let process = launch.process;
    // Many clients at once wait for their turn, however long that takes: each would only retry.
    let asked = engine.ask_until(lines.closed(), |reply| EngineRequest::Launch(Box::new(launch), reply)).await;
    let ticket = match asked {
        Ok(Ok(ticket)) => ticket,
        refused => {
            let refusal = match refused {
                Ok(Err(no_profile)) => no_profile.into(),
                Err(timeout_error) => timeout_error.into(),
                Ok(Ok(_)) => return,
            };
            // The client may have disconnected.
            let _ = accepted.send(Err(refusal));
            return;
        }
    };
    let mut accepted = Some(accepted);
    let mut start = || {
        // If there is no receiver, that of `lines` is closed too.
        accepted.take().map(|accepted| accepted.send(Ok(()))).is_some()
    };
    let mut updates = ticket.updates;
    let soon = sleep(FIRST_LINE_WAIT);
    tokio::pin!(soon);
    let mut started = false;
    loop {
        tokio::select! {
            biased;
            changed = updates.changed() => {
                // The same process has asked again on another connection, or the daemon is stopping.
                if changed.is_err() {
                    start();
                    return;
                }
                let Some(update) = updates.borrow_and_update().clone() else { continue };
                let last = !matches!(update, LaunchUpdate::Waiting(_));
                let sent = match serde_json::to_vec(&update) {
                    Ok(line) => lines.send(line.into()).await.is_ok(),
                    Err(_) => false,
                };
                started |= start();
                if last {
                    return;
                }
                if !sent {
                    break;
                }
            }
            () = &mut soon, if !started => started = start(),
            () = lines.closed() => break,
            // Readable once the process has exited. After an error the exit would not be reported, so it counts as one.
            _ = pidfd.readable() => break,
        }
    }
    start();
    engine.send(EngineRequest::Disconnected(process, ticket.number)).await;
}

/// The process that becomes the agent, and the request to the gate.
fn candidate(peer: &ClientProcess, asked: LaunchRequest) -> Result<(PidFd, Launch), ApiError> {
    let LaunchRequest {
        profile,
        path,
        argv,
        priority,
        timeout_seconds,
        no_wait,
        memory_bytes,
        pid,
        start_time,
        ticket,
    } = asked;
    let bad = |why: &str| ApiError::new(StatusCode::BAD_REQUEST, why);
    if path.is_empty() {
        return Err(bad("path: missing; name the program to execute"));
    }
    if !PRIORITIES.contains(&priority) {
        return Err(bad("priority: must be between -100 and 100"));
    }
    let timeout = timeout_seconds
        .map(|seconds| Duration::try_from_secs_f64(seconds).ok().filter(|span| !span.is_zero()))
        .map(|span| span.map(|span| span.min(MAX_WAIT)).ok_or_else(|| bad("timeout_seconds: must be greater than 0")))
        .transpose()?;
    if memory_bytes == Some(0) {
        return Err(bad("memory_bytes: must be greater than 0"));
    }
    let named = match (pid, start_time) {
        (None, None) => None,
        (Some(pid), Some(start_time)) => Some(ProcessId { pid: Pid(pid), start_time: Ticks(start_time) }),
        _ => return Err(bad("pid and start_time: give both; a pid alone is no identity")),
    };
    let ticket = ticket.map(FleetName::new).transpose().map_err(|_| bad("ticket: not one of `fleet place`"))?;
    let (own, caller) = peer.process()?;
    let (pinned, identity) = match named {
        Some(process) if process != caller.process => descendant(peer, &caller, process)?,
        _ => (own.clone(), caller),
    };
    let cgroups = CgroupTree::host().above(identity.process)?;
    let tasks = TaskLimits::default().read(&[identity.process], &[])?.limits;
    let launch = Launch {
        process: identity.process,
        ppid: identity.ppid,
        uid: identity.users.effective,
        comm: identity.comm,
        image: image(path, argv),
        profile,
        priority,
        timeout,
        waits: !no_wait,
        memory: memory_bytes.map(Amount),
        cgroups,
        tasks,
        ticket,
    };
    Ok((pinned, launch))
}

/// A descendant of the client, of the client's own user.
fn descendant(
    peer: &ClientProcess,
    caller: &ProcessIdentity,
    process: ProcessId,
) -> Result<(PidFd, ProcessIdentity), ApiError> {
    // The same answer for a foreign process and for one that does not exist.
    let foreign = || {
        let why = format!(
            "pid {} is not a child of the calling process (or start_time does not match): a launch can be \
             requested by the process itself or by the process that forked it",
            process.pid
        );
        ApiError::new(StatusCode::FORBIDDEN, why)
    };
    let pinned = PidFd::of(process)?.ok_or_else(foreign)?;
    let identity = pinned.identity()?.filter(|found| found.process == process).ok_or_else(foreign)?;
    let owned = peer.uid == Uid::ROOT || identity.is_of(peer.uid);
    if !owned || !descends(caller.process, &identity)? {
        return Err(foreign());
    }
    Ok((pinned, identity))
}

fn image(path: String, argv: Vec<String>) -> Image {
    let mut truncated = argv.len() > ARGUMENTS;
    let mut cut = |text: String, most: usize| {
        if text.len() <= most {
            return text;
        }
        truncated = true;
        text[..text.floor_char_boundary(most)].to_owned()
    };
    let path = cut(path, PATH_BYTES);
    let argv = argv.into_iter().take(ARGUMENTS).map(|argument| cut(argument, ARGUMENT_BYTES)).collect();
    Image { path, argv, truncated, script: None }
}

pub(super) async fn queue(State(engine): State<EngineClient>, Extension(viewer): Extension<Viewer>) -> ApiResult {
    Ok(json(&engine.ask(|reply| EngineRequest::Queue(viewer, reply)).await?))
}

pub(super) async fn cancel(
    State(engine): State<EngineClient>,
    Extension(viewer): Extension<Viewer>,
    request: HttpRequest,
) -> ApiResult {
    let Cancel { pid } = read_json(request, r#"{"pid":123}"#).await?;
    Ok(json(&engine.ask(|reply| EngineRequest::Cancel(viewer, pid, reply)).await??))
}

pub(super) async fn subagent(
    State(engine): State<EngineClient>,
    Extension(peer): Extension<ClientProcess>,
    request: HttpRequest,
) -> ApiResult {
    let SubagentCall { event, call } = read_json(request, r#"{"event":"start"}"#).await?;
    let (_, caller) = peer.process()?;
    let call = SubagentHook { caller: caller.process, event, call };
    Ok(json(&engine.ask(|reply| EngineRequest::Subagent(call, reply)).await?))
}

impl From<UnknownProfile> for ApiError {
    fn from(error: UnknownProfile) -> Self {
        Self::new(StatusCode::NOT_FOUND, error.to_string())
    }
}

impl From<CancelError> for ApiError {
    fn from(error: CancelError) -> Self {
        let status = match error {
            CancelError::NotQueued(_) => StatusCode::NOT_FOUND,
            CancelError::OtherUser => StatusCode::FORBIDDEN,
        };
        Self::new(status, error.to_string())
    }
}

impl From<HostError> for ApiError {
    fn from(error: HostError) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

#[cfg(test)]
#[path = "gate_fixture.rs"]
mod fixture;
#[cfg(test)]
#[path = "gate_api_tests.rs"]
mod tests;
