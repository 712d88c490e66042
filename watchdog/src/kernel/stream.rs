//! From a ring to events.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use aya::maps::{MapData, RingBuf};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use watchdog_common::NOTICE_INTERVAL_NANOS;

use super::alarm::Alarm;
use super::decode::decode;
use crate::engine::id::BootTime;
use crate::engine::input::KernelEvent;
use crate::host::clock;

/// One of the two rings, read when it suits the reader.
pub struct EventRing {
    ring: RingBuf<MapData>,
    undecodable: u64,
}

/// A ring that can be waited for.
///
/// The programs give notice of a record only when none was given in the last [`NOTICE_INTERVAL_NANOS`], and the kernel passes
/// the notice on only when nothing else is in the ring. So as long as a look finds a record that is younger than that
/// interval, a later record may come without a notice, and another look is due. (A record whose program was held up between
/// reading the clock and submitting may wait longer: [`drain`](Self::drain) the stream now and then.)
///
/// To wake up costs more than to read a record, and to handle a record more than to read it, since everything is cold by
/// then. So while records come in, a notice is followed by a look after [`SETTLE`] only, by which most short processes have
/// forked, executed and exited; and what is not urgent is kept for [`HOLD`], for all of it to be handled in one go.
pub struct EventStream {
    ring: AsyncFd<EventRing>,
    alarm: Alarm,
    /// When the last look was, and the next is due without a notice.
    looked: BootTime,
    again: Option<BootTime>,
    /// What was read and is not urgent.
    held: Vec<KernelEvent>,
    held_until: Option<BootTime>,
}

/// A record this old has not suppressed the notice of a later one.
const LOOK_AGAIN: Duration = Duration::from_nanos(NOTICE_INTERVAL_NANOS + 1_000_000);
/// From a notice to the look, unless nothing has come for [`QUIET`]: then the look is at once.
const SETTLE: Duration = Duration::from_millis(8);
const QUIET: Duration = Duration::from_millis(100);
/// How long an event waits that is not urgent, and how many do.
const HOLD: Duration = Duration::from_millis(50);
const HELD_MAX: usize = 512;

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
        Ok(EventStream {
            ring: ring.map_err(|error| error.into_parts().1)?,
            alarm: Alarm::new()?,
            looked: BootTime::default(),
            again: None,
            held: Vec::new(),
            held_until: None,
        })
    }
}

impl AsRawFd for EventRing {
    fn as_raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

impl EventStream {
    /// Waits until there is something urgent, or something has waited for long enough, and appends all there is, oldest first.
    /// Nothing is lost when the future is dropped.
    ///
    /// # Errors
    /// When the runtime is shutting down, or the timer cannot be set.
    pub async fn next(
        &mut self,
        out: &mut Vec<KernelEvent>,
        is_urgent: impl Fn(&KernelEvent) -> bool,
    ) -> io::Result<()> {
        loop {
            let due = [self.again, self.held_until].into_iter().flatten().min();
            self.alarm.set(due)?;
            let noticed = tokio::select! {
                noticed = self.ring.readable_mut() => {
                    // What comes before a notice is cleared is found by the look that follows.
                    noticed?.clear_ready();
                    true
                }
                rung = self.alarm.rings() => {
                    rung?;
                    false
                }
            };
            let now = clock::now();
            if noticed && due.is_none_or(|due| now < due) && now.since(self.looked) < QUIET {
                let settled = now.plus(SETTLE);
                self.again = Some(self.again.map_or(settled, |again| again.min(settled)));
                continue;
            }
            let before = self.held.len();
            self.look(now);
            if self.held.len() >= HELD_MAX
                || self.held_until.is_some_and(|until| now >= until)
                || self.held[before..].iter().any(&is_urgent)
            {
                self.hand_over(out);
                return Ok(());
            }
        }
    }

    /// Appends what is there, without waiting, and without taking so much at once that everything else is kept waiting.
    pub fn drain(&mut self, out: &mut Vec<KernelEvent>) {
        self.look(clock::now());
        self.hand_over(out);
    }

    /// Takes this many records out of the ring, which were read in another way, and looks for more at once.
    pub fn skip(&mut self, records: usize) {
        let ring = &mut self.ring.get_mut().ring;
        for _ in 0..records {
            drop(ring.next());
        }
        self.again = Some(clock::now());
    }

    fn look(&mut self, now: BootTime) {
        let before = self.held.len();
        let emptied = self.ring.get_mut().drain(&mut self.held);
        let youngest = self.held[before..].iter().map(KernelEvent::at).max();
        self.looked = now;
        let again = match youngest {
            _ if !emptied => Some(now),
            Some(youngest) => Some(youngest.plus(LOOK_AGAIN)).filter(|again| *again > now),
            None => self.again.filter(|again| *again > now),
        };
        self.again = again;
        if !self.held.is_empty() && self.held_until.is_none() {
            self.held_until = Some(now.plus(HOLD));
        }
    }

    fn hand_over(&mut self, out: &mut Vec<KernelEvent>) {
        out.append(&mut std::mem::take(&mut self.held));
        self.held_until = None;
    }

    /// Records that made no sense. Anything but 0 is a defect of this program.
    #[must_use]
    pub fn undecodable(&self) -> u64 {
        self.ring.get_ref().undecodable()
    }
}
