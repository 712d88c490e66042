//! `watchdogctl history`: what happened, as far back as it is remembered; from the daemon, or from the file without one.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;

use super::client::{self, Client};
use super::failure::Failure;
use super::output::{Output, complain};
use super::receipt;
use super::show::{Ink, Screen, clock, count, safe_json, size, visible};
use crate::api::{ActionRecord, FindingRecord, HostRecord, OomRecord, Past, Record, SessionSummary, Severity};
use crate::engine::view::Viewer;
use crate::history::{self, Found, ReadError, Selection};

/// What somebody wants to see.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) since: Option<Duration>,
    pub(super) session: Option<u64>,
    /// Every record of the host's memory, where text is shown.
    pub(super) host: bool,
}

pub(super) async fn run(
    client: &Client,
    state_dir: &Path,
    wanted: Wanted,
    output: &mut Output<'_>,
) -> Result<ExitCode, Failure> {
    match client.follow(&path(wanted)).await {
        Ok(lines) => {
            let mut page = Page::open(wanted, output)?;
            let told = from_daemon(lines, &mut page).await;
            page.close(told)
        }
        Err(failure @ Failure::Unreachable { .. }) => {
            let lines = history::open(state_dir).map_err(|error| unreadable(failure, &error))?;
            let mut page = Page::open(wanted, output)?;
            let told = from_file(lines, wanted, &mut page);
            page.close(told)
        }
        Err(failure) => Err(failure),
    }
}

async fn from_daemon(mut lines: client::Lines, page: &mut Page<'_, '_>) -> Result<(), Failure> {
    while let Some(line) = lines.next_or_end().await? {
        page.add(&line)?;
    }
    Ok(())
}

/// Whoever may read the file is the user it belongs to, and sees all of it.
fn from_file(mut lines: history::Lines<File>, wanted: Wanted, page: &mut Page<'_, '_>) -> Result<(), Failure> {
    let since = wanted.since.and_then(|since| Timestamp::now().checked_sub(since).ok());
    let selection = Selection { viewer: Viewer::Root, since, session: wanted.session };
    while let Some(found) = lines.next().map_err(|error| Failure::No(format!("cannot read the history: {error}")))? {
        match found {
            Found::Record(json) => {
                if let Some(json) = selection.show(json) {
                    page.add(&json)?;
                }
            }
            Found::Damaged => page.damaged += 1,
            Found::Torn => break,
        }
    }
    Ok(())
}

/// Neither a daemon that answers nor a file that can be read.
pub(super) fn unreadable(no_daemon: Failure, error: &ReadError) -> Failure {
    match (no_daemon, error) {
        (_, ReadError::Io { source, .. }) if source.kind() == std::io::ErrorKind::PermissionDenied => {
            Failure::Forbidden(format!("{error}\nWithout a daemon only root can read the history: use sudo."))
        }
        (Failure::Unreachable { socket, why, next, was_there }, _) => {
            let file =
                format!("Without it, {error}: if the history is elsewhere, name its directory with --state-dir.");
            Failure::Unreachable { socket, why, next: format!("{next}\n{file}"), was_there }
        }
        (failure, _) => failure,
    }
}

fn path(wanted: Wanted) -> String {
    let since = wanted.since.map(|since| format!("since={}s", since.as_secs()));
    let session = wanted.session.map(|session| format!("session={session}"));
    let parameters: Vec<String> = since.into_iter().chain(session).collect();
    if parameters.is_empty() { "/v1/history".into() } else { format!("/v1/history?{}", parameters.join("&")) }
}

/// Prints records as they come: a week of them is nothing to hold in memory.
struct Page<'a, 'b> {
    output: &'a mut Output<'b>,
    host: bool,
    shown: u64,
    left_out: u64,
    damaged: u64,
}

impl<'a, 'b> Page<'a, 'b> {
    fn open(wanted: Wanted, output: &'a mut Output<'b>) -> Result<Self, Failure> {
        if output.json {
            output.text("{\"records\":[")?;
        }
        Ok(Self { output, host: wanted.host, shown: 0, left_out: 0, damaged: 0 })
    }

    fn add(&mut self, json: &str) -> Result<(), Failure> {
        if self.output.json {
            let comma = if self.shown == 0 { "" } else { ",\n" };
            self.shown += 1;
            return self.output.text(&format!("{comma}{}", safe_json(json)));
        }
        let text = match serde_json::from_str::<Record>(json) {
            Ok(Record { what: Past::Host(host), .. }) if !self.host && !is_short(&host) => {
                self.left_out += 1;
                return Ok(());
            }
            Ok(record) => render(&record, &self.output.screen),
            Err(_) => {
                format!("{}\n", self.output.screen.paint(Ink::Warn, format!("not understood: {}", visible(json))))
            }
        };
        self.shown += 1;
        self.output.text(&text)
    }

