//! What a guest says about a scenario.

use serde::Deserialize;

/// The line of the console on which it does.
const PREFIX: &str = "scenario: ";

/// What became of a scenario with one guard: `Report` of `tests/src/bin/scenario`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Report {
    /// Which scenario.
    pub(super) scenario: String,
    /// Who guarded.
    pub(super) guard: String,
    /// Who died, in this order.
    pub(super) died: String,
    /// How long that took.
    pub(super) took: String,
    /// What the dead had held, in MiB.
    pub(super) freed_mib: u64,
    /// What became of those that were to live.
    pub(super) lives: String,
    /// Whether it was won.
    pub(super) win: bool,
    /// What else is worth knowing.
    pub(super) notes: Vec<String>,
    /// The release of the guest's kernel.
    pub(super) kernel: String,
}

impl Report {
    /// Reads a line, if it is one.
    pub(super) fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line.strip_prefix(PREFIX)?).ok()
    }

    /// Of a scenario that did not come to its end.
    pub(super) fn missing(scenario: &str, guard: &str) -> Self {
        Self {
            scenario: scenario.to_owned(),
            guard: guard.to_owned(),
            died: "did not come to its end".to_owned(),
            took: String::new(),
            freed_mib: 0,
            lives: String::new(),
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
    fn only_a_line_of_the_runner_is_a_report() {
        let line = r#"scenario: {"scenario":"A2","guard":"earlyoom","died":"innocent","took":"1 s","freed_mib":180,"lives":"innocent: dead","win":false,"notes":[],"kernel":"6.12"}"#;
        let report = Report::parse(line).unwrap();
        assert_eq!((report.scenario.as_str(), report.freed_mib, report.win), ("A2", 180, false));
        assert!(Report::parse("guest: running scenario 900 A2 earlyoom").is_none());
        assert!(Report::parse("scenario: it panicked").is_none());
    }
}
