use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;

use crate::error::CtlError;
use crate::output::{CommandOutput, print_error};
use crate::render::{Style, count, escape, record_line, safe_json};
use watchdog_api::client::{ClientError, ControlClient, LineStream};
use watchdog_api::{HostRecord, Past, Record};
use watchdog_history::{self as history, HistoryLines, HistoryReadError, HistoryRecords, ReadStep, RecordFilter};
use watchdog_types::Viewer;

#[derive(Clone, Copy, Debug)]
pub(crate) struct HistoryOptions {
    pub(crate) since: Option<Duration>,
    pub(crate) session: Option<u64>,
    /// Show all records of the host's memory as text.
    pub(crate) host: bool,
}

pub(crate) fn run(
    client: &ControlClient,
    state_dir: &Path,
    query: HistoryOptions,
    output: &mut CommandOutput<'_>,
) -> Result<ExitCode, CtlError> {
    match client.get_lines(&path(query)) {
        Ok(lines) => {
            let mut page = Page::open(query, output)?;
            let result = from_daemon(lines, &mut page);
            page.close(result)
        }
        Err(error @ ClientError::Unreachable { .. }) => {
            let why = error.to_string();
            let lines = history::open(state_dir).map_err(|cause| unreadable(error, &cause))?;
            let file = state_dir.join(history::FILE).display().to_string();
            let why = escape(why.lines().next().unwrap_or_default());
            print_error(&format!("watchdogctl: reading {} without a daemon: {why}\n", escape(&file)));
            let mut page = Page::open(query, output)?;
            let result = from_file(lines, query, &mut page);
            page.close(result)
        }
        Err(error) => Err(error.into()),
    }
}

fn from_daemon(mut lines: LineStream, page: &mut Page<'_, '_>) -> Result<(), CtlError> {
    while let Some(line) = lines.next_or_end()? {
        page.add(&line)?;
    }
    Ok(())
}

/// A user who can read the file owns it, and so sees all records.
fn from_file(lines: HistoryLines<File>, query: HistoryOptions, page: &mut Page<'_, '_>) -> Result<(), CtlError> {
    let since = query.since.and_then(|since| Timestamp::now().checked_sub(since).ok());
    let selection = RecordFilter { viewer: Viewer::Root, since, session: query.session };
    let mut records = HistoryRecords::new(lines, selection);
    let mut result = Ok(());
    loop {
        match records.step() {
            Ok(ReadStep::Record(json)) => page.add(&json)?,
            Ok(ReadStep::Continue) => {}
            Ok(ReadStep::End) => break,
            Err(error) => result = Err(CtlError::Failed(format!("cannot read the history: {error}"))),
        }
    }
    page.damaged = records.damaged();
    result
}

/// Neither the daemon nor the file can be read.
pub(super) fn unreadable(no_daemon: ClientError, cause: &HistoryReadError) -> CtlError {
    let error = match (no_daemon, cause) {
        (_, HistoryReadError::Io { source, .. }) if source.kind() == std::io::ErrorKind::PermissionDenied => {
            ClientError::Forbidden(format!("{cause}\nWithout a daemon only root can read the history; use sudo."))
        }
        (ClientError::Unreachable { socket, why, hint, progress }, _) => {
            let hint = format!("{hint}\n{cause}. If the history is elsewhere, name its directory with --state-dir.");
            ClientError::Unreachable { socket, why, hint, progress }
        }
        (error, _) => error,
    };
    error.into()
}

fn path(query: HistoryOptions) -> String {
    let since = query.since.map(|since| format!("since={}s", since.as_secs()));
    let session = query.session.map(|session| format!("session={session}"));
    let parameters: Vec<String> = since.into_iter().chain(session).collect();
    if parameters.is_empty() { "/v1/history".into() } else { format!("/v1/history?{}", parameters.join("&")) }
}

/// Prints records as they arrive. A week of them is too much to hold in memory.
struct Page<'a, 'b> {
    output: &'a mut CommandOutput<'b>,
    host: bool,
    shown: u64,
    hidden: u64,
    damaged: u64,
}

impl<'a, 'b> Page<'a, 'b> {
    fn open(query: HistoryOptions, output: &'a mut CommandOutput<'b>) -> Result<Self, CtlError> {
        if output.json {
            output.text("{\"records\":[")?;
        }
        Ok(Self { output, host: query.host, shown: 0, hidden: 0, damaged: 0 })
    }

    fn add(&mut self, json: &str) -> Result<(), CtlError> {
        if self.output.json {
            let comma = if self.shown == 0 { "" } else { ",\n" };
            self.shown += 1;
            return self.output.text(&format!("{comma}{}", safe_json(json)));
        }
        let text = match serde_json::from_str::<Record>(json) {
            Ok(Record { what: Past::Host(host), .. }) if !self.host && !is_short(&host) => {
                self.hidden += 1;
                return Ok(());
            }
            Ok(record) => self.output.terminal.fit(&record_line(&record, &self.output.terminal)),
            Err(_) => {
                format!("{}\n", self.output.terminal.paint(Style::Warn, format!("unknown record: {}", escape(json))))
            }
        };
        self.shown += 1;
        self.output.text(&text)
    }

    /// Ends the page. Reports an error here, because stdout already holds the start of the only JSON document.
    fn close(self, result: Result<(), CtlError>) -> Result<ExitCode, CtlError> {
        let Self { output, shown, hidden, damaged, .. } = self;
        if let Err(error) = result {
            if error.is_closed_pipe() {
                return Err(error);
            }
            if output.json {
                output.line("]}")?;
            }
            print_error(&error.message());
            return Ok(ExitCode::from(&error));
        }
        if output.json {
            output.line("]}")?;
            return Ok(ExitCode::SUCCESS);
        }
        if shown + hidden == 0 {
            output.text("no records in this period\n")?;
        }
        if damaged > 0 {
            let text = format!("{} skipped", count(damaged, "damaged line", "damaged lines"));
            let text = output.terminal.paint(Style::Warn, text).into_owned();
            output.line(&text)?;
        }
        if hidden > 0 {
            let text =
                format!("({} of host memory without shortage: --host shows them)", count(hidden, "record", "records"));
            let text = output.terminal.paint(Style::Faint, text).into_owned();
            output.line(&text)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Less than 10 % of the memory is available, or tasks stall for 10 % of the time.
fn is_short(host: &HostRecord) -> bool {
    let memory = &host.memory;
    memory.memory_available_bytes < memory.memory_total_bytes / 10
        || memory.pressure_some_avg10.is_some_and(|some| some >= 10.0)
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
