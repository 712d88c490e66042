use std::time::Duration;

use crate::error::CtlError;
use crate::output::CommandOutput;
use crate::render::{Style, Terminal, count, size};
use watchdog_api::client::{ClientError, ControlClient, RequestProgress};
use watchdog_api::{Problem, Status};

/// The agent or the shell that shows the line waits for it.
const TIMEOUT: Duration = Duration::from_millis(100);

pub(crate) fn run(client: ControlClient, output: &mut CommandOutput<'_>) -> Result<(), CtlError> {
    match client.with_timeout(TIMEOUT).get::<Status>("/v1/status") {
        Ok(reply) => output.show(&reply.text, |terminal| line(&reply.document, terminal)),
        Err(error) => {
            let problem = Problem { error: error.to_string(), starting: false };
            let text = format!("watchdog: {}", state(&error));
            output.show_value(&problem, |terminal| format!("{}\n", terminal.paint(Style::Faint, text)))
        }
    }
}

fn state(error: &ClientError) -> &'static str {
    match error {
        ClientError::Unreachable { progress: RequestProgress::NotConnected, .. } => "off",
        ClientError::Unreachable { .. } => "no response",
        ClientError::Forbidden(_) => "not permitted",
        ClientError::Busy { .. } => "busy",
        ClientError::NotFound(_)
        | ClientError::BadRequest(_)
        | ClientError::Failed(_)
        | ClientError::InvalidResponse { .. } => "error",
    }
}

fn line(status: &Status, terminal: &Terminal) -> String {
    let counts = &status.counts;
    let agents = count(counts.sessions_running, "agent", "agents");
    let mut parts = vec![
        format!("{agents} {}", size(counts.memory_bytes)),
        format!("{} free", size(status.host.memory_available_bytes)),
    ];
    if counts.sessions_orphaned > 0 {
        let orphaned = count(counts.sessions_orphaned, "orphaned session", "orphaned sessions");
        parts.push(terminal.paint(Style::Warn, orphaned).into_owned());
    }
    if counts.findings_open > 0 {
        let findings = count(counts.findings_open, "finding", "findings");
        parts.push(terminal.paint(Style::Warn, findings).into_owned());
    }
    if status.breaker_open {
        parts.push(terminal.paint(Style::Bad, "breaker open").into_owned());
    }
    format!("{}\n", parts.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{healthy_status, troubled_status};
    use crate::render::testing::plain;

    #[test]
    fn line_shows_problems_only_when_present() {
        assert_eq!(line(&healthy_status(), &plain()), "3 agents 3.0 GiB | 5.2 GiB free\n");
        assert_eq!(
            line(&troubled_status(), &plain()),
            "3 agents 3.0 GiB | 5.2 GiB free | 1 orphaned session | 2 findings | breaker open\n"
        );
    }
}
