//! Follows the tests of a binary by libtest's output.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::test_totals::Totals;

/// libtest prints a line when a test has run for this long.
const WARNED_AFTER: Duration = Duration::from_secs(60);

pub(super) struct TestProgress {
    limit: Duration,
    totals: Totals,
    /// Slow tests that libtest has reported, with their start.
    late: BTreeMap<String, Instant>,
    /// End of the last test, or start of the binary.
    last_end: Instant,
}

impl TestProgress {
    /// `limit`: per test.
    pub(super) fn new(limit: Duration, now: Instant) -> Self {
        Self { limit, totals: Totals::default(), late: BTreeMap::new(), last_end: now }
    }

    /// Reads a line of the binary's output.
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

    /// When a test exceeds its time limit. libtest does not report a slow test that runs alone: then the limit counts from
    /// the end of the one before.
    pub(super) fn deadline(&self) -> Instant {
        let earliest = self.late.values().min().copied();
        earliest.unwrap_or(self.last_end) + self.limit
    }

    /// Slow tests that are still running.
    pub(super) fn late(&self) -> impl Iterator<Item = &str> {
        self.late.keys().map(String::as_str)
    }

    /// Totals of a killed binary: its late tests have failed, at least one.
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
    fn late_test_keeps_its_limit() {
        let start = Instant::now();
        let mut progress = TestProgress::new(LIMIT, start);
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
        let mut progress = TestProgress::new(LIMIT, start);
        progress.read("test one has been running for over 60 seconds", after(60, start));
        progress.read("test one - should panic ... ok", after(61, start));
        assert_eq!((progress.late().count(), progress.deadline()), (0, after(661, start)));
    }
}
