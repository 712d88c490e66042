//! One finding with its evidence.

use super::escape::escape;
use super::evidence::facts as evidence_facts;
use super::terminal::{Style, Terminal};
use watchdog_api::{Finding, Severity};

/// Columns before the text below the heading.
const INDENT: usize = 2;

pub fn details(finding: &Finding, terminal: &Terminal) -> String {
    let Finding { id, kind, severity, proposed_action, .. } = finding;
    let state = match &finding.closed_at {
        None => format!("open for {}", terminal.age(&finding.opened_at)),
        Some(closed_at) => {
            let reason = finding.closed_because.as_deref().map_or_else(String::new, |why| format!(" ({why})"));
            format!("closed {}{reason}", terminal.ago(closed_at))
        }
    };
    let heading = format!("finding {id}: {}, {}, {}", kind.name(), severity.name(), escape(&state));
    let mut out = format!("{}\n", terminal.paint(Style::Strong, heading));
    let mut line = |text: &str| out.push_str(&terminal.wrap(&escape(text), INDENT));
    line(&finding.summary);
    let session = finding.session.map_or_else(String::new, |id| format!("session {id}, "));
    line(&format!("{session}pid {}, proposed action: {proposed_action}", finding.pid));
    if let Some(action) = &finding.action_taken {
        line(&format!("action taken: {action}"));
    }
    out + &evidence_facts(&finding.evidence, INDENT, terminal)
}

/// No style for information.
pub fn severity_style(severity: Severity) -> Option<Style> {
    match severity {
        Severity::Info => None,
        Severity::Warning => Some(Style::Warn),
        Severity::Critical => Some(Style::Bad),
    }
}