    /// Ends the page. What went wrong halfway is told here: the document that was begun is the only one there may be.
    fn close(self, told: Result<(), Failure>) -> Result<ExitCode, Failure> {
        let Self { output, shown, left_out, damaged, .. } = self;
        if let Err(failure) = told {
            if failure.is_closed_pipe() {
                return Err(failure);
            }
            if output.json {
                output.line("]}")?;
            }
            complain(&failure.message());
            return Ok(ExitCode::from(&failure));
        }
        if output.json {
            output.line("]}")?;
            return Ok(ExitCode::SUCCESS);
        }
        if shown + left_out == 0 {
            output.text("no history: nothing that concerns this user was recorded in that time\n")?;
        }
        if damaged > 0 {
            let text = format!("{} could not be read", count(damaged, "damaged line", "damaged lines"));
            let text = output.screen.paint(Ink::Warn, text).into_owned();
            output.line(&text)?;
        }
        if left_out > 0 {
            let text = format!(
                "({} of the host's memory while there was enough of it: --host shows them)",
                count(left_out, "record", "records")
            );
            let text = output.screen.paint(Ink::Faint, text).into_owned();
            output.line(&text)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Memory was short enough that a reader wants to know.
fn is_short(host: &HostRecord) -> bool {
    let memory = &host.memory;
    memory.memory_available_bytes < memory.memory_total_bytes / 10
        || memory.pressure_some_avg10.is_some_and(|some| some >= 10.0)
}

/// One record as one line.
pub(super) fn render(record: &Record, screen: &Screen) -> String {
    let at = clock(&record.at, (screen.zone)()).unwrap_or_else(|| visible(&record.at).into_owned());
    let (kind, session, detail) = describe(&record.what);
    let ink = match &record.what {
        Past::Oom(_) | Past::Death(_) => Some(Ink::Bad),
        Past::Finding(finding) if finding.finding.severity == Severity::Critical => Some(Ink::Bad),
        Past::Finding(_) | Past::Action(_) => Some(Ink::Warn),
        Past::DaemonStarted { .. } | Past::DaemonStopped => Some(Ink::Strong),
        _ => None,
    };
    let kind = format!("{kind:15}");
    let kind = ink.map_or_else(|| kind.clone().into(), |ink| screen.paint(ink, kind.clone()));
    let session = session.map_or_else(|| "-".into(), |id| format!("session {id}"));
    let times = record.repeats.as_ref().map_or_else(String::new, |repeats| {
        let first =
            clock(&repeats.first_at, (screen.zone)()).unwrap_or_else(|| visible(&repeats.first_at).into_owned());
        format!(" (x {} since {first})", repeats.count)
    });
    let line = format!("{}  {kind}  {session:11}  {}{times}", screen.paint(Ink::Faint, at), visible(&detail));
    format!("{}\n", line.trim_end())
}

fn describe(what: &Past) -> (&'static str, Option<u64>, String) {
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
            ("oom", *session, format!("the OOM killer took {comm}{pid}"))
        }
        Past::Action(ActionRecord { session, receipt: Some(receipt), .. }) => {
            ("action", *session, receipt::line(receipt))
        }
        Past::Action(action) => {
            let pids: Vec<String> = action.pids.iter().map(ToString::to_string).collect();
            let who = action.asked_by_uid.map_or_else(String::new, |uid| format!(", asked for by uid {uid}"));
            ("action", action.session, format!("{} {}{who}", action.action, pids.join(", ")))
        }
        Past::Death(death) => {
            let session = death.get("session").and_then(serde_json::Value::as_u64);
            let text = |name: &str| death.get(name).and_then(serde_json::Value::as_str).unwrap_or_default();
            let pid = death.get("pid").and_then(serde_json::Value::as_u64).unwrap_or_default();
            let told = match text("summary") {
                // What concerns others is not told to everybody, and the sentence goes with it.
                "" => format!("{} (pid {pid}) died: {}", text("comm"), text("cause").replace('_', " ")),
                summary => summary.to_owned(),
            };
            ("death", session, told)
        }
        Past::Unknown => ("unknown", None, "written by another version".into()),
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
        // It was over before anybody looked.
        0 => String::new(),
        peak => format!("at most {} together, ", size(peak)),
    };
    let one = size(summary.largest_process_peak_bytes);
    format!("{} of user {}: {helpers}, {together}{one} in one process", summary.start.profile, summary.start.user)
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
