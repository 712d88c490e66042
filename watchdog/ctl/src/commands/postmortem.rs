use std::path::Path;

use serde::Deserialize;

use super::history::unreadable;
use crate::error::CtlError;
use crate::output::CommandOutput;
use crate::render::{Style, Terminal, count, escape, record_line, size, span};
use watchdog_api::client::{ClientError, ControlClient};
use watchdog_api::{End, Finding, FindingKind, Growth, HostTrend, Postmortem, ProcessMemory, Record, SessionMemory};
use watchdog_history as history;
use watchdog_history::postmortem::{PostmortemError, PostmortemRequest, reconstruct};
use watchdog_types::Viewer;

/// Limit of sessions and of processes in text. JSON has all.
const MAX_ROWS: usize = 8;
/// Limit of kills in text, the last ones. JSON has all.
const MAX_KILLS: usize = 20;

pub(crate) fn run(
    client: &ControlClient,
    state_dir: &Path,
    boot: Option<i64>,
    output: &mut CommandOutput<'_>,
) -> Result<(), CtlError> {
    let path = boot.map_or_else(|| "/v1/postmortem".to_owned(), |boot| format!("/v1/postmortem?boot={boot}"));
    match client.get::<Postmortem>(&path) {
        Ok(reply) => output.show(&reply.text, |terminal| render(&reply.document, terminal)),
        Err(error @ ClientError::Unreachable { .. }) => {
            let postmortem = from_file(state_dir, boot, error)?;
            output.show_value(&postmortem, |terminal| render(&postmortem, terminal))
        }
        Err(error) => Err(error.into()),
    }
}

/// Without a daemon every run has ended.
fn from_file(state_dir: &Path, boot: Option<i64>, no_daemon: ClientError) -> Result<Postmortem, CtlError> {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let question = PostmortemRequest { viewer: Viewer::Root, boot, running: None, boot_id: boot_id.trim().to_owned() };
    reconstruct(|| history::open(state_dir), &question).map_err(|error| match error {
        PostmortemError::Read(error) => unreadable(no_daemon, &error),
        PostmortemError::Io(_) | PostmortemError::NoSuchRun(_) => CtlError::Failed(error.to_string()),
    })
}

fn render(postmortem: &Postmortem, terminal: &Terminal) -> String {
    let end = match postmortem.end {
        End::Stopped => terminal.paint(Style::Good, "the daemon was stopped normally"),
        End::DaemonDied => terminal.paint(Style::Bad, "the daemon was killed or failed; the host kept running"),
        End::HostWentDown => terminal.paint(Style::Bad, "the host went down while the daemon was running"),
    };
    let mut out = format!("{end}\n");
    let version = if postmortem.version.is_empty() { "?".into() } else { escape(&postmortem.version) };
    out.push_str(&format!(
        "last record {}; daemon run started {} (version {version})\n",
        terminal.local_time(&postmortem.to),
        terminal.local_time(&postmortem.run)
    ));
    let minutes = duration(postmortem).unwrap_or_else(|| "minutes".into());
    let mut section = |title: &str, lines: Vec<String>, none: &str| {
        out.push_str(&format!("\n{}\n", terminal.paint(Style::Strong, title)));
        if lines.is_empty() {
            out.push_str(&format!("  {none}\n"));
        }
        lines.iter().for_each(|line| out.push_str(&format!("  {line}\n")));
    };
    section(
        &format!("host memory in the last {minutes}"),
        postmortem.host.as_ref().map(of_host).unwrap_or_default(),
        "not recorded",
    );
    section("sessions, by growth", postmortem.sessions.iter().take(MAX_ROWS).map(of_session).collect(), "none");
    section("processes, by growth", postmortem.processes.iter().take(MAX_ROWS).map(of_process).collect(), "none");
    let findings = |leftover: bool| -> Vec<String> {
        let chosen = postmortem.findings.iter().filter(|finding| is_leftover(finding) == leftover);
        chosen.map(of_finding).collect()
    };
    section("orphaned, detached, abandoned and stale processes", findings(true), "none");
    section("other findings", findings(false), "none");
    let skipped = postmortem.killed.len().saturating_sub(MAX_KILLS);
    let records = postmortem.killed[skipped..].iter().filter_map(|record| Record::deserialize(record).ok());
    let mut killed: Vec<String> = records.map(|record| record_line(&record, terminal).trim_end().to_owned()).collect();
    if skipped > 0 {
        killed.insert(0, format!("({skipped} earlier: --json has all)"));
    }
    section("kills and actions", killed, "none");
    if postmortem.damaged_lines > 0 {
        let text = format!(
            "{} skipped",
            count(postmortem.damaged_lines, "damaged line of the history", "damaged lines of the history")
        );
        out.push_str(&format!("\n{}\n", terminal.paint(Style::Warn, text)));
    }
    terminal.fit(&out)
}

fn duration(postmortem: &Postmortem) -> Option<String> {
    let (from, to): (jiff::Timestamp, jiff::Timestamp) = (postmortem.from.parse().ok()?, postmortem.to.parse().ok()?);
    Some(span(std::time::Duration::try_from(to.duration_since(from)).ok()?))
}

fn is_leftover(finding: &Finding) -> bool {
    use FindingKind::{Abandoned, Detached, Orphan, Stale};
    matches!(finding.kind, Orphan | Detached | Abandoned | Stale)
}

fn of_host(trend: &HostTrend) -> Vec<String> {
    let HostTrend { first, last, lowest_available_bytes, .. } = trend;
    let mut lines = vec![format!(
        "available {} -> {} of {}, minimum {}",
        size(first.memory_available_bytes),
        size(last.memory_available_bytes),
        size(last.memory_total_bytes),
        size(*lowest_available_bytes)
    )];
    if last.swap_total_bytes > 0 {
        lines.push(format!(
            "swap free {} -> {} of {}",
            size(first.swap_free_bytes),
            size(last.swap_free_bytes),
            size(last.swap_total_bytes)
        ));
    }
    if let (Some(some), Some(now)) = (trend.highest_pressure_some_avg10, last.pressure_some_avg10) {
        let full = trend.highest_pressure_full_avg10.unwrap_or(0.0);
        lines.push(format!("pressure {now:.2} %, maximum {some:.2} % (full {full:.2} %)"));
    }
    lines
}

fn grown<T>(growth: &Growth<T>, now: u64) -> String {
    let sign = if growth.growth_bytes < 0 { "-" } else { "+" };
    format!("{:>9}  {sign}{:<9}", size(now), size(growth.growth_bytes.unsigned_abs()))
}

fn of_session(growth: &Growth<SessionMemory>) -> String {
    let session = &growth.last;
    let held = grown(growth, session.memory_bytes);
    let (profile, processes) = (escape(&session.profile), count(session.processes, "process", "processes"));
    format!("{held}  session {} {profile}, {processes}, uid {}", session.session, session.uid)
}

fn of_process(growth: &Growth<ProcessMemory>) -> String {
    let process = &growth.last;
    let held = grown(growth, process.memory_bytes);
    format!("{held}  pid {} {}, session {}", process.pid, escape(&process.name), process.session)
}

fn of_finding(finding: &Finding) -> String {
    let closed = if finding.closed_at.is_some() { " (closed)" } else { "" };
    format!("#{} {}{closed}: {}", finding.id, finding.kind.name(), escape(&finding.summary))
}

#[cfg(test)]
#[path = "postmortem_tests.rs"]
mod tests;
