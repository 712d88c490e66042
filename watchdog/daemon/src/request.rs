//! Requests to the engine's thread, and the client that sends them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::journal::{Feed, Period};
use super::launch_waiters::LaunchTicket;
use super::metrics::Scrape;
use watchdog_api::{
    self, Actions, Adopted, Cancelled, Explanation, Findings, Overview, Planned, Queue, ReclaimRun, Reclaims, Status,
    SubagentAnswer, Tree,
};
use watchdog_config::Config;
use watchdog_engine::actions::{ActionRequest, ActionRequestError};
use watchdog_engine::exits::ExplainTarget;
use watchdog_engine::gate::{Launch, SubagentHook};
use watchdog_engine::reclaim::{ReclaimDemand, ReclaimRequestError};
use watchdog_types::{ProcessId, SessionId, Viewer};

/// The time for an answer.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
/// Capacity of the queue. Senders wait while it is full.
const QUEUE: usize = 64;

pub(super) type Reply<T> = oneshot::Sender<T>;

/// What an overview has besides the status and the sums of all sessions.
#[derive(Debug)]
pub(super) struct OverviewParts {
    /// The sessions whose processes are listed; `None` for all.
    pub(super) processes_of: Option<BTreeSet<SessionId>>,
    pub(super) findings: bool,
    pub(super) queue: bool,
}

#[derive(Debug)]
pub(super) enum EngineRequest {
    Status(Viewer, Reply<Status>),
    Tree {
        viewer: Viewer,
        /// The sessions whose processes are listed; `None` for all.
        processes_of: Option<BTreeSet<SessionId>>,
        reply: Reply<Tree>,
    },
    Overview {
        viewer: Viewer,
        parts: OverviewParts,
        reply: Reply<Overview>,
    },
    Findings {
        viewer: Viewer,
        /// Include closed ones.
        all: bool,
        reply: Reply<Findings>,
    },
    /// `None` without a record of it.
    Explain(Viewer, ExplainTarget, Reply<Option<Explanation>>),
    Events(Viewer, Period, Reply<VecDeque<Bytes>>),
    /// The past events of the period, none of [`Period::ALL`], and all later ones.
    Follow(Viewer, Period, Reply<Feed>),
    /// Mark processes as kept, or remove that mark.
    Adopt {
        viewer: Viewer,
        subject: watchdog_api::Subject,
        /// Remove the mark.
        undo: bool,
        reply: Reply<Result<Adopted, AdoptError>>,
    },
    /// Reap, end or thaw.
    Act {
        ask: ActionRequest,
        /// Plan only.
        dry_run: bool,
        reply: Reply<Result<Planned, ActionRequestError>>,
    },
    Actions(Viewer, Reply<Actions>),
    Reclaims(Viewer, Reply<Reclaims>),
    /// Page out sessions.
    Reclaim {
        demand: ReclaimDemand,
        /// Plan only.
        dry_run: bool,
        reply: Reply<Result<ReclaimRun, ReclaimRequestError>>,
    },
    Launch(Box<Launch>, Reply<Result<LaunchTicket, UnknownProfile>>),
    /// The client with this ticket has disconnected.
    Disconnected(ProcessId, u64),
    Queue(Viewer, Reply<Queue>),
    /// Cancel the waiting launch of this pid.
    Cancel(Viewer, u32, Reply<Result<Cancelled, CancelError>>),
    Subagent(SubagentHook, Reply<SubagentAnswer>),
    Scrape(Reply<Scrape>),
    /// Whether the process table is complete.
    Ready(Reply<bool>),
    Reconfigure {
        config: Arc<Config>,
        /// The TOML text of the configuration.
        text: String,
        /// Sent once it is in force.
        reply: Reply<()>,
    },
}

impl EngineRequest {
    /// Whether it can be answered before the process table is complete.
    pub(super) fn allowed_before_ready(&self) -> bool {
        matches!(self, Self::Ready(_) | Self::Reconfigure { .. } | Self::Disconnected(..) | Self::Follow(..))
    }

