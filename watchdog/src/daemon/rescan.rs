//! When all processes are looked at again: when the engine wants it, one scan at a time, and at most twice a second.

use std::time::Duration;

use tokio::time::Instant;

/// The shortest time between the beginnings of two scans. What was lost must be repaired within a second.
const PAUSE: Duration = Duration::from_millis(500);

/// Whether a scan is wanted, and when it may begin.
#[derive(Debug)]
pub(super) struct Rescan {
    wanted: bool,
    running: bool,
    not_before: Instant,
}

impl Rescan {
    /// A scan is wanted now, whatever was before.
    pub(super) fn wanted_at(now: Instant) -> Self {
        Self { wanted: true, running: false, not_before: now }
    }

    /// A scan is wanted. One that runs already does not count: it may have passed what it is wanted for.
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    /// When the next scan may begin, if one is wanted.
    pub(super) fn due(&self) -> Option<Instant> {
        (self.wanted && !self.running).then_some(self.not_before)
    }

    /// A scan has begun.
    pub(super) fn started(&mut self, now: Instant) {
        *self = Self { wanted: false, running: true, not_before: now + PAUSE };
    }

    /// The scan has ended.
    pub(super) fn ended(&mut self) {
        self.running = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_during_a_scan_pause() {
        let began = Instant::now();
        let mut rescan = Rescan::wanted_at(began);
        assert_eq!(rescan.due(), Some(began));
        rescan.started(began);
        assert_eq!(rescan.due(), None);
        for _ in 0..100 {
            rescan.want();
        }
        assert_eq!(rescan.due(), None, "one is running");
        rescan.ended();
        assert_eq!(rescan.due(), Some(began + PAUSE));
        rescan.started(began + PAUSE);
        rescan.ended();
        assert_eq!(rescan.due(), None, "nothing was lost since");
    }
}
