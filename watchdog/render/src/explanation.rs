//! Why a process or a session died, or has a finding.

use serde_json::{Map, Value};

use super::escape::escape;
use super::evidence::lines as evidence_lines;
use super::finding::details as finding_details;
use super::receipt;
use super::terminal::{Style, Terminal};
use watchdog_api::{Death, Explanation};
use watchdog_types::units::count;

/// Columns before the text below a heading.
const INDENT: usize = 2;
/// Deaths of a session, and targets of an action, that are listed.
const MAX_LISTED: usize = 20;
/// Members that the summary contains, or that are for programs only.
const HIDDEN: [&str; 11] = [
    "summary",
    "while_no_daemon_ran",
    "started_at",
    "pid",
    "start_time",
    "session",
    "profile",
    "name",
    "died_with_count",
    "series",
    "killed_together",
];

/// `pid` limits actions to what concerns this process.
#[must_use]
pub fn explanation(explanation: &Explanation, pid: Option<u32>, terminal: &Terminal) -> String {
    let mut out = terminal.wrap(&escape(&explanation.summary), 0);
    let shown = match (&explanation.process, explanation.deaths.as_slice()) {
        // A single dead process.
        (None, [death]) => {
            out.push('\n');
            out.push_str(&numbers(death, terminal));
            1
        }
        _ => 0,
    };
    let deaths = explanation.deaths.iter().skip(shown);
    let more = deaths.len().saturating_sub(MAX_LISTED);
    let lines: Vec<String> = deaths.take(MAX_LISTED).map(|death| line(death, terminal)).collect();
    if !lines.is_empty() {
        out.push_str("\ndeaths, latest first\n");
        lines.iter().for_each(|line| out.push_str(line));
        if more > 0 {
            out.push_str(&format!("{:INDENT$}and {}\n", "", count(more as u64, "other", "others")));
        }
    }
    for finding in &explanation.findings {
        out.push('\n');
        out.push_str(&finding_details(finding, terminal));
    }
    for receipt in &explanation.receipts {
        out.push('\n');
        out.push_str(&receipt::explanation(receipt, pid, MAX_LISTED, terminal));
    }
    out
}

/// The members of a death, objects as groups.
fn numbers(death: &Death, terminal: &Terminal) -> String {
    let Ok(Value::Object(mut facts)) = serde_json::to_value(death) else { return String::new() };
    facts.retain(|key, _| !HIDDEN.contains(&key.as_str()));
    let (groups, single): (Map<String, Value>, _) = facts.into_iter().partition(|(_, value)| value.is_object());
    let mut out = evidence_lines(&single, INDENT, terminal);
    for (name, group) in &groups {
        if let Value::Object(group) = group {
            out.push_str(&format!("{:INDENT$}{}\n", "", terminal.paint(Style::Faint, name.replace('_', " "))));
            out.push_str(&evidence_lines(group, 2 * INDENT, terminal));
        }
    }
    out
}

fn line(death: &Death, terminal: &Terminal) -> String {
    let facts = &death.facts;
    let ago = terminal.ago(&death.died_at);
    format!("{:INDENT$}{ago}  {}  {}  {}\n", "", facts.pid, facts.cause.name(), escape(&facts.name))
}

#[cfg(test)]
#[path = "explanation_tests.rs"]
mod tests;
