//! Writes the state that outlives the host to the state directory, on its own thread: the disk may be slow.

use std::io;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::log_throttle::ThrottledWarning;
use super::worker::{self, ChannelClosed, CommandSender, Worker, command_channel};
use super::{id_store, learned_store};
use watchdog_engine::gate::Peaks;
use watchdog_engine::reclaim::LearnedYields;
use watchdog_types::LastIds;

/// The time between two attempts while the disk takes nothing.
const RETRY: Duration = Duration::from_secs(5);

/// Each replaces an earlier one of its kind.
#[derive(Debug)]
pub(super) enum DurableUpdate {
    /// The peak memory of past sessions.
    Peaks(Peaks),
    /// What sessions released when they were paged out.
    Yields(LearnedYields),
    /// The ids that may have been given.
    Ids(LastIds),
}

/// Starts the thread. It ends when the last sender is dropped and everything is written.
pub(super) fn start(state_dir: &Path) -> io::Result<(CommandSender<DurableUpdate>, JoinHandle<()>)> {
    let (sender, updates) = command_channel();
    let dir = state_dir.to_owned();
    let thread = worker::spawn("state", updates, move || StateWriter::new(dir))?;
    Ok((sender, thread))
}

struct StateWriter {
    dir: PathBuf,
    peaks: Option<Peaks>,
    yields: Option<LearnedYields>,
    ids: Option<LastIds>,
    /// When pending updates are written.
    due: Instant,
    warning: ThrottledWarning,
}

impl Worker for StateWriter {
    type Command = DurableUpdate;

    /// Updates in a row cost one write of each kind.
    const MAX_BURST: usize = 1_024;

    fn handle(&mut self, update: DurableUpdate) -> Result<(), ChannelClosed> {
        match update {
            DurableUpdate::Peaks(new) => self.peaks = Some(new),
            DurableUpdate::Yields(new) => self.yields = Some(new),
            DurableUpdate::Ids(new) => self.ids = Some(new),
        }
        self.due = Instant::now();
        Ok(())
    }

    fn next_due(&self) -> Option<Instant> {
        let is_pending = self.peaks.is_some() || self.yields.is_some() || self.ids.is_some();
        is_pending.then_some(self.due)
    }

    fn run_due_timers(&mut self) -> Result<(), ChannelClosed> {
        if self.due <= Instant::now() {
            self.write();
        }
        Ok(())
    }

    fn finish(&mut self) {
        self.write();
    }
}

impl StateWriter {
    fn new(dir: PathBuf) -> Self {
        Self { dir, peaks: None, yields: None, ids: None, due: Instant::now(), warning: ThrottledWarning::default() }
    }

    /// What cannot be written is tried again later.
    fn write(&mut self) {
        let Self { dir, peaks, yields, ids, due, warning } = self;
        let mut warn = |what: &str, error: io::Error| {
            warning.warn(format_args!("{what}: cannot write to {}: {error}", dir.display()));
        };
        let write_ids = |ids: &LastIds| id_store::write(dir, *ids);
        store(ids, write_ids, |error| warn("a later daemon may reuse ids", error));
        let write_peaks = |peaks: &Peaks| learned_store::PEAKS.write(dir, peaks);
        store(peaks, write_peaks, |error| warn("the memory use of sessions is not stored", error));
        let write_yields = |yields: &LearnedYields| learned_store::YIELDS.write(dir, yields);
        store(yields, write_yields, |error| warn("the results of page-outs are not stored", error));
        *due = Instant::now() + RETRY;
    }
}

/// Writes a pending update. It stays pending after an error.
fn store<T>(pending: &mut Option<T>, write: impl FnOnce(&T) -> io::Result<()>, warn: impl FnOnce(io::Error)) {
    match pending.as_ref().map(write) {
        Some(Ok(())) => *pending = None,
        Some(Err(error)) => warn(error),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set_aside::StateNotes;
    use watchdog_types::{Bytes, SessionId};

    fn peaks_of(bytes: u64) -> Peaks {
        [("claude-code".to_owned(), vec![Bytes(bytes), Bytes(7)])].into()
    }

    #[test]
    fn last_update_of_each_kind_wins() {
        let dir = tempfile::tempdir().unwrap();
        let (state_dir, notes) = (dir.path().join("state"), StateNotes::default());
        assert_eq!(learned_store::PEAKS.read(&state_dir, &notes), Peaks::default());
        let (sender, thread) = start(&state_dir).unwrap();
        for number in 1..=100 {
            sender.send(DurableUpdate::Peaks(peaks_of(number))).unwrap();
            sender.send(DurableUpdate::Ids(LastIds { session: SessionId(number), ..LastIds::default() })).unwrap();
        }
        drop(sender);
        thread.join().unwrap();
        assert_eq!(learned_store::PEAKS.read(&state_dir, &notes), peaks_of(100));
        assert_eq!(id_store::last(&state_dir, LastIds::default(), &notes).session, SessionId(100));
        let mut names: Vec<_> =
            std::fs::read_dir(&state_dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["ids", "peaks.json"]);
        assert_eq!(notes.all(), []);
    }
}
