//! Schedules scans of all processes: on request of the engine, one at a time, at most twice a second.

use std::time::Duration;

use tokio::time::Instant;

/// The shortest time between the starts of two scans. Losses must be repaired within a second.
const MIN_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Rescan {
    requested: bool,
    running: bool,
    not_before: Instant,
}

impl Rescan {
    pub(super) fn requested_at(now: Instant) -> Self {
        Self { requested: true, running: false, not_before: now }
    }

    /// Requests a scan. A running one does not count: it may have passed the process that is of interest.
    pub(super) fn request(&mut self) {
        self.requested = true;
    }

    /// When the next scan may start, if one is requested.
    pub(super) fn due(&self) -> Option<Instant> {
        (self.requested && !self.running).then_some(self.not_before)
    }

    pub(super) fn started(&mut self, now: Instant) {
        *self = Self { requested: false, running: true, not_before: now + MIN_INTERVAL };
    }

    pub(super) fn ended(&mut self) {
        self.running = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_during_scan_are_delayed() {
        let began = Instant::now();
        let mut rescan = Rescan::requested_at(began);
        assert_eq!(rescan.due(), Some(began));
        rescan.started(began);
        assert_eq!(rescan.due(), None);
        for _ in 0..100 {
            rescan.request();
        }
        assert_eq!(rescan.due(), None, "one is running");
        rescan.ended();
        assert_eq!(rescan.due(), Some(began + MIN_INTERVAL));
        rescan.started(began + MIN_INTERVAL);
        rescan.ended();
        assert_eq!(rescan.due(), None, "nothing was lost since");
    }
}
