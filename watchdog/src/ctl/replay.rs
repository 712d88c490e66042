//! `watchdogctl replay`: a recording told to an engine of this program, and what it found.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use super::failure::Failure;
use super::output::{Output, complain};
use super::show::{Cell, Column, Ink, Screen, Table, count, evidence_lines, visible};
use crate::api::Severity;
use crate::recording::{self, Change, Reader, Replay, Replayed};

pub(super) fn run(file: &Path, output: &mut Output<'_>) -> Result<(), Failure> {
    let name = file.display();
    let opened = File::open(file).map_err(|error| Failure::No(format!("{name} cannot be opened: {error}")))?;
    let reader = Reader::new(BufReader::new(opened));
    let replay = reader.and_then(recording::replay).map_err(|error| Failure::No(format!("{name} {error}")))?;
    let document = serde_json::to_string(&replay).map_err(|error| Failure::No(error.to_string()))?;
    output.show(&document, |screen| render(&replay, screen))?;
    if let Some(warning) = warning(&replay) {
        complain(&format!("watchdogctl: {}\n", visible(&format!("{name} {warning}"))));
    }
    Ok(())
}

/// What there is to say about a recording that does not go on to its daemon's end.
fn warning(replay: &Replay) -> Option<String> {
    let recording = &replay.recording;
    let after =
        format!("after {} ({})", count(recording.inputs, "input", "inputs"), offset(recording.duration_seconds));
    let why = recording.end_reason.as_deref().unwrap_or("no reason is given");
    match recording.end {
        "stopped" => None,
        "fell_behind" => Some(format!("ends {after}: more happened than could be written")),
        "failed" => Some(format!("ends {after}: it could not be written ({why})")),
        "torn" => Some(format!("is torn {after}: {why}; everything before that was replayed")),
        _ => Some(format!(
            "has no end: it stops {after}, as its daemon was killed or still runs; all of it was replayed"
        )),
    }
}

/// What stands below a row begins here.
const INDENT: usize = 4;

fn render(replay: &Replay, screen: &Screen) -> String {
    let recording = &replay.recording;
    let mut out = format!(
        "{}, {} long, {}, {}, kernel {}, agent-watchdog {}\n\n",
        visible(&recording.began_at),
        offset(recording.duration_seconds),
        count(recording.inputs, "input", "inputs"),
        if recording.whole_argv { "with all arguments" } else { "without arguments" },
        visible(&recording.kernel),
        visible(&recording.written_by),
    );
    if replay.findings.is_empty() {
        out.push_str("no findings\n");
        return out;
    }
    // Ages in the evidence are counted to the end of the recording: the same each time.
    let now = recording.ended_at.parse().unwrap_or(screen.now);
    let screen = Screen { now, ..screen.clone() };
    let mut rows: Vec<(&Replayed, &Change, bool)> = Vec::new();
    for found in &replay.findings {
        let last = found.changes.len().saturating_sub(1);
        rows.extend(found.changes.iter().enumerate().map(|(i, change)| (found, change, i == last)));
    }
    rows.sort_by_key(|(found, change, _)| (change.after, found.finding.id));
    out + &table(&rows, &screen).render(&screen)
}

/// One row for each change, in the order of time; below a finding's last one its evidence.
fn table(rows: &[(&Replayed, &Change, bool)], screen: &Screen) -> Table {
    let mut table = Table::new(
        0,
        vec![
            Column::right("AT"),
            Column::left("CHANGE"),
            Column::right("ID"),
            Column::left("KIND"),
            Column::left("SEVERITY"),
            Column::right("SESSION"),
            Column::right("PID"),
            Column::left("PROPOSED"),
        ],
    );
    for (found, change, last) in rows {
        let finding = &found.finding;
        let severity = Cell::new(change.severity.name());
        table.row(vec![
            Cell::new(offset(change.after.as_secs_f64())),
            Cell::new(&change.change),
            Cell::new(finding.id.to_string()),
            Cell::new(finding.kind.name()).ink(Ink::Strong),
            match change.severity {
                Severity::Info => severity,
                Severity::Warning => severity.ink(Ink::Warn),
                Severity::Critical => severity.ink(Ink::Bad),
            },
            Cell::new(finding.session.map_or_else(|| "-".into(), |id| id.to_string())),
            Cell::new(finding.pid.to_string()),
            Cell::new(&change.proposed_action),
        ]);
        let mut note = format!("{:INDENT$}{}\n", "", visible(&change.summary));
        if *last {
            if let Some(why) = &finding.closed_because {
                note.push_str(&format!("{:INDENT$}closed: {}\n", "", visible(why)));
            }
            note.push_str(&evidence_lines(&finding.evidence, INDENT + 2, screen));
        }
        table.note(note);
    }
    table
}

/// A time since the beginning: `1:02:03.400`, `0:00.250`.
fn offset(seconds: f64) -> String {
    let millis = Duration::try_from_secs_f64(seconds).unwrap_or_default().as_millis();
    let (days, hours, minutes) = (millis / 86_400_000, millis / 3_600_000 % 24, millis / 60_000 % 60);
    let rest = format!("{:02}.{:03}", millis / 1_000 % 60, millis % 1_000);
    match (days, hours) {
        (0, 0) => format!("{minutes}:{rest}"),
        (0, _) => format!("{hours}:{minutes:02}:{rest}"),
        _ => format!("{days}:{hours:02}:{minutes:02}:{rest}"),
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
