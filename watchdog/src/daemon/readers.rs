//! Reads of what is long or costly: a few at a time for each user and in all, and none for a client that has left.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::http::Refusal;
use crate::engine::id::Uid;
use crate::engine::view::Viewer;

/// Reads of one user at a time. Further ones wait, and take no turn from other users.
const PER_USER: usize = 2;
/// Reads of all users at a time, each on a thread of its own.
const IN_ALL: usize = 4;
/// Threads that read. Those of root's reads are beside the others, so that no user can keep root waiting.
pub(super) const THREADS: usize = IN_ALL + PER_USER;
/// A read that has waited this long is refused, and may be asked for again after the pause.
const LONGEST_WAIT: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_secs(1);

/// The reads in progress.
#[derive(Clone, Debug)]
pub(super) struct Readers {
    in_all: Arc<Semaphore>,
    /// Users with a read in progress or waiting.
    by_user: Arc<Mutex<HashMap<Uid, Weak<Semaphore>>>>,
}

/// Leave to read, until it is dropped.
#[derive(Debug)]
pub(super) struct Reading {
    _of_user: OwnedSemaphorePermit,
    /// `None` for root.
    _in_all: Option<OwnedSemaphorePermit>,
}

/// Explanations in progress. The engine gives them without reading a file, so they do not wait for reads of one.
#[derive(Clone, Debug)]
pub(super) struct Explainers(pub(super) Readers);

/// Set when the client that waits for a read has left.
pub(super) type CancelFlag = Arc<AtomicBool>;

/// Cancels when it is dropped.
struct CancelOnDrop(CancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl Readers {
    /// No read is in progress.
    pub(super) fn new() -> Self {
        Self { in_all: Arc::new(Semaphore::new(IN_ALL)), by_user: Arc::default() }
    }

    /// Waits for leave to read. Each user's reads take their turn in the order in which they came.
    ///
    /// # Errors
    /// When that takes too long.
    pub(super) async fn enter(&self, viewer: Viewer) -> Result<Reading, Refusal> {
        let error = "too many reads of this kind are in progress: try again";
        timeout(LONGEST_WAIT, self.turn(viewer)).await.unwrap_or_else(|_| Err(Refusal::busy(error, PAUSE)))
    }

    /// Waits for leave to read, however long that takes.
    ///
    /// # Errors
    /// Never, since the semaphores are never closed.
    pub(super) async fn turn(&self, viewer: Viewer) -> Result<Reading, Refusal> {
        let of_user = self.of(viewer).acquire_owned().await.map_err(unavailable)?;
        let in_all = match viewer {
            Viewer::Root => None,
            Viewer::User(_) => Some(Arc::clone(&self.in_all).acquire_owned().await.map_err(unavailable)?),
        };
        Ok(Reading { _of_user: of_user, _in_all: in_all })
    }

    fn of(&self, viewer: Viewer) -> Arc<Semaphore> {
        let uid = match viewer {
            Viewer::Root => Uid::ROOT,
            Viewer::User(uid) => uid,
        };
        let mut by_user = self.by_user.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = by_user.get(&uid).and_then(Weak::upgrade) {
            return known;
        }
        by_user.retain(|_, semaphore| semaphore.strong_count() > 0);
        let semaphore = Arc::new(Semaphore::new(PER_USER));
        by_user.insert(uid, Arc::downgrade(&semaphore));
        semaphore
    }
}

impl Reading {
    /// Reads on a thread that may block. The leave is held until `work` has ended, also when the client has left; `work`
    /// ends soon after its flag is set.
    ///
    /// # Errors
    /// When `work` panics.
    pub(super) async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce(CancelFlag) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let cancelled = CancelFlag::default();
        let _cancel = CancelOnDrop(Arc::clone(&cancelled));
        let done = tokio::task::spawn_blocking(move || {
            let result = work(cancelled);
            drop(self);
            result
        });
        done.await.map_err(|error| {
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot read the history: {error}"))
        })
    }
}

fn unavailable(error: tokio::sync::AcquireError) -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::eventually;

    const A: Viewer = Viewer::User(Uid(1000));
    const B: Viewer = Viewer::User(Uid(1001));
    const C: Viewer = Viewer::User(Uid(1002));

    #[tokio::test]
    async fn user_beyond_the_limit_waits() {
        let soon = Duration::from_millis(20);
        let readers = Readers::new();
        let _first = readers.enter(A).await.unwrap();
        let second = readers.enter(A).await.unwrap();
        assert!(timeout(soon, readers.turn(A)).await.is_err());
        let others = [readers.enter(B).await.unwrap(), readers.enter(B).await.unwrap()];
        assert!(timeout(soon, readers.turn(C)).await.is_err(), "all turns are taken");
        let of_root = [readers.enter(Viewer::Root).await.unwrap(), readers.enter(Viewer::Root).await.unwrap()];
        assert!(timeout(soon, readers.turn(Viewer::Root)).await.is_err(), "root has a limit of its own");
        drop(of_root);
        drop((second, others));
        readers.enter(A).await.unwrap();
        readers.enter(Viewer::Root).await.unwrap();
        assert!(!readers.by_user.lock().unwrap().contains_key(&Uid(1001)), "users that have left are forgotten");
    }

    #[tokio::test]
    async fn left_client_cancels_its_read() {
        let readers = Readers::new();
        let (begin, begun) = std::sync::mpsc::channel();
        let reading = readers.enter(A).await.unwrap();
        let read = tokio::spawn(reading.run(move |cancelled| {
            begin.send(()).unwrap();
            while !cancelled.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }));
        tokio::task::spawn_blocking(move || begun.recv()).await.unwrap().unwrap();
        assert_eq!(readers.in_all.available_permits(), IN_ALL - 1);
        read.abort();
        tokio::task::spawn_blocking(move || {
            eventually("the read ends", || readers.in_all.available_permits() == IN_ALL);
        })
        .await
        .unwrap();
    }
}
