//! Reads events from the rings.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use aya::maps::{Array, MapData, RingBuf};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::alarm::Alarm;
use super::decode::decode;
use watchdog_host::clock;
use watchdog_types::{BootTime, KernelEvent};

pub struct EventRing {
    ring: RingBuf<MapData>,
    /// Until when the programs give no notice.
    quiet: Array<MapData, u64>,
    reported_invalid: bool,
}

/// A ring that can be waited for.
///
/// To wake up costs more than to read a record, and to handle a record more than to read it, since everything is cold by
/// then. So records are handled in batches: a look that finds some is followed by another one after [`HOLD`], and the
/// programs give no notice of what comes until then. Exceptions are records that must be handled at once: they wake the
/// reader at any time.
///
/// A look that finds nothing ends the quiet. A program that decided before to give no notice may submit its record after
/// it, so one more look follows. (A program may be held up for longer: [`drain`](Self::drain) the stream now and then.)
pub struct EventStream {
    ring: AsyncFd<EventRing>,
    alarm: Alarm,
    /// When a look is due without a notice.
    due: Option<BootTime>,
    /// The programs give no notice before this moment. Until then, a look is due.
    quiet_until: BootTime,
    /// Events that were read and are not urgent.
    held: Vec<KernelEvent>,
}

/// How long an event waits that is not urgent, and how many do.
const HOLD: Duration = Duration::from_millis(100);
const HELD_MAX: usize = 512;
/// From an urgent event to the next look.
const SOON: Duration = Duration::from_millis(8);
/// Quiet is asked for this long, which costs a system call, and ended by the first look that finds nothing.
const QUIET: Duration = Duration::from_secs(1);

/// Most records that one call takes, so that a storm of events does not keep everything else waiting.
const BATCH: usize = 4_096;

impl EventRing {
    pub(super) fn new(ring: RingBuf<MapData>, quiet: Array<MapData, u64>) -> Self {
        Self { ring, quiet, reported_invalid: false }
    }

    /// Appends what is in the ring, oldest first. Returns whether the ring was emptied; it was not when so much came that
    /// the rest is left for the next call.
    pub fn drain(&mut self, out: &mut Vec<KernelEvent>) -> bool {
        for _ in 0..BATCH {
            let Some(record) = self.ring.next() else { return true };
            match decode(&record) {
                Ok(event) => out.push(event),
                Err(error) => {
                    if !std::mem::replace(&mut self.reported_invalid, true) {
                        tracing::error!(%error, "invalid record from the kernel programs; further ones are not logged");
                    }
                }
            }
        }
        false
    }

    /// Makes the ring one that can be waited for, in the runtime that this is called in.
    ///
    /// # Errors
    /// When the runtime cannot watch the ring's descriptor, or the programs cannot be asked for notices.
    pub fn into_stream(self) -> io::Result<EventStream> {
        // SAFETY: the descriptor is the map's own, which `ring` owns: it is open, and the same, as long as `self` lives, and
        // `self` goes into the AsyncFd.
        let ring = unsafe { AsyncFd::register_with_interest(self, Interest::READABLE) };
        let ring = ring.map_err(|error| error.into_parts().1)?;
        let (due, quiet_until, held) = (None, BootTime::default(), Vec::new());
        let mut stream = EventStream { ring, alarm: Alarm::new()?, due, quiet_until, held };
        // An earlier daemon may have asked for quiet.
        stream.set_quiet(BootTime::default())?;
        Ok(stream)
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
    /// When the runtime is shutting down, or the timer or the programs' map cannot be set.
    pub async fn next(
        &mut self,
        out: &mut Vec<KernelEvent>,
        is_urgent: impl Fn(&KernelEvent) -> bool,
    ) -> io::Result<()> {
        loop {
            self.alarm.set(self.due)?;
            tokio::select! {
                noticed = self.ring.readable_mut() => {
                    // What comes before a notice is cleared is found by the look that follows.
                    noticed?.clear_ready();
                }
                rung = self.alarm.rings() => rung?,
            }
            let now = clock::now();
            let before = self.held.len();
            let emptied = self.ring.get_mut().drain(&mut self.held);
            let found = &self.held[before..];
            let (found, is_urgent) = (!found.is_empty(), found.iter().any(&is_urgent));
            let is_due = self.due.is_some_and(|due| now >= due);
            if !emptied {
                self.due = Some(now);
            } else if is_urgent {
                self.look_after(SOON, now)?;
            } else if found && (is_due || self.due.is_none()) {
                self.look_after(HOLD, now)?;
            } else if is_due && self.quiet_until != BootTime::default() {
                self.set_quiet(BootTime::default())?;
                self.due = Some(now.plus(HOLD));
            } else if is_due {
                self.due = None;
            }
            if is_urgent || self.held.len() >= HELD_MAX || (is_due && !self.held.is_empty()) {
                self.hand_over(out);
                return Ok(());
            }
        }
    }

    /// Appends what is there, without waiting, and without taking so much at once that everything else is kept waiting.
    pub fn drain(&mut self, out: &mut Vec<KernelEvent>) {
        if !self.ring.get_mut().drain(&mut self.held) {
            self.due = Some(clock::now());
        }
        self.hand_over(out);
    }

    fn hand_over(&mut self, out: &mut Vec<KernelEvent>) {
        out.append(&mut self.held);
        self.held.shrink_to(HELD_MAX);
    }

    /// Takes this many records out of the ring, which were read in another way, and looks for more at once.
    pub fn skip(&mut self, records: usize) {
        let ring = &mut self.ring.get_mut().ring;
        for _ in 0..records {
            drop(ring.next());
        }
        self.due = Some(clock::now());
    }

    /// Reads again soon: something waits for events of any kind.
    ///
    /// # Errors
    /// When the programs' map cannot be set.
    pub fn read_soon(&mut self) -> io::Result<()> {
        let now = clock::now();
        if self.due.is_some_and(|due| due > now.plus(SOON)) {
            self.look_after(SOON, now)?;
        }
        Ok(())
    }

    /// Looks again after this time, and needs no notice until then.
    fn look_after(&mut self, time: Duration, now: BootTime) -> io::Result<()> {
        let due = now.plus(time);
        self.due = Some(due);
        if due > self.quiet_until {
            self.set_quiet(now.plus(QUIET))?;
        }
        Ok(())
    }

    fn set_quiet(&mut self, until: BootTime) -> io::Result<()> {
        let set = self.ring.get_mut().quiet.set(0, until.0, 0);
        self.quiet_until = until;
        set.map_err(|error| io::Error::other(format!("cannot ask the kernel programs for quiet: {error}")))
    }
}
