//! Plays a recording: a thread feeds the engine up to the position that is wanted, and waits there.

use std::fs::File;
use std::io::BufReader;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use watchdog_api::Host;
use watchdog_engine::Engine;
use watchdog_engine::view::DisplayContext;
use watchdog_recording::{Ending, RecordingEntry, RecordingReadError, RecordingReader, run};
use watchdog_types::{BootTime, Viewer};

use crate::events::Reports;
use crate::model::{GateSummary, Observation, TopMessage};

type FileReader = RecordingReader<BufReader<File>>;

/// Opens a recording at its beginning.
pub(crate) fn open_recording(path: &Path) -> Result<FileReader, RecordingReadError> {
    let file = File::open(path).map_err(RecordingReadError::Io)?;
    RecordingReader::new(BufReader::new(file))
}

/// Shows the positions that arrive, each time from the present one or from the beginning.
pub(crate) fn play(path: PathBuf, positions: &Receiver<Duration>, reports: &Reports) {
    match length(&path) {
        Ok((length, warning)) => {
            reports.send(TopMessage::ReplayLength(length));
            warning.map(|warning| reports.send(TopMessage::ReplayProblem(warning)));
        }
        Err(error) => {
            reports.send(TopMessage::ReplayProblem(format!("{} {error}", path.display())));
            return;
        }
    }
    let mut wanted = Some(Duration::ZERO);
    while let Some(position) = wanted {
        wanted = match play_from(&path, position, positions, reports) {
            Ok(next) => next,
            Err(error) => {
                reports.send(TopMessage::ReplayProblem(format!("{} {error}", path.display())));
                return;
            }
        };
    }
}

/// The length of the recording, and a warning if it is truncated.
fn length(path: &Path) -> Result<(Duration, Option<String>), RecordingReadError> {
    let mut reader = open_recording(path)?;
    let began = reader.header().began;
    let mut last = began;
    for entry in reader.by_ref() {
        last = match entry? {
            RecordingEntry::Input(at, _) | RecordingEntry::Configured(at, _) | RecordingEntry::Ended(at, _) => at,
        };
    }
    let warning = match reader.ending() {
        Some(Ending::Truncated(why)) => Some(format!("the recording is truncated: {why}")),
        _ => None,
    };
    Ok((last.since(began), warning))
}

/// The latest position that arrived; waits for one if none has. `None` when the loop has ended.
fn latest(positions: &Receiver<Duration>) -> Option<Duration> {
    let first = positions.recv().ok()?;
    Some(positions.try_iter().last().unwrap_or(first))
}

/// Plays until a position before the present one is wanted, and returns that.
fn play_from(
    path: &Path,
    first: Duration,
    positions: &Receiver<Duration>,
    reports: &Reports,
) -> Result<Option<Duration>, RecordingReadError> {
    let mut reader = open_recording(path)?;
    let began = reader.header().began;
    let naming =
        DisplayContext { boot: Duration::from_nanos(reader.header().booted_ns), user: &|uid| uid.0.to_string() };
    let (mut wanted, mut back) = (first, None);
    let engine = run(&mut reader, |engine, at, _| {
        while at.since(began) > wanted {
            reports.send(TopMessage::Observed(Box::new(observation(engine, began, wanted, &naming))));
            match latest(positions) {
                Some(next) if next < wanted => {
                    back = Some(next);
                    return ControlFlow::Break(());
                }
                Some(next) => wanted = next,
                None => return ControlFlow::Break(()),
            }
        }
        ControlFlow::Continue(())
    })?;
    // At the end only a way back is left.
    while back.is_none() {
        reports.send(TopMessage::Observed(Box::new(observation(&engine, began, wanted, &naming))));
        match latest(positions) {
            Some(next) if next < wanted => back = Some(next),
            Some(next) => wanted = next,
            None => return Ok(None),
        }
    }
    Ok(back)
}

fn observation(engine: &Engine, began: BootTime, position: Duration, naming: &DisplayContext<'_>) -> Observation {
    let viewer = Viewer::Root;
    let now = BootTime(began.0.saturating_add(u64::try_from(position.as_nanos()).unwrap_or(u64::MAX)));
    Observation {
        at: naming.moment(now).parse().unwrap_or_default(),
        host: Host::from(engine.host()),
        counts: engine.counts(viewer),
        tree: engine.tree(viewer, naming),
        findings: engine.findings(viewer, naming, false).findings,
        gate: Some(GateSummary::from(&engine.queue(now, viewer, naming))),
        trouble: None,
        in_fleet: false,
        fleet: None,
    }
}
