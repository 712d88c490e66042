//! Limits slow or costly reads: a few at a time for each user and in all. A disconnected client cancels its read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::http::ApiError;
use watchdog_types::{Uid, Viewer};

/// Reads in progress for each user. Further ones wait, and take no turn from other users.
const PER_USER: usize = 2;
/// Reads in progress for all users, each on its own thread.
const TOTAL: usize = 4;
/// Threads for reads. Root's reads come on top, so that no user can delay root.
pub(super) const THREADS: usize = TOTAL + PER_USER;
/// A read that has waited this long is refused, and may be repeated after the pause.
const LONGEST_WAIT: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(super) struct ReadLimiter {
    total: Arc<Semaphore>,
    /// UserNames with a read in progress or waiting.
    by_user: Arc<Mutex<HashMap<Uid, Weak<Semaphore>>>>,
}

#[derive(Debug)]
pub(super) struct ReadPermit {
    _of_user: OwnedSemaphorePermit,
    /// `None` for root.
    _total: Option<OwnedSemaphorePermit>,
}

/// Limits explanations. The engine gives them without reading a file, so they do not wait for reads of the history.
#[derive(Clone, Debug)]
pub(super) struct ExplainLimiter(pub(super) ReadLimiter);

/// Set when the client of a read has disconnected.
pub(super) type CancelFlag = Arc<AtomicBool>;

struct CancelOnDrop(CancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl ReadLimiter {
    pub(super) fn new() -> Self {
        Self { total: Arc::new(Semaphore::new(TOTAL)), by_user: Arc::default() }
    }

    /// Waits for a permit. The reads of a user are served in order.
    ///
    /// # Errors
    ///
    /// When that takes too long.
    pub(super) async fn try_acquire(&self, viewer: Viewer) -> Result<ReadPermit, ApiError> {
        let error = "too many reads of this kind are in progress: try again";
        timeout(LONGEST_WAIT, self.acquire(viewer)).await.unwrap_or_else(|_| Err(ApiError::busy(error, PAUSE)))
    }

    /// Waits for a permit, however long that takes.
    ///
    /// # Errors
    ///
    /// Never: the semaphores are never closed.
    pub(super) async fn acquire(&self, viewer: Viewer) -> Result<ReadPermit, ApiError> {
        let of_user = self.of(viewer).acquire_owned().await.map_err(unavailable)?;
        let total = match viewer {
            Viewer::Root => None,
            Viewer::User(_) => Some(Arc::clone(&self.total).acquire_owned().await.map_err(unavailable)?),
        };
        Ok(ReadPermit { _of_user: of_user, _total: total })
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

impl ReadPermit {
    /// Runs `work` on a blocking thread. The permit is held until `work` has ended, even when the client has disconnected;
    /// `work` ends soon after its flag is set.
    ///
    /// # Errors
    ///
    /// When `work` panics.
    pub(super) async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce(CancelFlag) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let cancelled = CancelFlag::default();
        let _cancel = CancelOnDrop(Arc::clone(&cancelled));
        let done = tokio::task::spawn_blocking(move || {
            let result = work(cancelled);
            drop(self);
            result
        });
        done.await.map_err(|error| {
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot read the history: {error}"))
        })
    }
}

fn unavailable(error: tokio::sync::AcquireError) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use watchdog_host::testing::eventually;

    const A: Viewer = Viewer::User(Uid(1000));
    const B: Viewer = Viewer::User(Uid(1001));
    const C: Viewer = Viewer::User(Uid(1002));

    #[tokio::test]
    async fn user_beyond_the_limit_waits() {
        let soon = Duration::from_millis(20);
        let limiter = ReadLimiter::new();
        let _first = limiter.try_acquire(A).await.unwrap();
        let second = limiter.try_acquire(A).await.unwrap();
        assert!(timeout(soon, limiter.acquire(A)).await.is_err());
        let others = [limiter.try_acquire(B).await.unwrap(), limiter.try_acquire(B).await.unwrap()];
        assert!(timeout(soon, limiter.acquire(C)).await.is_err(), "all permits are taken");
        let of_root =
            [limiter.try_acquire(Viewer::Root).await.unwrap(), limiter.try_acquire(Viewer::Root).await.unwrap()];
        assert!(timeout(soon, limiter.acquire(Viewer::Root)).await.is_err(), "root has a limit of its own");
        drop(of_root);
        drop((second, others));
        limiter.try_acquire(A).await.unwrap();
        limiter.try_acquire(Viewer::Root).await.unwrap();
        assert!(!limiter.by_user.lock().unwrap().contains_key(&Uid(1001)), "users without a read are forgotten");
    }

    #[tokio::test]
    async fn left_client_cancels_its_read() {
        let limiter = ReadLimiter::new();
        let (begin, begun) = std::sync::mpsc::channel();
        let reading = limiter.try_acquire(A).await.unwrap();
        let read = tokio::spawn(reading.run(move |cancelled| {
            begin.send(()).unwrap();
            while !cancelled.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }));
        tokio::task::spawn_blocking(move || begun.recv()).await.unwrap().unwrap();
        assert_eq!(limiter.total.available_permits(), TOTAL - 1);
        read.abort();
        tokio::task::spawn_blocking(move || {
            eventually("the read ends", || limiter.total.available_permits() == TOTAL);
        })
        .await
        .unwrap();
    }
}
