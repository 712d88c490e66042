use std::cmp::Reverse;
use std::collections::BTreeMap;

use clap::Args;
use serde_json::Value;

use crate::args::id;
use crate::error::CtlError;
use crate::output::CommandOutput;
use crate::render::{Cell, Column, Style, Terminal, TextTable, count, finding_details, severity_style};
use watchdog_api::client::ControlClient;
use watchdog_api::{Finding, FindingKind, Findings, Severity};

pub(crate) const HELP: &str = "\
Findings are listed with the most severe first. Informational findings are counted; --all lists them.

Examples:
  watchdogctl findings
  watchdogctl findings 12
  watchdogctl findings --all
  watchdogctl findings --json | jq '.findings[] | select(.kind == \"orphan\") | .pid'";

#[derive(Debug, Args)]
pub(crate) struct FindingsOptions {
    /// Show this finding with its evidence
    #[arg(value_name = "ID", value_parser = id)]
    id: Option<u64>,
    /// List closed and informational findings too
    #[arg(long)]
    all: bool,
}

pub(crate) fn run(
    client: &ControlClient,
    options: &FindingsOptions,
    output: &mut CommandOutput<'_>,
) -> Result<(), CtlError> {
    let path = if options.all || options.id.is_some() { "/v1/findings?all=true" } else { "/v1/findings" };
    let reply = client.get::<Findings>(path)?;
    let mut findings = reply.document.findings;
    let Some(id) = options.id else {
        return output.show(&reply.text, |terminal| list(&mut findings, options.all, terminal));
    };
    let finding = findings.iter().find(|finding| finding.id == id).ok_or_else(|| {
        CtlError::Failed(format!(
            "no finding {id}\n`watchdogctl findings --all` lists findings, `watchdogctl history` older ones."
        ))
    })?;
    // The daemon's document, so that members of a newer version are kept.
    let mut document: Value = serde_json::from_str(&reply.text)?;
    if let Some(findings) = document.get_mut("findings").and_then(Value::as_array_mut) {
        findings.retain(|finding| finding["id"] == id);
    }
    output.show(&document.to_string(), |terminal| finding_details(finding, terminal))
}

fn list(findings: &mut [Finding], all: bool, terminal: &Terminal) -> String {
    if findings.is_empty() {
        return if all { "no findings, open or closed\n" } else { "no open findings\n" }.into();
    }
    findings.sort_by_key(|finding| (finding.closed_at.is_some(), Reverse(finding.severity), finding.id));
    let (listed, counted): (Vec<&Finding>, Vec<&Finding>) =
        findings.iter().partition(|finding| all || finding.severity > Severity::Info);
    let mut out = String::new();
    if !listed.is_empty() {
        out.push_str(&table(&listed, all, terminal));
    }
    if !counted.is_empty() {
        out.push_str(&format!("{}\n", terminal.paint(Style::Faint, informational(&counted))));
    }
    out
}

fn table(findings: &[&Finding], all: bool, terminal: &Terminal) -> String {
    let mut columns = vec![
        Column::right("ID"),
        Column::left("KIND"),
        Column::left("SEVERITY"),
        Column::right("SESSION"),
        Column::right("PID"),
        Column::right("AGE"),
    ];
    if all {
        columns.push(Column::left("STATE"));
    }
    columns.extend([Column::left("PROPOSED"), Column::left("SUMMARY")]);
    let mut table = TextTable::new(0, columns);
    for finding in findings {
        let severity = Cell::new(finding.severity.name());
        let mut row = vec![
            Cell::new(finding.id.to_string()),
            Cell::new(finding.kind.name()).style(Style::Strong),
            match severity_style(finding.severity) {
                Some(style) => severity.style(style),
                None => severity,
            },
            Cell::new(finding.session.map_or_else(|| "-".into(), |id| id.to_string())),
            Cell::new(finding.pid.to_string()),
            Cell::new(terminal.age(&finding.opened_at)),
        ];
        if all {
            row.push(Cell::new(if finding.closed_at.is_some() { "closed" } else { "open" }));
        }
        row.extend([Cell::new(&finding.proposed_action), Cell::new(&finding.summary)]);
        table.row(row);
    }
    table.render(terminal)
}

