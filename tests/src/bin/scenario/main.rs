//! Runs one scenario with one guard in a guest and reports the outcome: `scenario NAME GUARD`.
//!
//! `cargo xtask scenarios` boots the guest and reads the lines that begin with `scenario: `. It does nothing outside a guest,
//! since scenarios exhaust the memory or change system settings.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a scenario that cannot be staged reports by a panic, as tests do"
)]

mod crowd;
mod guard;
mod launch_beside_idle;
mod left_behind;
mod machine;
mod moved;
mod out_of_memory;
mod report;
mod resumed;
mod reused;
mod thrash;
mod watch;

use std::process::ExitCode;

use guard::ScenarioGuard;
use report::ScenarioReport;

fn main() -> ExitCode {
    if !watchdog_tests::in_guest() {
        eprintln!("scenarios are staged in guests only: cargo xtask scenarios");
        return ExitCode::from(2);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, guard] = arguments.as_slice() else {
        eprintln!("scenario NAME GUARD");
        return ExitCode::from(2);
    };
    let Some(guard) = ScenarioGuard::named(guard) else {
        eprintln!("no guard is called {guard}");
        return ExitCode::from(2);
    };
    let reports: Vec<ScenarioReport> = match name.as_str() {
        "A1" => vec![left_behind::stage(guard)],
        "A2" => vec![out_of_memory::many_small_ones(guard)],
        "A3" => vec![out_of_memory::one_that_ignores_term(guard)],
        "A7" => vec![reused::stage()],
        "A9" => vec![thrash::stage(guard)],
        "A11" => resumed::stage(),
        "A12" => vec![moved::stage()],
        "R1" => vec![crowd::stage(guard)],
        "R2" => launch_beside_idle::stage(guard),
        _ => {
            eprintln!("no scenario is called {name}");
            return ExitCode::from(2);
        }
    };
    for report in &reports {
        // The line begins where a line begins, whatever was printed before.
        println!("\nscenario: {}", serde_json::to_string(report).unwrap());
    }
    ExitCode::SUCCESS
}
