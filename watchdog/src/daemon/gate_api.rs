//! The gate's part of the control API: launches, the queue, and subagents. Who asks is the process at the other end of the socket,
//! whatever it says.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, Request as HttpRequest, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::http::{Refusal, json, read_json};
use super::journal::Feed;
use super::lines::Lines;
use super::request::{Asker, CancelError, NoProfile, Request};
use crate::api::{Cancel, LaunchRequest, LaunchUpdate, SubagentCall};
use crate::engine::gate::{Launch, Subagent};
use crate::engine::id::{Bytes as Amount, Pid, ProcessId, Ticks, Uid};
use crate::engine::input::Image;
use crate::engine::view::Viewer;
use crate::host::HostError;
use crate::host::limits::Cgroups;
use crate::host::pinned::{Identity, Pinned, descends};

/// The path of [`launch`], which has a door of its own.
pub(super) const LAUNCH: &str = "/v1/launch";
/// Arguments of a command that are kept, and bytes of each, and of its path: what it is stands at the beginning.
const ARGUMENTS: usize = 16;
const ARGUMENT_BYTES: usize = 256;
const PATH_BYTES: usize = 512;
/// What a client may ask for.
const PRIORITIES: std::ops::RangeInclusive<i32> = -100..=100;
/// An answer begins with its first line, if that comes so soon: a client that is granted at once wakes up once.
const SOON: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 86_400);

type Answer = Result<Response, Refusal>;

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// Its user, when it connected.
    pub(super) uid: Uid,
    /// The process that connected; `None` where it cannot be held.
    pub(super) pinned: Option<Pinned>,
}

impl Peer {
    /// The process itself, for certain.
    fn process(&self) -> Result<(&Pinned, Identity), Refusal> {
        let pinned = self.pinned.as_ref().ok_or_else(|| {
            let why = "it cannot be told which process asks: it is gone, or this kernel gives no pidfd";
            Refusal::new(StatusCode::FORBIDDEN, why)
        })?;
        let gone = || Refusal::new(StatusCode::FORBIDDEN, "the process that connected is gone");
        let identity = pinned.identity()?.ok_or_else(gone)?;
        // Without SO_PEERPIDFD the pid may have become another's; and who has changed its user since is not who connected.
        if identity.users.effective != self.uid {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "the process that asks is not of the user that connected"));
        }
        Ok((pinned, identity))
    }
}

