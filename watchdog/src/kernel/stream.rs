//! From a ring to events.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use aya::maps::{MapData, RingBuf};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};
use watchdog_common::NOTICE_INTERVAL_NANOS;

use super::decode::decode;
use crate::engine::input::KernelEvent;

/// One of the two rings, read when it suits the reader.
pub struct EventRing {
    ring: RingBuf<MapData>,
    undecodable: u64,
}

/// A ring that can be waited for.
///
/// The programs give notice of a record only when none was given in the last [`NOTICE_INTERVAL_NANOS`]. So whoever found
/// something looks once more after a longer time, until there is nothing: no record without a notice waits longer than
/// that. (A record whose program was held up between reading the clock and submitting may: [`drain`](Self::drain) the
/// stream now and then.)
pub struct EventStream {
    ring: AsyncFd<EventRing>,
    /// When to look again without a notice.
    again: Option<Instant>,
}

/// The time from a look that found something to the next.
const LOOK_AGAIN: Duration = Duration::from_nanos(NOTICE_INTERVAL_NANOS + 1_000_000);

/// Most records that one call takes, so that a storm of events does not keep everything else waiting.
const BATCH: usize = 4_096;

impl EventRing {
    pub(super) fn new(ring: RingBuf<MapData>) -> Self {
        Self { ring, undecodable: 0 }
    }

    /// Appends what is in the ring, oldest first. Returns whether the ring was emptied; it was not when so much came that
    /// the rest is left for the next call.
    pub fn drain(&mut self, out: &mut Vec<KernelEvent>) -> bool {
        for _ in 0..BATCH {
            let Some(record) = self.ring.next() else { return true };
            match decode(&record) {
                Ok(event) => out.push(event),
                Err(error) => {
                    if self.undecodable == 0 {
                        tracing::error!(%error, "a record of the kernel programs makes no sense; further ones are counted");
                    }
                    self.undecodable += 1;
                }
            }
        }
        false
    }

    /// Records that made no sense. Anything but 0 is a defect of this program.
    #[must_use]
    pub fn undecodable(&self) -> u64 {
        self.undecodable
    }

    /// Makes the ring one that can be waited for, in the runtime that this is called in.
    ///
    /// # Errors
    /// When the runtime cannot watch the ring's descriptor.
    pub fn into_stream(self) -> io::Result<EventStream> {
        // SAFETY: the descriptor is the map's own, which `ring` owns: it is open, and the same, as long as `self` lives, and
        // `self` goes into the AsyncFd.
        let ring = unsafe { AsyncFd::register_with_interest(self, Interest::READABLE) };
        Ok(EventStream { ring: ring.map_err(|error| error.into_parts().1)?, again: None })
    }
}

impl AsRawFd for EventRing {
    fn as_raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

impl EventStream {
    /// Waits until there is something, and appends it, oldest first. May append nothing. Nothing is lost when the future
    /// is dropped: it takes from the ring only after its last wait.
    ///
    /// # Errors
    /// When the runtime is shutting down.
    pub async fn next(&mut self, out: &mut Vec<KernelEvent>) -> io::Result<()> {
        // What comes before a notice is cleared is found by the look that follows.
        match self.again {
            None => self.ring.readable_mut().await?.clear_ready(),
            Some(again) => tokio::select! {
                () = sleep_until(again) => {}
                noticed = self.ring.readable_mut() => noticed?.clear_ready(),
            },
        }
        self.drain(out);
        Ok(())
    }

    /// Appends what is there, without waiting, and without taking so much at once that everything else is kept waiting.
    pub fn drain(&mut self, out: &mut Vec<KernelEvent>) {
        let before = out.len();
        let emptied = self.ring.get_mut().drain(out);
        self.again = match (emptied, out.len() > before) {
            (false, _) => Some(Instant::now()),
            (true, true) => Some(Instant::now() + LOOK_AGAIN),
            (true, false) => None,
        };
    }

    /// Records that made no sense. Anything but 0 is a defect of this program.
    #[must_use]
    pub fn undecodable(&self) -> u64 {
        self.ring.get_ref().undecodable()
    }
}
