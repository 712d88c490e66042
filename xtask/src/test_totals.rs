//! Test totals in the format of `cargo test`.

use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

/// The sum of some `test result:` lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// Marked `#[ignore]`.
    pub(crate) ignored: u64,
    /// Excluded by the filter.
    pub(crate) filtered_out: u64,
    pub(crate) time: Duration,
}

impl Totals {
    /// Parses a `test result:` line.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (_ok, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let mut totals = Self::default();
        for part in counts.split("; ") {
            if let Some(seconds) = part.strip_prefix("finished in ") {
                totals.time = Duration::try_from_secs_f64(seconds.strip_suffix('s')?.parse().ok()?).ok()?;
                continue;
            }
            let (count, what) = part.split_once(' ')?;
            let count = count.parse().ok()?;
            match what {
                "passed" => totals.passed = count,
                "failed" => totals.failed = count,
                "ignored" => totals.ignored = count,
                "filtered out" => totals.filtered_out = count,
                _ => {}
            }
        }
        Some(totals)
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        let Self { passed, failed, ignored, filtered_out, time } = other;
        self.passed += passed;
        self.failed += failed;
        self.ignored += ignored;
        self.filtered_out += filtered_out;
        self.time += time;
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, ignored, filtered_out, time } = self;
        let word = if *failed == 0 { "ok" } else { "FAILED" };
        write!(
            f,
            "test result: {word}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; \
             {filtered_out} filtered out; finished in {:.2}s",
            time.as_secs_f64()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_line_round_trips() {
        let line =
            "test result: FAILED. 12 passed; 1 failed; 3 ignored; 0 measured; 40 filtered out; finished in 34.10s";
        let totals = Totals::parse(line).unwrap();
        assert_eq!((totals.passed, totals.failed, totals.ignored, totals.filtered_out), (12, 1, 3, 40));
        assert_eq!(totals.to_string(), line);
    }

    #[test]
    fn single_test_line_is_ignored() {
        assert_eq!(Totals::parse("test totals::tests::a ... ok"), None);
        assert_eq!(Totals::parse("test result: ok. some passed"), None);
    }

    #[test]
    fn one_failure_fails_the_sum() {
        let mut sum = Totals { passed: 5, ..Totals::default() };
        sum += Totals { failed: 1, ..Totals::default() };
        assert!(sum.to_string().starts_with("test result: FAILED. 5 passed; 1 failed;"));
    }
}
