//! What others ask of the task that owns the engine, and how they ask.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::clients::Ticket;
use super::journal::Feed;
use super::metrics::Scrape;
use crate::api::{
    self, Actions, Adopted, Cancelled, Explanation, Findings, Planned, Queue, Status, SubagentAnswer, Tree,
};
use crate::config::Config;
use crate::engine::act::{Ask, AskError};
use crate::engine::deaths::Subject;
use crate::engine::gate::{Launch, Subagent};
use crate::engine::id::{BootTime, ProcessId};
use crate::engine::view::Viewer;

/// How long an answer may take before the asker is told that there is none.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Requests that wait at most; whoever comes then waits outside.
const WAITING: usize = 64;

/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<T>;

/// One request.
#[derive(Debug)]
pub(super) enum Request {
    /// How the daemon and its host are.
    Status(Viewer, Reply<Status>),
    /// Sessions with their processes.
    Tree(Viewer, Reply<Tree>),
    /// The open findings, or all that are remembered.
    Findings {
        /// Who asks.
        viewer: Viewer,
        /// Closed ones too.
        all: bool,
        /// Where the answer goes.
        reply: Reply<Findings>,
    },
    /// Why a process or a session died or was found; `None` when nothing is known of it.
    Explain(Viewer, Subject, Reply<Option<Explanation>>),
    /// Events since a moment, or all that are left.
    Events(Viewer, Option<BootTime>, Reply<VecDeque<Bytes>>),
    /// Events since a moment and those to come, or only those.
    Follow(Viewer, Option<BootTime>, Reply<Feed>),
    /// A person says that processes are meant to stay, or that they are no more.
    Adopt {
        /// Who says it.
        viewer: Viewer,
        /// Of whom.
        subject: api::Subject,
        /// That they are no more.
        undo: bool,
        /// Where the answer goes.
        reply: Reply<Result<Adopted, AdoptError>>,
    },
    /// Somebody asks for something to be done to processes.
    Act {
        /// Who, and for what.
        ask: Ask,
        /// It is only to be said what that comes to.
        dry_run: bool,
        /// Where the answer goes.
        reply: Reply<Result<Planned, AskError>>,
    },
    /// What is done to processes, and what was.
    Actions(Viewer, Reply<Actions>),
    /// A process asks to be launched.
    Launch(Box<Launch>, Reply<Result<Ticket, NoProfile>>),
    /// Who asked for a launch with this ticket has gone.
    Left(ProcessId, u64),
    /// The gate.
    Queue(Viewer, Reply<Queue>),
    /// Take the launch of this pid out of the queue.
    Cancel(Viewer, u32, Reply<Result<Cancelled, CancelError>>),
    /// An agent's hook tells of a subagent.
    Subagent(Subagent, Reply<SubagentAnswer>),
    /// The states of `/metrics`.
    Scrape(Reply<Scrape>),
    /// Whether the table has been built.
    Ready(Reply<bool>),
    /// Take a new configuration.
    Reconfigure {
        /// It.
        config: Arc<Config>,
        /// The TOML that it was read from.
        text: String,
        /// Told when it is in force.
        reply: Reply<()>,
    },
}

impl Request {
    /// Whether it can be answered before the process table is built.
    pub(super) fn is_early(&self) -> bool {
        matches!(self, Self::Ready(_) | Self::Reconfigure { .. } | Self::Left(..) | Self::Follow(..))
    }

