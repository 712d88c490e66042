//! The reports of a scenario on the guest's console.

use serde::Deserialize;

/// Prefix of the line.
const PREFIX: &str = "scenario: ";

/// The outcome of a scenario with one guard, as written by `tests/src/bin/scenario`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct RunReport {
    pub(super) scenario: String,
    pub(super) guard: String,
    /// Killed processes, in order.
    pub(super) died: String,
    pub(super) took: String,
    /// Memory of the killed processes, in MiB.
    pub(super) freed_mib: u64,
    /// State of the processes that must survive.
    pub(super) lives: String,
    /// Memory of idle agents in swap.
    pub(super) paged_out: String,
    /// The slowest first answer of an agent that was paged out.
    pub(super) answer: String,
    pub(super) win: bool,
    pub(super) notes: Vec<String>,
    /// Kernel release.
    pub(super) kernel: String,
}

impl RunReport {
    /// Parses a console line.
    pub(super) fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line.strip_prefix(PREFIX)?).ok()
    }

    /// The report of an unfinished scenario.
    pub(super) fn missing(scenario: &str, guard: &str) -> Self {
        Self {
            scenario: scenario.to_owned(),
            guard: guard.to_owned(),
            died: "unfinished".to_owned(),
            took: String::new(),
            freed_mib: 0,
            lives: String::new(),
            paged_out: String::new(),
            answer: String::new(),
            win: false,
            notes: Vec::new(),
            kernel: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_runner_lines_are_reports() {
        let line = r#"scenario: {"scenario":"A2","guard":"earlyoom","died":"innocent","took":"1 s","freed_mib":180,"lives":"innocent: dead","paged_out":"","answer":"","win":false,"notes":[],"kernel":"6.12"}"#;
        let report = RunReport::parse(line).unwrap();
        assert_eq!((report.scenario.as_str(), report.freed_mib, report.win), ("A2", 180, false));
        assert!(RunReport::parse("guest: running scenario 900 A2 earlyoom").is_none());
        assert!(RunReport::parse("scenario: it panicked").is_none());
    }
}