/// `POST /v1/launch`: a line for each change of its place, and one for the decision.
pub(super) async fn launch(
    State(asker): State<Asker>,
    Extension(peer): Extension<Peer>,
    request: HttpRequest,
) -> Answer {
    let asked: LaunchRequest = read_json(request, r#"{"path":"/usr/bin/claude","argv":["claude"]}"#).await?;
    let (pinned, launch) = candidate(&peer, asked)?;
    // SAFETY: the descriptor that an `Arc<OwnedFd>` gives is open, and the same, for as long as there is one.
    let pidfd = unsafe { AsyncFd::register_with_interest(pinned.pidfd(), Interest::READABLE) }
        .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot wait for it: {error}")))?;
    let (taken, when_taken) = oneshot::channel();
    let (lines, live) = mpsc::channel(1);
    // Not done here: this ends with the connection, and then somebody must tell the gate.
    tokio::spawn(attend(asker, launch, pidfd, taken, lines));
    when_taken
        .await
        .unwrap_or_else(|_| Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping")))?;
    let body = Body::new(Lines::stream(Feed { backlog: VecDeque::new(), live }));
    Ok(([("content-type", "application/x-ndjson"), ("connection", "close")], body).into_response())
}

/// Asks the gate, and passes on what it says until it has decided, or nobody is there to hear it: the client has gone, or the
/// process that was to be launched.
async fn attend(
    asker: Asker,
    launch: Launch,
    pidfd: AsyncFd<Arc<OwnedFd>>,
    taken: oneshot::Sender<Result<(), Refusal>>,
    lines: mpsc::Sender<Bytes>,
) {
    let process = launch.process;
    // A crowd that comes at once waits for its turn, however long that takes: each would only come again.
    let asked = asker.ask_until(lines.closed(), |reply| Request::Launch(Box::new(launch), reply)).await;
    let ticket = match asked {
        Ok(Ok(ticket)) => ticket,
        refused => {
            let refusal = match refused {
                Ok(Err(no_profile)) => no_profile.into(),
                Err(no_answer) => no_answer.into(),
                Ok(Ok(_)) => return,
            };
            // Whoever asked may be gone.
            let _ = taken.send(Err(refusal));
            return;
        }
    };
    let mut taken = Some(taken);
    let mut begin = || {
        // If nobody takes it, the other end of `lines` is gone too.
        taken.take().map(|taken| taken.send(Ok(()))).is_some()
    };
    let mut updates = ticket.updates;
    let soon = sleep(SOON);
    tokio::pin!(soon);
    let mut begun = false;
    loop {
        tokio::select! {
            biased;
            changed = updates.changed() => {
                // Asked for once more by the same process, which is told there; or the daemon is stopping.
                if changed.is_err() {
                    begin();
                    return;
                }
                let Some(update) = updates.borrow_and_update().clone() else { continue };
                let last = !matches!(update, LaunchUpdate::Waiting(_));
                let told = match serde_json::to_vec(&update) {
                    Ok(line) => lines.send(line.into()).await.is_ok(),
                    Err(_) => false,
                };
                begun |= begin();
                if last {
                    return;
                }
                if !told {
                    break;
                }
            }
            () = &mut soon, if !begun => begun = begin(),
            () = lines.closed() => break,
            // It is readable once the process is dead; an error is as good as that, since nothing would tell us any more.
            _ = pidfd.readable() => break,
        }
    }
    begin();
    asker.say(Request::Left(process, ticket.number)).await;
}

/// The process that is to become the agent, and what the gate is asked for.
fn candidate(peer: &Peer, asked: LaunchRequest) -> Result<(Pinned, Launch), Refusal> {
    let LaunchRequest { profile, path, argv, priority, timeout_seconds, no_wait, memory_bytes, pid, start_time } =
        asked;
    let bad = |why: &str| Refusal::new(StatusCode::BAD_REQUEST, why);
    if path.is_empty() {
        return Err(bad("path is missing: what is to be executed"));
    }
    if !PRIORITIES.contains(&priority) {
        return Err(bad("priority: -100 to 100 is allowed"));
    }
    let timeout = timeout_seconds
        .map(|seconds| Duration::try_from_secs_f64(seconds).ok().filter(|span| !span.is_zero()))
        .map(|span| span.map(|span| span.min(LONGEST_WAIT)).ok_or_else(|| bad("timeout_seconds: not above 0")))
        .transpose()?;
    if memory_bytes == Some(0) {
        return Err(bad("memory_bytes: not above 0"));
    }
    let named = match (pid, start_time) {
        (None, None) => None,
        (Some(pid), Some(start_time)) => Some(ProcessId { pid: Pid(pid), start_time: Ticks(start_time) }),
        _ => return Err(bad("pid and start_time belong together: a pid alone is no identity")),
    };
    let (own, caller) = peer.process()?;
    let (pinned, identity) = match named {
        Some(process) if process != caller.process => descendant(peer, &caller, process)?,
        _ => (own.clone(), caller),
    };
    let cgroups = Cgroups::of_host().above(identity.process)?;
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
    };
    Ok((pinned, launch))
}

/// A process that the caller forked, or one below it, of the caller's own user.
fn descendant(peer: &Peer, caller: &Identity, process: ProcessId) -> Result<(Pinned, Identity), Refusal> {
    // A stranger learns the same of a process that is not its own and of one that is not there.
    let foreign = || {
        let why = format!(
            "pid {} is no process of yours that was forked by the one that asks, with that start_time: a launch can only be \
             asked for by the process itself or by one that forked it",
            process.pid
        );
        Refusal::new(StatusCode::FORBIDDEN, why)
    };
    let pinned = Pinned::of(process)?.ok_or_else(foreign)?;
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
    Image { path, argv, truncated }
}

/// `GET /v1/queue`
pub(super) async fn queue(State(asker): State<Asker>, Extension(viewer): Extension<Viewer>) -> Answer {
    Ok(json(&asker.ask(|reply| Request::Queue(viewer, reply)).await?))
}

/// `POST /v1/queue/cancel`
pub(super) async fn cancel(
    State(asker): State<Asker>,
    Extension(viewer): Extension<Viewer>,
    request: HttpRequest,
) -> Answer {
    let Cancel { pid } = read_json(request, r#"{"pid":123}"#).await?;
    Ok(json(&asker.ask(|reply| Request::Cancel(viewer, pid, reply)).await??))
}

/// `POST /v1/subagent`
pub(super) async fn subagent(
    State(asker): State<Asker>,
    Extension(peer): Extension<Peer>,
    request: HttpRequest,
) -> Answer {
    let SubagentCall { event, call } = read_json(request, r#"{"event":"start"}"#).await?;
    let (_, caller) = peer.process()?;
    let call = Subagent { caller: caller.process, event, call };
    Ok(json(&asker.ask(|reply| Request::Subagent(call, reply)).await?))
}

impl From<NoProfile> for Refusal {
    fn from(error: NoProfile) -> Self {
        Self::new(StatusCode::NOT_FOUND, error.to_string())
    }
}

impl From<CancelError> for Refusal {
    fn from(error: CancelError) -> Self {
        let status = match error {
            CancelError::NobodyWaits(_) => StatusCode::NOT_FOUND,
            CancelError::NotYours => StatusCode::FORBIDDEN,
        };
        Self::new(status, error.to_string())
    }
}

impl From<HostError> for Refusal {
    fn from(error: HostError) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

#[cfg(test)]
#[path = "gate_api_tests.rs"]
mod tests;
