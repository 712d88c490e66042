//! One line for each record of the history.

use super::escape::escape;
use super::receipt;
use super::terminal::{Style, Terminal};
use watchdog_api::{
    ActionRecord, DeathNotice, FindingRecord, HostRecord, OomRecord, Past, Record, SessionSummary, Severity,
};
use watchdog_types::units::{count, size};

/// Time, type, session and the event, with a line break.
#[must_use]
pub fn record_line(record: &Record, terminal: &Terminal) -> String {
    let at = terminal.local_time(&record.at);
    let (kind, session, detail) = record_parts(&record.what);
    let style = match &record.what {
        Past::Oom(_) | Past::Death(_) => Some(Style::Bad),
        Past::Finding(finding) if finding.finding.severity == Severity::Critical => Some(Style::Bad),
        Past::Finding(_) | Past::Action(_) => Some(Style::Warn),
        Past::DaemonStarted { .. } | Past::DaemonStopped => Some(Style::Strong),
        _ => None,
    };
    let kind = format!("{kind:15}");
    let kind = style.map_or_else(|| kind.clone().into(), |style| terminal.paint(style, kind.clone()));
    let session = session.map_or_else(|| "-".into(), |id| format!("session {id}"));
    let times = record.repeats.as_ref().map_or_else(String::new, |repeats| {
        let first = terminal.local_time(&repeats.first_at);
        format!(" (x {} since {first})", repeats.count)
    });
    let line = format!("{}  {kind}  {session:11}  {}{times}", terminal.paint(Style::Faint, at), escape(&detail));
    format!("{}\n", line.trim_end())
}

/// Type, session and one sentence, which is not escaped.
#[must_use]
pub fn record_parts(what: &Past) -> (&'static str, Option<u64>, String) {
    match what {
        Past::DaemonStarted { version, pid, .. } => ("daemon_started", None, format!("version {version}, pid {pid}")),
        Past::DaemonStopped => ("daemon_stopped", None, String::new()),
        Past::Host(host) => ("host", None, of_host(host)),
        Past::SessionStarted(start) => (
            "session_started",
            Some(start.session),
            format!("{} (pid {}) of user {}", start.profile, start.pid, start.user),
        ),
        Past::SessionEnded(summary) => ("session_ended", Some(summary.start.session), of_session(summary)),
        Past::Finding(FindingRecord { change, finding }) => (
            "finding",
            finding.session,
            format!("#{} {} {change}: {}", finding.id, finding.kind.name(), finding.summary),
        ),
        Past::Oom(OomRecord { pid, session, comm, .. }) => {
            let pid = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
            ("oom", *session, format!("the OOM killer killed {comm}{pid}"))
        }
        Past::Action(ActionRecord { session, receipt: Some(receipt), .. }) => {
            ("action", *session, receipt::line(receipt))
        }
        Past::Action(action) => {
            let pids: Vec<String> = action.pids.iter().map(ToString::to_string).collect();
            let requester = action.asked_by_uid.map_or_else(String::new, |uid| format!(", requested by uid {uid}"));
            ("action", action.session, format!("{} {}{requester}", action.action, pids.join(", ")))
        }
        Past::Death(members) => {
            let DeathNotice { session, pid, comm, cause, summary } = DeathNotice::of(members);
            // The daemon removes the summary for users who must not see all of it.
            let removed = || format!("{comm} (pid {pid}) died: {}", cause.replace('_', " "));
            ("death", session, if summary.is_empty() { removed() } else { summary })
        }
        Past::Reclaim(run) => ("reclaim", run.session, format!("{run} ({})", run.trigger.reason())),
        Past::Unknown => ("unknown", None, "written by another version of the daemon".into()),
    }
}

fn of_host(host: &HostRecord) -> String {
    let memory = &host.memory;
    let pressure = memory.pressure_some_avg10.map_or_else(String::new, |some| format!(", pressure {some:.2} %"));
    let largest = host.sessions.first().map_or_else(String::new, |session| {
        format!("; largest: session {} ({}) with {}", session.session, session.profile, size(session.memory_bytes))
    });
    let (available, total) = (size(memory.memory_available_bytes), size(memory.memory_total_bytes));
    format!("{available} of {total} available{pressure}{largest}")
}

fn of_session(summary: &SessionSummary) -> String {
    let helpers = count(summary.helpers, "helper", "helpers");
    let together = match summary.peak_memory_bytes {
        // It ended before the first sample.
        0 => String::new(),
        peak => format!("peak {} in total, ", size(peak)),
    };
    let one = size(summary.largest_process_peak_bytes);
    format!("{} of user {}: {helpers}, {together}largest process {one}", summary.start.profile, summary.start.user)
}
