use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use crate::error::CtlError;
use crate::output::{CommandOutput, print_error};
use crate::render::{Cell, Column, Style, Terminal, TextTable, count, escape, evidence_facts, severity_style};
use watchdog_recording::{self as recording, RecordingReader, Replay, ReplayedChange, ReplayedFinding};

pub(crate) fn run(file: &Path, output: &mut CommandOutput<'_>) -> Result<(), CtlError> {
    let name = file.display();
    let opened = File::open(file).map_err(|error| CtlError::Failed(format!("cannot open {name}: {error}")))?;
    let reader = RecordingReader::new(BufReader::new(opened));
    let replay = reader.and_then(recording::replay).map_err(|error| CtlError::Failed(format!("{name} {error}")))?;
    output.show_value(&replay, |terminal| render(&replay, terminal))?;
    if let Some(warning) = warning(&replay) {
        print_error(&format!("watchdogctl: {}\n", escape(&format!("{name} {warning}"))));
    }
    Ok(())
}

/// Set unless the recording ends with its daemon.
fn warning(replay: &Replay) -> Option<String> {
    let recording = &replay.recording;
    let after =
        format!("after {} ({})", count(recording.inputs, "input", "inputs"), offset(recording.duration_seconds));
    let why = recording.end_reason.as_deref().unwrap_or("unknown reason");
    match recording.end {
        "stopped" => None,
        "fell_behind" => Some(format!("ends {after}: the recorder could not keep up")),
        "failed" => Some(format!("ends {after}: writing failed ({why})")),
        "torn" => Some(format!("is truncated {after}: {why}; everything before was replayed")),
        _ => Some(format!(
            "has no end marker: it stops {after}; its daemon was killed or is still running; everything was replayed"
        )),
    }
}

/// Columns before the text below a row.
const INDENT: usize = 4;

fn render(replay: &Replay, terminal: &Terminal) -> String {
    let recording = &replay.recording;
    let mut out = format!(
        "{}, {} long, {}, {}, kernel {}, agent-watchdog {}\n\n",
        escape(&recording.began_at),
        offset(recording.duration_seconds),
        count(recording.inputs, "input", "inputs"),
        if recording.whole_argv { "with all arguments" } else { "without arguments" },
        escape(&recording.kernel),
        escape(&recording.written_by),
    );
    if replay.findings.is_empty() {
        out.push_str("no findings\n");
        return out;
    }
    // Ages in the evidence are relative to the end of the recording, so that the output is reproducible.
    let now = recording.ended_at.parse().unwrap_or(terminal.now);
    let terminal = Terminal { now, ..terminal.clone() };
    let mut rows: Vec<(&ReplayedFinding, &ReplayedChange, bool)> = Vec::new();
    for found in &replay.findings {
        let last = found.changes.len().saturating_sub(1);
        rows.extend(found.changes.iter().enumerate().map(|(i, change)| (found, change, i == last)));
    }
    rows.sort_by_key(|(found, change, _)| (change.after, found.finding.id));
    out + &table(&rows, &terminal).render(&terminal)
}

/// One row for each change in order of time, with the evidence below the last change of a finding.
fn table(rows: &[(&ReplayedFinding, &ReplayedChange, bool)], terminal: &Terminal) -> TextTable {
    let mut table = TextTable::new(
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
            Cell::new(finding.kind.name()).style(Style::Strong),
            match severity_style(change.severity) {
                Some(style) => severity.style(style),
                None => severity,
            },
            Cell::new(finding.session.map_or_else(|| "-".into(), |id| id.to_string())),
            Cell::new(finding.pid.to_string()),
            Cell::new(&change.proposed_action),
        ]);
        let mut note = terminal.wrap(&escape(&change.summary), INDENT);
        if *last {
            if let Some(why) = &finding.closed_because {
                note.push_str(&terminal.wrap(&format!("closed: {}", escape(why)), INDENT));
            }
            note.push_str(&evidence_facts(&finding.evidence, INDENT + 2, terminal));
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
