//! Notifies a command and a webhook of actions, on its own thread. Senders never wait: a receiver that is slow or gone
//! loses notifications, and nothing else is affected.

mod command;
mod webhook;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::log_throttle::ThrottledWarning;
use watchdog_api::{ActionState, Receipt};
use watchdog_config::NotifyConfig;

/// Capacity of each receiver's queue; beyond that notifications are dropped.
const QUEUE: usize = 100;
/// The shortest time between the starts of two deliveries.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// Stack size, in bytes. Only touched pages count.
const STACK: usize = 512 * 1024;
/// Threads that resolve host names. A lookup that takes too long is left to end by itself.
const LOOKUPS: usize = 2;

#[derive(Clone, Debug)]
enum Notification {
    /// An action and its outcome.
    Receipt(Box<Receipt>),
    /// Policy would act but does not: why, and since when.
    HeldBack { at: String, detail: String },
}

impl Notification {
    /// One JSON document on a line.
    fn document(&self) -> Vec<u8> {
        let document = match self {
            Self::Receipt(receipt) => serde_json::to_vec(receipt),
            Self::HeldBack { detail, .. } => serde_json::to_vec(&json!({ "held_back": detail })),
        };
        // Strings, numbers and maps with string keys always serialise.
        let mut line = document.unwrap_or_default();
        line.push(b'\n');
        line
    }
}

#[derive(Debug)]
pub(super) struct Notifier {
    wanted: watch::Sender<NotifyConfig>,
    command: NotificationSender,
    webhook: NotificationSender,
}

#[derive(Debug)]
struct NotificationSender {
    notifications: mpsc::Sender<Arc<Notification>>,
    dropped: Arc<AtomicU64>,
}

struct NotificationQueue {
    notifications: mpsc::Receiver<Arc<Notification>>,
    dropped: Arc<AtomicU64>,
    /// How many of the dropped notifications were reported.
    lost: u64,
    receiver: &'static str,
    warning: ThrottledWarning,
}

fn queue(receiver: &'static str) -> (NotificationSender, NotificationQueue) {
    let (sender, notifications) = mpsc::channel(QUEUE);
    let dropped = Arc::<AtomicU64>::default();
    (
        NotificationSender { notifications: sender, dropped: Arc::clone(&dropped) },
        NotificationQueue { notifications, dropped, lost: 0, receiver, warning: ThrottledWarning::default() },
    )
}

impl NotificationSender {
    fn put(&self, notifications: &Arc<Notification>) {
        if self.notifications.try_send(Arc::clone(notifications)).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }
}

impl NotificationQueue {
    /// The next notifications, `most` at most; `None` when there will be no more. Dropping the future loses none.
    async fn next(&mut self, most: usize) -> Option<Vec<Arc<Notification>>> {
        let mut notifications = Vec::new();
        self.notifications.recv_many(&mut notifications, most).await;
        let lost = self.dropped.load(Relaxed);
        if lost > self.lost {
            self.lost = lost;
            let receiver = self.receiver;
            self.warning.warn(format_args!(
                "[actions] {receiver}: notifications arrive faster than they are delivered; {lost} were dropped since the daemon started"
            ));
        }
        (!notifications.is_empty()).then_some(notifications)
    }
}

/// Starts the thread. It ends with the last [`Notifier`].
pub(super) fn start(notify: NotifyConfig) -> io::Result<Notifier> {
    let (wanted, config) = watch::channel(notify);
    let (command, commands) = queue("notify");
    let (webhook, posts) = queue("webhook");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(LOOKUPS).build()?;
    thread::Builder::new().name("notify".to_owned()).stack_size(STACK).spawn(move || {
        runtime.block_on(async {
            tokio::join!(command::serve(config.clone(), commands), webhook::serve(config, posts));
        });
        runtime.shutdown_background();
    })?;
    Ok(Notifier { wanted, command, webhook })
}

impl Notifier {
    pub(super) fn reconfigure(&self, notify: &NotifyConfig) {
        self.wanted.send_if_modified(|wanted| {
            let changed = wanted != notify;
            wanted.clone_from(notify);
            changed
        });
    }

    /// Notifies of an action once it has an outcome.
    pub(super) fn receipt(&self, receipt: &Receipt) {
        if ActionState::OUTCOMES.contains(&receipt.state) {
            self.send(|| Notification::Receipt(Box::new(receipt.clone())));
        }
    }

    /// Notifies that policy would act but does not.
    pub(super) fn held_back(&self, at: String, detail: &str) {
        self.send(|| Notification::HeldBack { at, detail: detail.to_owned() });
    }

    /// Never waits, and costs nothing without a receiver.
    fn send(&self, notifications: impl FnOnce() -> Notification) {
        let (command, webhook) = {
            let wanted = self.wanted.borrow();
            (wanted.command.is_some(), wanted.webhook.is_some())
        };
        if !command && !webhook {
            return;
        }
        let notifications = Arc::new(notifications());
        for queue in
            [(command, &self.command), (webhook, &self.webhook)].into_iter().filter_map(|(on, q)| on.then_some(q))
        {
            queue.put(&notifications);
        }
    }
}

#[cfg(test)]
#[path = "notify_tests.rs"]
mod tests;
