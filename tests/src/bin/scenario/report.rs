//! The report of a scenario.

use serde::Serialize;

use crate::guard::ScenarioGuard;
use crate::machine;
use crate::watch::ObservedDeath;

/// What became of a scenario with one guard. `xtask` reads it by these names.
#[derive(Debug, Serialize)]
pub(crate) struct ScenarioReport {
    scenario: String,
    guard: &'static str,
    /// Who died, in this order.
    pub(crate) died: String,
    /// How long that took.
    pub(crate) took: String,
    /// What the dead had held, in MiB.
    pub(crate) freed_mib: u64,
    /// What became of those that were to live.
    pub(crate) lives: String,
    /// Memory of the idle agents that was in swap.
    pub(crate) paged_out: String,
    /// How long the slowest first answer took afterwards.
    pub(crate) answer: String,
    /// Whether it was won.
    pub(crate) win: bool,
    /// What else is worth knowing.
    pub(crate) notes: Vec<String>,
    kernel: String,
}

impl ScenarioReport {
    /// Of these deaths.
    pub(crate) fn new(scenario: &str, guard: ScenarioGuard, deaths: &[ObservedDeath]) -> Self {
        Self {
            scenario: scenario.to_owned(),
            guard: guard.name(),
            died: in_order(deaths),
            took: String::new(),
            freed_mib: deaths.iter().map(|death| death.held).sum::<u64>() / watchdog_tests::MIB,
            lives: String::new(),
            paged_out: String::new(),
            answer: String::new(),
            win: false,
            notes: Vec::new(),
            kernel: machine::kernel(),
        }
    }

    /// The scenario ran with another setting.
    pub(crate) fn variant(&mut self, setting: &str) {
        self.scenario = format!("{}, {setting}", self.scenario);
    }
}

/// Who died, those after each other that played the same part counted together.
fn in_order(deaths: &[ObservedDeath]) -> String {
    let runs = deaths.chunk_by(|one, next| one.part == next.part);
    let runs = runs.map(|run| match run {
        [one] => one.part.to_owned(),
        _ => format!("{} x {}", run.len(), run[0].part),
    });
    let all: Vec<String> = runs.collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}
