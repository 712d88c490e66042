//! Tells a recording to an engine of its own.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::{Ending, Entry, ReadError, Reader};
use crate::api::{Finding, Severity};
use crate::config::{self, Config};
use crate::engine::Engine;
use crate::engine::effect::{Effect, Happening, JournalEntry};
use crate::engine::id::{BootTime, FindingId};
use crate::engine::view::Naming;

/// What a recording holds and what the engine found in it: the JSON document of `watchdogctl replay`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replay {
    /// The recording itself.
    pub recording: Summary,
    /// Every finding that opened, in that order.
    pub findings: Vec<Replayed>,
}

/// A recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Version of the format.
    pub format_version: u32,
    /// Version of the program that wrote it.
    pub written_by: String,
    /// uname's release on its host.
    pub kernel: String,
    /// Its host's boot.
    pub boot_id: String,
    /// When it began, RFC 3339.
    pub began_at: String,
    /// The moment of its last entry, RFC 3339.
    pub ended_at: String,
    /// From the one to the other.
    pub duration_seconds: f64,
    /// How many inputs it holds.
    pub inputs: u64,
    /// `stopped`, `fell_behind`, `failed`, `torn`, or `unknown` when it does not say.
    pub end: &'static str,
    /// Why it failed or where it is torn.
    pub end_reason: Option<String>,
    /// Arguments are as they were.
    pub whole_argv: bool,
}

/// A finding, as it was at its end or at the recording's, and how it came to that.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replayed {
    /// The finding.
    #[serde(flatten)]
    pub finding: Finding,
    /// What happened to it, in that order.
    pub changes: Vec<Change>,
}

/// Something happened to a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// When, RFC 3339.
    pub at: String,
    /// The same, since the recording began.
    #[serde(skip)]
    pub after: Duration,
    /// `opened`, `changed` or `closed`.
    pub change: String,
    /// How bad it was then.
    pub severity: Severity,
    /// What policy proposed then.
    pub proposed_action: String,
    /// The finding in one sentence, then.
    pub summary: String,
}

/// Tells everything in the recording to an engine. After each entry `seen` is shown the engine, the moment, and what
/// the engine asked for. Gives back the engine as it was in the end.
///
/// # Errors
/// When the recording cannot be read, or holds what this version does not understand. Being torn is no error.
pub fn run<R: BufRead>(
    reader: &mut Reader<R>,
    mut seen: impl FnMut(&Engine, BootTime, &[Effect]),
) -> Result<Engine, ReadError> {
    let configuration =
        |text: &str| config::parse(Path::new("the recorded configuration"), text).map(Arc::<Config>::new);
    let config = configuration(&reader.header().config).map_err(|error| reader.misunderstood(&error))?;
    let mut engine = Engine::new(config);
    let mut effects = Vec::new();
    while let Some(entry) = reader.next() {
        let at = match entry? {
            Entry::Told(at, input) => {
                engine.step(at, input, &mut effects);
                at
            }
            Entry::Configured(at, text) => {
                let config = configuration(&text).map_err(|error| reader.misunderstood(&error))?;
                engine.reconfigure(at, config, &mut effects);
                at
            }
            Entry::Ended(..) => break,
        };
        seen(&engine, at, &effects);
        effects.clear();
    }
    Ok(engine)
}

/// Replays a recording, and collects the findings.
///
/// # Errors
/// As [`run`].
pub fn replay<R: BufRead>(mut reader: Reader<R>) -> Result<Replay, ReadError> {
    let header = reader.header().clone();
    let naming = Naming { boot: Duration::from_nanos(header.booted_ns), user: &|uid| uid.0.to_string() };
    let mut found: BTreeMap<FindingId, Replayed> = BTreeMap::new();
    let (mut inputs, mut last) = (0, header.began);
    let engine = run(&mut reader, |engine, at, effects| {
        inputs += 1;
        last = at;
        for effect in effects {
            let Effect::Journal(JournalEntry { at, what: Happening::Finding { finding: id, change, .. }, .. }) = effect
            else {
                continue;
            };
            let Some((_, finding)) = engine.finding(*id, &naming) else { continue };
            let change = Change {
                at: naming.moment(*at),
                after: at.since(header.began),
                change: change.clone(),
                severity: finding.severity,
                proposed_action: finding.proposed_action.clone(),
                summary: finding.summary.clone(),
            };
            let replayed =
                found.entry(*id).or_insert_with(|| Replayed { finding: finding.clone(), changes: Vec::new() });
            replayed.finding = finding;
            replayed.changes.push(change);
        }
    })?;
    for (id, replayed) in &mut found {
        // What is open is told as it was in the end, and not as it was when it last changed.
        if let Some((_, finding)) = engine.finding(*id, &naming) {
            replayed.finding = finding;
        }
    }
    if let Some(Ending::Said(at, _)) = reader.ending() {
        last = *at;
    }
    let (end, end_reason) = told(reader.ending());
    let recording = Summary {
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

fn told(ending: Option<&Ending>) -> (&'static str, Option<String>) {
    use super::End;
    match ending {
        Some(Ending::Said(_, End::Stopped)) => ("stopped", None),
        Some(Ending::Said(_, End::FellBehind)) => ("fell_behind", None),
        Some(Ending::Said(_, End::Failed(why))) => ("failed", Some(why.clone())),
        Some(Ending::Torn(why)) => ("torn", Some(why.clone())),
        Some(Ending::Unsaid) | None => ("unknown", None),
    }
}