    /// Whether the client no longer waits. The request must not be executed then.
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Self::Status(_, reply) => reply.is_closed(),
            Self::Tree { reply, .. } => reply.is_closed(),
            Self::Overview { reply, .. } => reply.is_closed(),
            Self::Findings { reply, .. } => reply.is_closed(),
            Self::Explain(_, _, reply) => reply.is_closed(),
            Self::Events(_, _, reply) => reply.is_closed(),
            Self::Follow(_, _, reply) => reply.is_closed(),
            Self::Adopt { reply, .. } => reply.is_closed(),
            Self::Act { reply, .. } => reply.is_closed(),
            Self::Actions(_, reply) => reply.is_closed(),
            Self::Reclaims(_, reply) => reply.is_closed(),
            Self::Reclaim { reply, .. } => reply.is_closed(),
            Self::Launch(_, reply) => reply.is_closed(),
            Self::Disconnected(..) => false,
            Self::Queue(_, reply) => reply.is_closed(),
            Self::Cancel(_, _, reply) => reply.is_closed(),
            Self::Subagent(_, reply) => reply.is_closed(),
            Self::Scrape(reply) => reply.is_closed(),
            Self::Ready(reply) => reply.is_closed(),
            Self::Reconfigure { reply, .. } => reply.is_closed(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AdoptError {
    #[error("pid {0} belongs to no session: `watchdogctl tree` lists processes of sessions")]
    NoProcess(u32),
    #[error("session {0} has no living process: `watchdogctl tree` lists living sessions")]
    NoSession(u64),
    #[error("that belongs to another user: only its owner and root may adopt or release it")]
    OtherUser,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no profile {name:?}; available: {}", known.join(", "))]
pub(super) struct UnknownProfile {
    pub(super) name: String,
    pub(super) known: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CancelError {
    #[error("no launch of pid {0} is waiting: `watchdogctl queue` lists waiting launches")]
    NotQueued(u32),
    #[error("that launch belongs to another user: only its owner and root may cancel it")]
    OtherUser,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EngineTimeout {
    /// The process table is not complete yet.
    #[error("the daemon is starting, and its process table is not complete yet: try again in a moment")]
    Starting,
    #[error("the daemon did not answer within {} s: it is stopping or overloaded; try again", TIMEOUT.as_secs())]
    Silent,
}

/// Sends requests to the engine's thread.
#[derive(Clone, Debug)]
pub(super) struct EngineClient {
    requests: mpsc::Sender<EngineRequest>,
    ready: Arc<AtomicBool>,
}

/// A client, and the queue of its requests.
pub(super) fn channel() -> (EngineClient, mpsc::Receiver<EngineRequest>) {
    let (requests, inbox) = mpsc::channel(QUEUE);
    (EngineClient { requests, ready: Arc::default() }, inbox)
}

impl EngineClient {
    /// The process table is complete: requests are answered from now on.
    pub(super) fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    fn timeout_error(&self) -> EngineTimeout {
        if self.ready.load(Ordering::Relaxed) { EngineTimeout::Silent } else { EngineTimeout::Starting }
    }

    /// Sends a request without an answer, however long that takes.
    pub(super) async fn send(&self, request: EngineRequest) {
        // The daemon may be stopping.
        let _ = self.requests.send(request).await;
    }

    /// Sends a request, and waits for the answer.
    ///
    /// # Errors
    ///
    /// When there is none within [`TIMEOUT`].
    pub(super) async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> EngineRequest) -> Result<T, EngineTimeout> {
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.requests.send(request(reply)).await.ok()?;
            answer.await.ok()
        };
        tokio::time::timeout(TIMEOUT, asked).await.ok().flatten().ok_or_else(|| self.timeout_error())
    }

    /// Sends a request, and waits for the answer until `gone` completes. An answer given by then is returned; later the
    /// engine learns that there is no receiver.
    ///
    /// # Errors
    ///
    /// When there is no answer.
    pub(super) async fn ask_until<T>(
        &self,
        gone: impl Future<Output = ()>,
        request: impl FnOnce(Reply<T>) -> EngineRequest,
    ) -> Result<T, EngineTimeout> {
        tokio::pin!(gone);
        let (reply, mut answer) = oneshot::channel();
        tokio::select! {
            sent = self.requests.send(request(reply)) => sent.map_err(|_| self.timeout_error())?,
            () = &mut gone => return Err(self.timeout_error()),
        }
        tokio::select! {
            answer = &mut answer => return answer.map_err(|_| self.timeout_error()),
            () = gone => {}
        }
        answer.close();
        answer.try_recv().map_err(|_| self.timeout_error())
    }
}
