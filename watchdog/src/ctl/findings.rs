//! `watchdogctl findings`: what the detectors concluded, with the evidence.

use super::client::Client;
use super::failure::Failure;
use super::output::Output;
use super::show::{Cell, Column, Ink, Screen, Table, age, evidence_lines, span, visible};
use crate::api::{Finding, Findings, Severity};

pub(super) async fn run(client: &Client, all: bool, output: &mut Output<'_>) -> Result<(), Failure> {
    let path = if all { "/v1/findings?all=true" } else { "/v1/findings" };
    let answer = client.get::<Findings>(path).await?;
    output.show(&answer.text, |screen| render(&answer.document, all, screen))
}

/// What stands below a finding's row begins here.
const INDENT: usize = 4;

fn render(findings: &Findings, all: bool, screen: &Screen) -> String {
    if findings.findings.is_empty() {
        return if all { "no findings, open or closed\n" } else { "no open findings\n" }.into();
    }
    let mut table = Table::new(
        0,
        vec![
            Column::right("ID"),
            Column::left("KIND"),
            Column::left("SEVERITY"),
            Column::right("SESSION"),
            Column::right("PID"),
            Column::right("SINCE"),
            Column::left("PROPOSED"),
        ],
    );
    for finding in &findings.findings {
        let severity = Cell::new(finding.severity.name());
        table.row(vec![
            Cell::new(finding.id.to_string()),
            Cell::new(finding.kind.name()).ink(Ink::Strong),
            match finding.severity {
                Severity::Info => severity,
                Severity::Warning => severity.ink(Ink::Warn),
                Severity::Critical => severity.ink(Ink::Bad),
            },
            Cell::new(finding.session.map_or_else(|| "-".into(), |id| id.to_string())),
            Cell::new(finding.pid.to_string()),
            Cell::new(ago(&finding.opened_at, screen)),
            Cell::new(&finding.proposed_action),
        ]);
        table.note(below(finding, screen));
    }
    table.render(screen)
}

fn below(finding: &Finding, screen: &Screen) -> String {
    let mut out = format!("{:INDENT$}{}\n", "", visible(&finding.summary));
    if let Some(closed_at) = &finding.closed_at {
        let why = finding.closed_because.as_deref().unwrap_or("no reason was given");
        let text = format!("closed {} ago: {}", ago(closed_at, screen), visible(why));
        out.push_str(&format!("{:INDENT$}{}\n", "", screen.paint(Ink::Faint, text)));
    }
    if let Some(action) = &finding.action_taken {
        out.push_str(&format!("{:INDENT$}action taken: {}\n", "", visible(action)));
    }
    out + &evidence_lines(&finding.evidence, INDENT + 2, screen)
}

/// How long ago; what is no moment is shown as it came.
fn ago(moment: &str, screen: &Screen) -> String {
    age(moment, screen.now).map_or_else(|| visible(moment).into_owned(), span)
}

#[cfg(test)]
mod tests {
    use super::super::show::testing::{coloured, plain};
    use super::*;
    use crate::api::FindingKind;
    use serde_json::json;

    fn orphan() -> Finding {
        let evidence = json!({
            "agent_pid": 41230,
            "agent_died_at": "2026-01-02T11:57:00Z",
            "memory_bytes": 154_140_672,
            "pids": [41231, 41240, 41241],
            "reparented_to": "systemd (1)",
        });
        Finding {
            id: 12,
            kind: FindingKind::Orphan,
            severity: Severity::Warning,
            session: Some(3),
            pid: 41231,
            start_time: 7,
            opened_at: "2026-01-02T11:57:00.004Z".into(),
            closed_at: None,
            closed_because: None,
            summary: "3 helpers outlived claude-code (41230), which was killed by SIGKILL".into(),
            evidence: evidence.as_object().unwrap().clone(),
            proposed_action: "terminate".into(),
            action_taken: None,
        }
    }

    fn closed() -> Finding {
        Finding {
            id: 9,
            kind: FindingKind::External,
            severity: Severity::Info,
            session: None,
            pid: 7,
            opened_at: "2026-01-02T09:00:00Z".into(),
            closed_at: Some("2026-01-02T11:00:00Z".into()),
            closed_because: Some("the process is gone".into()),
            summary: "container \x1b[31mmcp\x1b[0m was started for session 3".into(),
            evidence: serde_json::Map::new(),
            proposed_action: "report".into(),
            action_taken: Some("none".into()),
            ..orphan()
        }
    }

    #[test]
    fn a_finding_is_a_row_with_its_evidence_below() {
        let findings = Findings { findings: vec![closed(), orphan()] };
        insta::assert_snapshot!(render(&findings, true, &plain()), @r"
        ID  KIND      SEVERITY  SESSION    PID  SINCE  PROPOSED
         9  external  info            -      7     3h  report
            container \u{1b}[31mmcp\u{1b}[0m was started for session 3
            closed 1h ago: the process is gone
            action taken: none
        12  orphan    warning         3  41231     2m  terminate
            3 helpers outlived claude-code (41230), which was killed by SIGKILL
              agent died     3m ago
              agent pid      41230
              memory         147 MiB
              pids           41231, 41240, 41241
              reparented to  systemd (1)
        ");
    }

    #[test]
    fn severity_and_kind_are_coloured() {
        let text = render(&Findings { findings: vec![orphan()] }, false, &coloured());
        assert!(text.contains("\x1b[1morphan\x1b[0m") && text.contains("\x1b[33mwarning\x1b[0m"), "{text:?}");
    }

    #[test]
    fn that_there_are_none_is_said_aloud() {
        assert_eq!(render(&Findings::default(), false, &plain()), "no open findings\n");
        assert_eq!(render(&Findings::default(), true, &plain()), "no findings, open or closed\n");
    }
}