/// `3 informational findings (2 external, 1 detached): --all lists them`
fn informational(findings: &[&Finding]) -> String {
    let mut kinds: BTreeMap<FindingKind, u64> = BTreeMap::new();
    for finding in findings {
        *kinds.entry(finding.kind).or_default() += 1;
    }
    let kinds: Vec<String> = kinds.iter().map(|(kind, number)| format!("{number} {}", kind.name())).collect();
    let number = count(findings.len() as u64, "informational finding", "informational findings");
    format!("{number} ({}): --all lists them", kinds.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::testing::{coloured, narrow, plain};
    use serde_json::json;
    use watchdog_api::Evidence;

    fn orphan() -> Finding {
        let member = |pid: u32, name: &str, verdict: &str| {
            json!({
                "kind": "tool", "memory_bytes": 51_380_224, "name": name, "pid": pid, "ppid": 1, "start_time": 7,
                "verdict": verdict,
            })
        };
        let mut uncertain = member(41241, "redis-server", "unknown");
        uncertain["because"] = "it is a server".into();
        let evidence = json!({
            "agent_comm": "claude", "agent_died_seconds_ago": 180, "agent_pid": 41230, "agent_start_time": 3,
            "agent_status": { "signal": 9 }, "clear": 2, "count": 3, "in_grace": false, "memory_bytes": 154_140_672,
            "processes": [member(41231, "mcp-server", "clear"), member(41240, "node", "clear"), uncertain],
            "profile": "claude-code",
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
            summary: "3 orphaned processes (147 MiB) from claude-code (pid 41230, killed by SIGKILL 3m ago)".into(),
            evidence: serde_json::from_value(evidence).unwrap(),
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
            closed_because: Some("the process has exited\x1b".into()),
            summary: "container \x1b[31mmcp\x1b[0m was started for session 3".into(),
            evidence: Evidence::default(),
            proposed_action: "report".into(),
            action_taken: Some("none".into()),
            ..orphan()
        }
    }

    fn leak() -> Finding {
        Finding { id: 13, kind: FindingKind::Leak, severity: Severity::Critical, ..orphan() }
    }

    fn information() -> Finding {
        Finding { id: 14, closed_at: None, closed_because: None, ..closed() }
    }

    #[test]
    fn most_severe_first_information_counted() {
        let mut findings = [orphan(), information(), leak()];
        insta::assert_snapshot!(list(&mut findings, false, &narrow(100)), @r"
        ID  KIND    SEVERITY  SESSION    PID  AGE  PROPOSED   SUMMARY
        13  leak    critical        3  41231   2m  terminate  3 orphaned processes (147 MiB) from claude-co…
        12  orphan  warning         3  41231   2m  terminate  3 orphaned processes (147 MiB) from claude-co…
        1 informational finding (1 external): --all lists them
        ");
    }

    #[test]
    fn all_lists_closed_and_information() {
        let mut findings = [closed(), information(), orphan()];
        insta::assert_snapshot!(list(&mut findings, true, &plain()), @r"
        ID  KIND      SEVERITY  SESSION    PID  AGE  STATE   PROPOSED   SUMMARY
        12  orphan    warning         3  41231   2m  open    terminate  3 orphaned processes (147 MiB) from claude-code (pid 41230, killed by SIGKILL 3m ago)
        14  external  info            -      7   3h  open    report     container \u{1b}[31mmcp\u{1b}[0m was started for session 3
         9  external  info            -      7   3h  closed  report     container \u{1b}[31mmcp\u{1b}[0m was started for session 3
        ");
    }

    #[test]
    fn details_have_state_and_evidence() {
        insta::assert_snapshot!(finding_details(&orphan(), &plain()), @r"
        finding 12: orphan, warning, open for 2m
          3 orphaned processes (147 MiB) from claude-code (pid 41230, killed by SIGKILL 3m ago)
          session 3, pid 41231, proposed action: terminate
          2 of 3 may be terminated; the others are uncertain
          mcp-server (pid 41231), 49 MiB
          node (pid 41240), 49 MiB
          redis-server (pid 41241), 49 MiB, uncertain: it is a server
        ");
        let mut closed = closed();
        closed.evidence = serde_json::from_value(json!({ "memory_bytes": 4096, "image": "mcp\u{1b}" })).unwrap();
        assert!(matches!(closed.evidence, Evidence::Raw(_)), "evidence of a daemon with other members");
        insta::assert_snapshot!(finding_details(&closed, &plain()), @r"
        finding 9: external, info, closed 1h ago (the process has exited\u{1b})
          container \u{1b}[31mmcp\u{1b}[0m was started for session 3
          pid 7, proposed action: report
          action taken: none
          image   mcp\u{1b}
          memory  4.0 KiB
        ");
    }

    #[test]
    fn severity_and_kind_are_coloured() {
        let text = list(&mut [orphan()], false, &coloured());
        assert!(text.contains("\x1b[1morphan\x1b[0m") && text.contains("\x1b[33mwarning\x1b[0m"), "{text:?}");
    }

    #[test]
    fn empty_list_says_so() {
        assert_eq!(list(&mut [], false, &plain()), "no open findings\n");
        assert_eq!(list(&mut [], true, &plain()), "no findings, open or closed\n");
    }
}
