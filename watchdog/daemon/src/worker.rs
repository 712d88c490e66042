//! A worker: a thread with a command channel. One loop for all of them executes commands in their order, runs timers, and
//! answers the heartbeat.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, TrySendError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use tokio::sync::oneshot;

/// Stack size of a worker, in bytes. Only touched pages count.
const STACK: usize = 512 * 1024;

/// The other end of a channel no longer exists, or a worker has closed its own: the worker must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChannelClosed;

/// The work of a worker thread.
pub(crate) trait Worker {
    type Command;

    /// Commands that are executed in a row before timers run.
    const MAX_BURST: usize = 1;

    fn handle(&mut self, command: Self::Command) -> Result<(), ChannelClosed>;

    /// When the next timer is due; `None` to wait for commands only.
    fn next_due(&self) -> Option<Instant> {
        None
    }

    /// Runs the timers that are due. Called after every burst of commands too: a stream of commands must not stop timers.
    fn run_due_timers(&mut self) -> Result<(), ChannelClosed> {
        Ok(())
    }

    /// The last command was handled, and no other can follow.
    fn finish(&mut self) {}
}

/// A request for an answer, which shows that a worker executes its commands.
pub(crate) type Ping = oneshot::Sender<()>;

enum WorkerMessage<C> {
    Command(C),
    Ping(Ping),
}

/// The sending end of a worker's queue, which is unbounded: senders never wait.
pub(crate) struct CommandSender<C>(mpsc::Sender<WorkerMessage<C>>);

/// The sending end of a worker's queue with a capacity.
#[derive(Debug)]
pub(crate) struct BoundedSender<C>(mpsc::SyncSender<WorkerMessage<C>>);

pub(crate) struct CommandReceiver<C>(mpsc::Receiver<WorkerMessage<C>>);

pub(crate) fn command_channel<C>() -> (CommandSender<C>, CommandReceiver<C>) {
    let (sender, receiver) = mpsc::channel();
    (CommandSender(sender), CommandReceiver(receiver))
}

pub(crate) fn bounded_channel<C>(capacity: usize) -> (BoundedSender<C>, CommandReceiver<C>) {
    let (sender, receiver) = mpsc::sync_channel(capacity);
    (BoundedSender(sender), CommandReceiver(receiver))
}

impl<C> CommandSender<C> {
    pub(crate) fn send(&self, command: C) -> Result<(), ChannelClosed> {
        self.0.send(WorkerMessage::Command(command)).map_err(|_| ChannelClosed)
    }

    /// Asks for an answer once all earlier commands have been executed.
    pub(crate) fn ping(&self, ping: Ping) {
        // A worker that has ended is noticed with the next command.
        let _ = self.0.send(WorkerMessage::Ping(ping));
    }
}

impl<C> Clone for CommandSender<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C> BoundedSender<C> {
    /// Never waits: a command that does not fit the queue is dropped.
    pub(crate) fn offer(&self, command: C) -> Result<(), TrySendError<()>> {
        self.0.try_send(WorkerMessage::Command(command)).map_err(|error| match error {
            TrySendError::Full(_) => TrySendError::Full(()),
            TrySendError::Disconnected(_) => TrySendError::Disconnected(()),
        })
    }
}

impl<C> Clone for BoundedSender<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Runs a worker until one of its channels is closed.
pub(crate) fn run<W: Worker>(mut worker: W, commands: &CommandReceiver<W::Command>) {
    let execute = |worker: &mut W, message| match message {
        WorkerMessage::Command(command) => worker.handle(command),
        // The heartbeat may have stopped waiting.
        WorkerMessage::Ping(ping) => {
            let _ = ping.send(());
            Ok(())
        }
    };
    loop {
        let message = match worker.next_due() {
            Some(due) => commands.0.recv_timeout(due.saturating_duration_since(Instant::now())),
            None => commands.0.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let done = match message {
            Ok(message) => std::iter::once(message)
                .chain(commands.0.try_iter().take(W::MAX_BURST - 1))
                .try_for_each(|message| execute(&mut worker, message)),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => return worker.finish(),
        };
        if done.and_then(|()| worker.run_due_timers()).is_err() {
            return;
        }
    }
}

/// Starts a thread with a worker, which is made on it.
pub(crate) fn spawn<W: Worker>(
    name: &str,
    commands: CommandReceiver<W::Command>,
    make: impl FnOnce() -> W + Send + 'static,
) -> io::Result<JoinHandle<()>>
where
    W::Command: Send + 'static,
{
    spawn_thread(name, move || run(make(), &commands))
}

pub(crate) fn spawn_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(work)
}

#[cfg(test)]
impl<C> CommandReceiver<C> {
    pub(crate) fn try_command(&self) -> Option<C> {
        match self.0.try_recv() {
            Ok(WorkerMessage::Command(command)) => Some(command),
            Ok(WorkerMessage::Ping(_)) => panic!("a ping"),
            Err(_) => None,
        }
    }

    pub(crate) fn next_command(&self) -> C {
        match self.0.recv_timeout(std::time::Duration::from_secs(10)) {
            Ok(WorkerMessage::Command(command)) => command,
            Ok(WorkerMessage::Ping(_)) => panic!("a ping"),
            Err(error) => panic!("no command: {error}"),
        }
    }

    pub(crate) fn try_ping(&self) -> Option<Ping> {
        match self.0.try_recv() {
            Ok(WorkerMessage::Ping(ping)) => Some(ping),
            Ok(WorkerMessage::Command(_)) => panic!("a command"),
            Err(_) => None,
        }
    }
}
