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
/// The programs give notice of a record only when none was given in the last [`NOTICE_INTERVAL_NANOS`], and the kernel passes
/// the notice on only when nothing else is in the ring. So a record without a notice that is left there keeps all later ones
/// from being noticed. Whoever found something or was given notice therefore looks once more after a longer time, until
/// there is nothing: no record waits longer than that. A notice that comes with nothing counts too, since the look that
/// took its record may have come first. (A record whose program was held up between reading the clock and submitting may
/// wait longer: [`drain`](Self::drain) the stream now and then.)
pub struct EventStream {
    ring: AsyncFd<EventRing>,
    /// When to look again without a notice.
    again: Option<Instant>,
}

/// The time from a look that found something, or from a notice, to the next.
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
        let noticed = match self.again {
            None => Some(self.ring.readable_mut().await?),
            Some(again) => tokio::select! {
                () = sleep_until(again) => None,
                noticed = self.ring.readable_mut() => Some(noticed?),
            },
        };
        self.again = noticed.map(|mut noticed| {
            // What comes before a notice is cleared is found by the look that follows.
            noticed.clear_ready();
            Instant::now() + LOOK_AGAIN
        });
        self.drain(out);
        Ok(())
    }

    /// Appends what is there, without waiting, and without taking so much at once that everything else is kept waiting. A look
    /// that is due for what was found before stays due.
    pub fn drain(&mut self, out: &mut Vec<KernelEvent>) {
        let before = out.len();
        let emptied = self.ring.get_mut().drain(out);
        match (emptied, out.len() > before) {
            (false, _) => self.again = Some(Instant::now()),
            (true, true) => self.again = Some(Instant::now() + LOOK_AGAIN),
            (true, false) => {}
        }
    }

    /// Records that made no sense. Anything but 0 is a defect of this program.
    #[must_use]
    pub fn undecodable(&self) -> u64 {
        self.ring.get_ref().undecodable()
    }
}
