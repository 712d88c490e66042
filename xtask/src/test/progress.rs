//! Which tests of a binary have ended, as libtest prints it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::totals::Totals;

/// libtest prints one line when a test has run for this long.
const WARNED_AFTER: Duration = Duration::from_secs(60);

/// How far a test binary is.
pub(super) struct Progress {
    limit: Duration,
    totals: Totals,
    /// Tests that libtest has warned of, with their start.
    late: BTreeMap<String, Instant>,
    /// When the last test ended, or the binary was started.
    last_end: Instant,
}

impl Progress {
    /// A binary that starts now, each of whose tests may take as long as `limit`.
    pub(super) fn new(limit: Duration, now: Instant) -> Self {
        Self { limit, totals: Totals::default(), late: BTreeMap::new(), last_end: now }
    }

    /// Takes in a line of the binary's output.
    pub(super) fn read(&mut self, line: &str, now: Instant) {
        let Some(text) = line.trim_end().strip_prefix("test ") else { return };
        if let Some(name) = text.strip_suffix(" has been running for over 60 seconds") {
            self.late.insert(name.to_owned(), now.checked_sub(WARNED_AFTER).unwrap_or(now));
        } else if let Some((name, result)) = text.rsplit_once(" ... ") {
            match result {
                "ok" => self.totals.passed += 1,
                "FAILED" => self.totals.failed += 1,
                _ => self.totals.ignored += 1,
            }
            self.late.remove(name.trim_end_matches(" - should panic"));
            self.last_end = now;
        }
    }

    /// When the time limit of a test passes. libtest does not warn of a test that runs alone: then it is the time since the
    /// end of the one before.
    pub(super) fn deadline(&self) -> Instant {
        let earliest = self.late.values().min().copied();
        earliest.unwrap_or(self.last_end) + self.limit
    }

    /// The tests that libtest has warned of, and that still run.
    pub(super) fn late(&self) -> impl Iterator<Item = &str> {
        self.late.keys().map(String::as_str)
    }

    /// The totals of a binary that was killed: its late tests have failed, one of them at least.
    pub(super) fn totals_when_killed(&self) -> Totals {
        let Self { totals, late, .. } = self;
        Totals { failed: totals.failed + late.len().max(1) as u64, ..*totals }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(600);

    fn after(seconds: u64, start: Instant) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn late_test_has_limit_from_start() {
        let start = Instant::now();
        let mut progress = Progress::new(LIMIT, start);
        progress.read("test one ... ok\n", after(50, start));
        assert_eq!(progress.deadline(), after(650, start));
        progress.read("test gate::two has been running for over 60 seconds\n", after(70, start));
        progress.read("test three ... FAILED\n", after(90, start));
        assert_eq!(progress.deadline(), after(610, start));
        assert_eq!(progress.late().collect::<Vec<_>>(), ["gate::two"]);
        let Totals { passed, failed, .. } = progress.totals_when_killed();
        assert_eq!((passed, failed), (1, 2));
    }

    #[test]
    fn finished_test_is_not_late() {
        let start = Instant::now();
        let mut progress = Progress::new(LIMIT, start);
        progress.read("test one has been running for over 60 seconds", after(60, start));
        progress.read("test one - should panic ... ok", after(61, start));
        assert_eq!((progress.late().count(), progress.deadline()), (0, after(661, start)));
    }
}
