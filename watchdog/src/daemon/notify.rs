//! Tells others what was done: a command that gets each receipt on its stdin, and a webhook. A thread of its own does it, and
//! whoever has something to tell puts it into a queue and goes on at once: a receiver that is slow or gone loses news, and
//! nothing else loses anything.

mod command;
mod webhook;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::grumble::Grumble;
use crate::api::{ActionState, Receipt};
use crate::config::Notify;

/// What waits for each receiver at most; then news are dropped.
const QUEUE: usize = 100;
/// The time from the beginning of one telling to the next.
const PACE: Duration = Duration::from_secs(1);
/// Stack of the thread. Only what is touched counts.
const STACK: usize = 512 * 1024;
/// Threads that look up names of hosts at most. A look-up that takes too long is left to end by itself.
const LOOKUPS: usize = 2;

/// Something to tell.
#[derive(Clone, Debug)]
enum News {
    /// What was done, and what came of it.
    Receipt(Box<Receipt>),
    /// Policy would act, and does not: why, and since when.
    HeldBack { at: String, detail: String },
}

impl News {
    /// One JSON document on a line.
    fn document(&self) -> Vec<u8> {
        let document = match self {
            Self::Receipt(receipt) => serde_json::to_vec(receipt),
            Self::HeldBack { detail, .. } => serde_json::to_vec(&json!({ "held_back": detail })),
        };
        // Strings, numbers and maps with string keys: nothing here can fail to be JSON.
        let mut line = document.unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// The way to those who are told.
#[derive(Debug)]
pub(super) struct Notifier {
    wanted: watch::Sender<Notify>,
    command: Queue,
    webhook: Queue,
}

/// One end of a queue.
#[derive(Debug)]
struct Queue {
    news: mpsc::Sender<Arc<News>>,
    dropped: Arc<AtomicU64>,
}

/// The other end.
struct Inbox {
    news: mpsc::Receiver<Arc<News>>,
    dropped: Arc<AtomicU64>,
    /// How many of those that were dropped have been told of.
    lost: u64,
    receiver: &'static str,
    full: Grumble,
}

fn queue(receiver: &'static str) -> (Queue, Inbox) {
    let (sender, news) = mpsc::channel(QUEUE);
    let dropped = Arc::<AtomicU64>::default();
    (
        Queue { news: sender, dropped: Arc::clone(&dropped) },
        Inbox { news, dropped, lost: 0, receiver, full: Grumble::default() },
    )
}

impl Queue {
    fn put(&self, news: &Arc<News>) {
        if self.news.try_send(Arc::clone(news)).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }
}

impl Inbox {
    /// The next news, and what waits behind them, so many in all at most; `None` when there will be no more. The queue keeps
    /// what was not taken when this is not waited for to its end.
    async fn next(&mut self, most: usize) -> Option<Vec<Arc<News>>> {
        let mut news = Vec::new();
        self.news.recv_many(&mut news, most).await;
        let lost = self.dropped.load(Relaxed);
        if lost > self.lost {
            self.lost = lost;
            let receiver = self.receiver;
            self.full.say(format_args!(
                "[actions] {receiver}: receipts come faster than they can be told; {lost} were dropped since the daemon started"
            ));
        }
        (!news.is_empty()).then_some(news)
    }
}

/// Starts the thread. It ends with the last [`Notifier`].
///
/// # Errors
/// When the thread cannot be started.
pub(super) fn start(notify: Notify) -> io::Result<Notifier> {
    let (wanted, wishes) = watch::channel(notify);
    let (command, commands) = queue("notify");
    let (webhook, posts) = queue("webhook");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(LOOKUPS).build()?;
    thread::Builder::new().name("notify".to_owned()).stack_size(STACK).spawn(move || {
        runtime.block_on(async {
            tokio::join!(command::serve(wishes.clone(), commands), webhook::serve(wishes, posts));
        });
        runtime.shutdown_background();
    })?;
    Ok(Notifier { wanted, command, webhook })
}

impl Notifier {
    /// Tells these from now on.
    pub(super) fn reconfigure(&self, notify: &Notify) {
        self.wanted.send_if_modified(|wanted| {
            let changed = wanted != notify;
            wanted.clone_from(notify);
            changed
        });
    }

    /// Tells of an action once something has come of it: of one that has only begun there is nothing to tell yet.
    pub(super) fn receipt(&self, receipt: &Receipt) {
        if ActionState::OUTCOMES.contains(&receipt.state) {
            self.tell(|| News::Receipt(Box::new(receipt.clone())));
        }
    }

    /// Tells that policy would act, and does not.
    pub(super) fn held_back(&self, at: String, detail: &str) {
        self.tell(|| News::HeldBack { at, detail: detail.to_owned() });
    }

    /// Never waits, and costs nothing while nobody is to be told.
    fn tell(&self, news: impl FnOnce() -> News) {
        let (command, webhook) = {
            let wanted = self.wanted.borrow();
            (wanted.command.is_some(), wanted.webhook.is_some())
        };
        if !command && !webhook {
            return;
        }
        let news = Arc::new(news());
        for queue in
            [(command, &self.command), (webhook, &self.webhook)].into_iter().filter_map(|(on, q)| on.then_some(q))
        {
            queue.put(&news);
        }
    }
}

#[cfg(test)]
#[path = "notify_tests.rs"]
mod tests;