    /// Whether the asker waits no longer: nothing must be done in its name any more.
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Self::Status(_, reply) => reply.is_closed(),
            Self::Tree(_, reply) => reply.is_closed(),
            Self::Findings { reply, .. } => reply.is_closed(),
            Self::Explain(_, _, reply) => reply.is_closed(),
            Self::Events(_, _, reply) => reply.is_closed(),
            Self::Follow(_, _, reply) => reply.is_closed(),
            Self::Adopt { reply, .. } => reply.is_closed(),
            Self::Act { reply, .. } => reply.is_closed(),
            Self::Actions(_, reply) => reply.is_closed(),
            Self::Launch(_, reply) => reply.is_closed(),
            Self::Left(..) => false,
            Self::Queue(_, reply) => reply.is_closed(),
            Self::Cancel(_, _, reply) => reply.is_closed(),
            Self::Subagent(_, reply) => reply.is_closed(),
            Self::Scrape(reply) => reply.is_closed(),
            Self::Ready(reply) => reply.is_closed(),
            Self::Reconfigure { reply, .. } => reply.is_closed(),
        }
    }
}

/// Why nothing was adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AdoptError {
    /// No session has such a process.
    #[error("pid {0} belongs to no session: `watchdogctl tree` lists those that do")]
    NoProcess(u32),
    /// No such session, or nothing of it is alive.
    #[error("session {0} has no living process: `watchdogctl tree` lists those that have")]
    NoSession(u64),
    /// It is somebody else's.
    #[error("that belongs to another user: only its owner and root may say whether it is to stay")]
    NotYours,
}

/// A launch names a profile that there is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no profile {name:?}: there are {}", known.join(", "))]
pub(super) struct NoProfile {
    /// The name.
    pub(super) name: String,
    /// Those that there are.
    pub(super) known: Vec<String>,
}

/// Why nothing was taken out of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CancelError {
    /// It is not in the queue.
    #[error("no launch of pid {0} waits: `watchdogctl queue` lists those that do")]
    NobodyWaits(u32),
    /// It is somebody else's.
    #[error("that launch is another user's: only its owner and root may cancel it")]
    NotYours,
}

/// The owner of the engine did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoAnswer {
    /// It answers nothing before the process table is built.
    #[error("the daemon is starting, and its process table is not complete yet: try again in a moment")]
    Starting,
    /// It should have.
    #[error("the daemon did not answer within {} s: it is stopping or overloaded; try again", PATIENCE.as_secs())]
    Silent,
}

/// The way to the task that owns the engine.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    requests: mpsc::Sender<Request>,
    ready: Arc<AtomicBool>,
}

/// An asker, and the end at which its requests come out.
pub(super) fn channel() -> (Asker, mpsc::Receiver<Request>) {
    let (requests, inbox) = mpsc::channel(WAITING);
    (Asker { requests, ready: Arc::default() }, inbox)
}

impl Asker {
    /// The process table is built: requests are answered from now on.
    pub(super) fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    fn no_answer(&self) -> NoAnswer {
        if self.ready.load(Ordering::Relaxed) { NoAnswer::Silent } else { NoAnswer::Starting }
    }

    /// Says something to which there is no answer, however long it takes to be heard.
    pub(super) async fn say(&self, request: Request) {
        // Nobody is left to hear it: the daemon is about to stop.
        let _ = self.requests.send(request).await;
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// When there is none within [`PATIENCE`].
    pub(super) async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, NoAnswer> {
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.requests.send(request(reply)).await.ok()?;
            answer.await.ok()
        };
        tokio::time::timeout(PATIENCE, asked).await.ok().flatten().ok_or_else(|| self.no_answer())
    }

    /// Asks, and waits for the answer until the one for whom it is asked has gone. An answer that was given by then is given;
    /// later whoever answers learns that nobody takes it.
    ///
    /// # Errors
    /// When there is none.
    pub(super) async fn ask_until<T>(
        &self,
        gone: impl Future<Output = ()>,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> Result<T, NoAnswer> {
        tokio::pin!(gone);
        let (reply, mut answer) = oneshot::channel();
        tokio::select! {
            sent = self.requests.send(request(reply)) => sent.map_err(|_| self.no_answer())?,
            () = &mut gone => return Err(self.no_answer()),
        }
        tokio::select! {
            answer = &mut answer => return answer.map_err(|_| self.no_answer()),
            () = gone => {}
        }
        answer.close();
        answer.try_recv().map_err(|_| self.no_answer())
    }
}
