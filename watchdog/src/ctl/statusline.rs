//! `watchdogctl statusline`: one short line for an agent's status line or a shell's prompt.

use std::time::Duration;

use super::client::Client;
use super::failure::Failure;
use super::output::Output;
use super::show::{Ink, Screen, count, size};
use crate::api::{Problem, Status};

/// Whoever shows it waits for it.
const PATIENCE: Duration = Duration::from_millis(100);

pub(super) fn run(client: Client, output: &mut Output<'_>) -> Result<(), Failure> {
    let client = client.with_patience(PATIENCE);
    match super::wait(client.get::<Status>("/v1/status")) {
        Ok(answer) => output.show(&answer.text, |screen| line(&answer.document, screen)),
        Err(failure) => {
            let problem = Problem { error: failure.to_string(), starting: false };
            let document = serde_json::to_string(&problem).map_err(|error| Failure::No(error.to_string()))?;
            output.show(&document, |screen| format!("{}\n", screen.paint(Ink::Faint, "watchdog: off")))
        }
    }
}

fn line(status: &Status, screen: &Screen) -> String {
    let counts = &status.counts;
    let agents = count(counts.sessions_running, "agent", "agents");
    let mut parts = vec![
        format!("{agents} {}", size(counts.memory_bytes)),
        format!("{} free", size(status.host.memory_available_bytes)),
    ];
    if counts.sessions_orphaned > 0 {
        parts.push(screen.paint(Ink::Warn, format!("{} orphaned", counts.sessions_orphaned)).into_owned());
    }
    if counts.findings_open > 0 {
        let findings = count(counts.findings_open, "finding", "findings");
        parts.push(screen.paint(Ink::Warn, findings).into_owned());
    }
    if status.breaker_open {
        parts.push(screen.paint(Ink::Bad, "breaker open").into_owned());
    }
    format!("{}\n", parts.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::super::show::testing::plain;
    use super::super::status::testing::{healthy, in_trouble};
    use super::*;

    #[test]
    fn one_line_with_what_matters() {
        assert_eq!(line(&healthy(), &plain()), "3 agents 3.0 GiB | 5.2 GiB free\n");
        assert_eq!(
            line(&in_trouble(), &plain()),
            "3 agents 3.0 GiB | 5.2 GiB free | 1 orphaned | 2 findings | breaker open\n"
        );
    }
}
