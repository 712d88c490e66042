//! What is said about a scenario.

use serde::Serialize;

use crate::guard::Guard;
use crate::machine;
use crate::watch::Death;

/// What became of a scenario with one guard. `xtask` reads it by these names.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
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
    /// Whether it was won.
    pub(crate) win: bool,
    /// What else is worth knowing.
    pub(crate) notes: Vec<String>,
    kernel: String,
}

impl Report {
    /// Of these deaths.
    pub(crate) fn new(scenario: &str, guard: Guard, deaths: &[Death]) -> Self {
        Self {
            scenario: scenario.to_owned(),
            guard: guard.name(),
            died: in_order(deaths),
            took: String::new(),
            freed_mib: deaths.iter().map(|death| death.held).sum::<u64>() / watchdog_tests::MIB,
            lives: String::new(),
            win: false,
            notes: Vec::new(),
            kernel: machine::kernel(),
        }
    }
}

/// Who died, those after each other that played the same part counted together.
fn in_order(deaths: &[Death]) -> String {
    let runs = deaths.chunk_by(|one, next| one.part == next.part);
    let runs = runs.map(|run| match run {
        [one] => one.part.to_owned(),
        _ => format!("{} x {}", run.len(), run[0].part),
    });
    let all: Vec<String> = runs.collect();
    if all.is_empty() { "nobody".to_owned() } else { all.join(", ") }
}
