//! Feeds a recording to a new engine.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::{Ending, RecordingEntry, RecordingReadError, RecordingReader};
use watchdog_api::{Finding, Severity};
use watchdog_config::{self as config, Config};
use watchdog_engine::Engine;
use watchdog_engine::effect::{Effect, JournalEntry, JournalEvent};
use watchdog_engine::view::DisplayContext;
use watchdog_types::{BootTime, FindingId};

/// The JSON document of `watchdogctl replay`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replay {
    pub recording: RecordingSummary,
    /// In the order in which they opened.
    pub findings: Vec<ReplayedFinding>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordingSummary {
    pub format_version: u32,
    /// Version of the daemon.
    pub written_by: String,
    /// Kernel release of its host.
    pub kernel: String,
    pub boot_id: String,
    /// RFC 3339.
    pub began_at: String,
    /// Time of the last entry, RFC 3339.
    pub ended_at: String,
    pub duration_seconds: f64,
    pub inputs: u64,
    /// `stopped`, `fell_behind`, `failed`, `torn` (truncated), or `unknown` without an end entry.
    pub end: &'static str,
    /// Why it failed or was truncated.
    pub end_reason: Option<String>,
    /// Arguments are not redacted.
    pub whole_argv: bool,
}

/// A finding in its last state, with its history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayedFinding {
    #[serde(flatten)]
    pub finding: Finding,
    /// In order of time.
    pub changes: Vec<ReplayedChange>,
}

/// One change of a finding, with its state after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplayedChange {
    /// RFC 3339.
    pub at: String,
    /// Since the start of the recording.
    #[serde(skip)]
    pub after: Duration,
    /// `opened`, `changed` or `closed`.
    pub change: String,
    pub severity: Severity,
    pub proposed_action: String,
    pub summary: String,
}

/// Feeds entries to an engine, and calls `seen` after each with the engine, the time and the effects, until the end or a
/// break. Returns the engine in its last state.
///
/// # Errors
/// When the recording cannot be read, or has an entry that this version does not know. A truncated recording is not an error.
pub fn run<R: BufRead>(
    reader: &mut RecordingReader<R>,
    mut seen: impl FnMut(&Engine, BootTime, &[Effect]) -> ControlFlow<()>,
) -> Result<Engine, RecordingReadError> {
    let configuration =
        |text: &str| config::parse(Path::new("the recorded configuration"), text).map(Arc::<Config>::new);
    let config = configuration(&reader.header().config).map_err(|error| reader.line_error(&error))?;
    let mut engine = Engine::new(config);
    let mut effects = Vec::new();
    while let Some(entry) = reader.next() {
        let at = match entry? {
            RecordingEntry::Input(at, input) => {
                engine.step(at, input, &mut effects);
                at
            }
            RecordingEntry::Configured(at, text) => {
                let config = configuration(&text).map_err(|error| reader.line_error(&error))?;
                engine.reconfigure(at, config, &mut effects);
                at
            }
            RecordingEntry::Ended(..) => break,
        };
        if seen(&engine, at, &effects).is_break() {
            break;
        }
        effects.clear();
    }
    Ok(engine)
}

/// Replays a recording and collects the findings.
pub fn replay<R: BufRead>(mut reader: RecordingReader<R>) -> Result<Replay, RecordingReadError> {
    let header = reader.header().clone();
    let naming = DisplayContext { boot: Duration::from_nanos(header.booted_ns), user: &|uid| uid.0.to_string() };
    let mut found: BTreeMap<FindingId, ReplayedFinding> = BTreeMap::new();
    let (mut inputs, mut last) = (0, header.began);
    let engine = run(&mut reader, |engine, at, effects| {
        inputs += 1;
        last = at;
        for effect in effects {
            let Effect::Journal(JournalEntry { at, what: JournalEvent::Finding { finding: id, change, .. }, .. }) =
                effect
            else {
                continue;
            };
            let Some((_, finding)) = engine.finding(*id, &naming) else { continue };
            let change = ReplayedChange {
                at: naming.moment(*at),
                after: at.since(header.began),
                change: change.clone(),
                severity: finding.severity,
                proposed_action: finding.proposed_action.clone(),
                summary: finding.summary.clone(),
            };
            let replayed =
                found.entry(*id).or_insert_with(|| ReplayedFinding { finding: finding.clone(), changes: Vec::new() });
            replayed.finding = finding;
            replayed.changes.push(change);
        }
        ControlFlow::Continue(())
    })?;
    for (id, replayed) in &mut found {
        // Open findings in their state at the end, not at their last change.
        if let Some((_, finding)) = engine.finding(*id, &naming) {
            replayed.finding = finding;
        }
    }
    if let Some(Ending::Stated(at, _)) = reader.ending() {
        last = *at;
    }
    let (end, end_reason) = end_name(reader.ending());
    let recording = RecordingSummary {
        format_version: header.agent_watchdog_recording,
        began_at: naming.moment(header.began),
        ended_at: naming.moment(last),
        duration_seconds: last.since(header.began).as_secs_f64(),
        inputs,
        end,
        end_reason,
        written_by: header.written_by,
        kernel: header.kernel,
        boot_id: header.boot_id,
        whole_argv: header.whole_argv,
    };
    Ok(Replay { recording, findings: found.into_values().collect() })
}

fn end_name(ending: Option<&Ending>) -> (&'static str, Option<String>) {
    use super::RecordingEnd;
    match ending {
        Some(Ending::Stated(_, RecordingEnd::Stopped)) => ("stopped", None),
        Some(Ending::Stated(_, RecordingEnd::FellBehind)) => ("fell_behind", None),
        Some(Ending::Stated(_, RecordingEnd::Failed(why))) => ("failed", Some(why.clone())),
        Some(Ending::Truncated(why)) => ("torn", Some(why.clone())),
        Some(Ending::Unstated) | None => ("unknown", None),
    }
}
