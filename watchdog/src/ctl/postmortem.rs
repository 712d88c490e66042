//! `watchdogctl postmortem`: the last minutes before the host or the daemon went down.

use std::path::Path;

use serde::Deserialize;

use super::client::Client;
use super::failure::Failure;
use super::history::{render as record_line, unreadable};
use super::output::Output;
use super::show::{Ink, Screen, clock, size, span, visible};
use crate::api::{End, Finding, Growth, HostTrend, Postmortem, ProcessMemory, Record, SessionMemory};
use crate::engine::view::Viewer;
use crate::history;
use crate::history::postmortem::{NoAnswer, Question, tell};

/// Rows of each kind that are shown at most; JSON has them all.
const ROWS: usize = 8;
/// Deaths that are shown at most, the last ones.
const DEATHS: usize = 20;

pub(super) async fn run(
    client: &Client,
    state_dir: &Path,
    boot: Option<i64>,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let path = boot.map_or_else(|| "/v1/postmortem".to_owned(), |boot| format!("/v1/postmortem?boot={boot}"));
    match client.get::<Postmortem>(&path).await {
        Ok(answer) => output.show(&answer.text, |screen| render(&answer.document, screen)),
        Err(failure @ Failure::Unreachable { .. }) => {
            let told = from_file(state_dir, boot, failure)?;
            let text = serde_json::to_string(&told).map_err(|error| Failure::No(error.to_string()))?;
            output.show(&text, |screen| render(&told, screen))
        }
        Err(failure) => Err(failure),
    }
}

/// Without a daemon every run has ended.
fn from_file(state_dir: &Path, boot: Option<i64>, no_daemon: Failure) -> Result<Postmortem, Failure> {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let question = Question { viewer: Viewer::Root, boot, going_on: None, boot_id: boot_id.trim().to_owned() };
    tell(|| history::open(state_dir), &question).map_err(|error| match error {
        NoAnswer::Read(error) => unreadable(no_daemon, &error),
        NoAnswer::Io(_) | NoAnswer::None(_) => Failure::No(error.to_string()),
    })
}

fn render(told: &Postmortem, screen: &Screen) -> String {
    let moment = |text: &str| clock(text, (screen.zone)()).unwrap_or_else(|| visible(text).into_owned());
    let end = match told.end {
        End::Stopped => screen.paint(Ink::Good, "the daemon was stopped in good order"),
        End::DaemonDied => screen.paint(Ink::Bad, "the daemon was killed or failed; the host went on"),
        End::HostWentDown => screen.paint(Ink::Bad, "the host went down under the daemon"),
    };
    let mut out = format!("{end}\n");
    let version = if told.version.is_empty() { "?".into() } else { visible(&told.version) };
    out.push_str(&format!(
        "last record {}, of the run that began {} (version {version})\n",
        moment(&told.to),
        moment(&told.run)
    ));
    let minutes = told_span(told).unwrap_or_else(|| "minutes".into());
    let mut section = |title: &str, lines: Vec<String>, none: &str| {
        out.push_str(&format!("\n{}\n", screen.paint(Ink::Strong, title)));
        if lines.is_empty() {
            out.push_str(&format!("  {none}\n"));
        }
        lines.iter().for_each(|line| out.push_str(&format!("  {line}\n")));
    };
    section(
        &format!("memory of the host in the last {minutes}"),
        told.host.as_ref().map(of_host).unwrap_or_default(),
        "not recorded",
    );
    section("sessions, by growth", told.sessions.iter().take(ROWS).map(of_session).collect(), "none");
    section("processes, by growth", told.processes.iter().take(ROWS).map(of_process).collect(), "none");
    let findings = |orphans: bool| -> Vec<String> {
        let chosen = told.findings.iter().filter(|finding| is_left_behind(finding) == orphans);
        chosen.map(of_finding).collect()
    };
    section("left behind", findings(true), "nothing");
    section("other findings", findings(false), "none");
    let skipped = told.killed.len().saturating_sub(DEATHS);
    let records = told.killed[skipped..].iter().filter_map(|record| Record::deserialize(record).ok());
    let mut killed: Vec<String> = records.map(|record| record_line(&record, screen).trim_end().to_owned()).collect();
    if skipped > 0 {
        killed.insert(0, format!("({skipped} earlier ones are in --json)"));
    }
    section("killed, and acted on", killed, "nothing");
    if told.damaged_lines > 0 {
        let text = format!("{} lines of the history are damaged: what they told is missing here", told.damaged_lines);
        out.push_str(&format!("\n{}\n", screen.paint(Ink::Warn, text)));
    }
    out
}

fn told_span(told: &Postmortem) -> Option<String> {
    let (from, to): (jiff::Timestamp, jiff::Timestamp) = (told.from.parse().ok()?, told.to.parse().ok()?);
    Some(span(std::time::Duration::try_from(to.duration_since(from)).ok()?))
}

fn is_left_behind(finding: &Finding) -> bool {
    use crate::api::FindingKind::{Abandoned, Detached, Orphan, Stale};
    matches!(finding.kind, Orphan | Detached | Abandoned | Stale)
}

fn of_host(trend: &HostTrend) -> Vec<String> {
    let HostTrend { first, last, lowest_available_bytes, .. } = trend;
    let mut lines = vec![format!(
        "available {} -> {} of {}, at least {}",
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
        lines.push(format!("pressure at most {some:.2} % (full {full:.2} %), {now:.2} % at the end"));
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
    let profile = visible(&session.profile);
    format!("{held}  session {} {profile}, {} processes, uid {}", session.session, session.processes, session.uid)
}

fn of_process(growth: &Growth<ProcessMemory>) -> String {
    let process = &growth.last;
    let held = grown(growth, process.memory_bytes);
    format!("{held}  pid {} {}, session {}", process.pid, visible(&process.name), process.session)
}

fn of_finding(finding: &Finding) -> String {
    let closed = if finding.closed_at.is_some() { " (closed)" } else { "" };
    format!("#{} {}{closed}: {}", finding.id, finding.kind.name(), visible(&finding.summary))
}

#[cfg(test)]
#[path = "postmortem_tests.rs"]
mod tests;
