//! Searches the files of denied agents on its own thread, since a directory may be on a network file system whose
//! server does not answer.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use watchdog_common::FileId;

use crate::worker::{self, ChannelClosed, CommandSender, Worker, command_channel};
use watchdog_config::DeniedFiles;
use watchdog_host::programs::{self, DeniedPrograms};

/// The time between two searches. A newly installed agent is denied by name at once, and as a file after this time.
const SEARCH_INTERVAL: Duration = Duration::from_secs(5);

/// Renamed files that stay denied.
const MAX_RENAMED: usize = 1_024;

/// The thread's handle. The thread ends when it is dropped.
pub(super) struct DeniedFileSearch {
    wanted: CommandSender<DeniedFiles>,
    found: Receiver<DeniedPrograms>,
    active: bool,
}

impl DeniedFileSearch {
    pub(super) fn start(denied: DeniedFiles) -> Self {
        let (wanted, commands) = command_channel();
        let (answers, found) = channel();
        let active = !denied.is_empty();
        if let Err(error) = worker::spawn("denied-files", commands, move || FileSearcher::new(denied, answers)) {
            tracing::warn!("denied agents can start under another name: cannot look for their files: {error}");
        }
        Self { wanted, found, active }
    }

    pub(super) fn set_targets(&mut self, denied: DeniedFiles) {
        self.active = !denied.is_empty();
        // Without the thread nothing is found; its failed start was logged.
        let _ = self.wanted.send(denied);
    }

    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    /// The files found since the last call.
    pub(super) fn found(&self) -> Option<DeniedPrograms> {
        self.found.try_iter().last()
    }
}

struct FileSearcher {
    denied: DeniedFiles,
    answers: Sender<DeniedPrograms>,
    last: DeniedPrograms,
    logged: BTreeSet<PathBuf>,
    /// `None` when nothing is denied.
    next_search: Option<Instant>,
}

impl Worker for FileSearcher {
    type Command = DeniedFiles;

    fn handle(&mut self, denied: DeniedFiles) -> Result<(), ChannelClosed> {
        self.denied = denied;
        self.last.files.retain(|file| file.generation == 0);
        self.next_search = Some(Instant::now());
        Ok(())
    }

    fn next_due(&self) -> Option<Instant> {
        self.next_search
    }

    fn run_due_timers(&mut self) -> Result<(), ChannelClosed> {
        if self.next_search.is_some_and(|due| due <= Instant::now()) {
            self.search()?;
            self.next_search = (!self.denied.is_empty()).then(|| Instant::now() + SEARCH_INTERVAL);
        }
        Ok(())
    }
}

impl FileSearcher {
    fn new(denied: DeniedFiles, answers: Sender<DeniedPrograms>) -> Self {
        let (last, logged) = Default::default();
        Self { denied, answers, last, logged, next_search: Some(Instant::now()) }
    }

    fn search(&mut self) -> Result<(), ChannelClosed> {
        let mut found = if self.denied.is_empty() { DeniedPrograms::default() } else { programs::find(&self.denied) };
        // The inode number of a file with a generation is never reused, so a renamed file stays denied.
        let renamed = self.last.files.difference(&found.files).filter(|file| file.generation != 0).take(MAX_RENAMED);
        let renamed: Vec<FileId> = renamed.copied().collect();
        found.files.extend(renamed);
        for path in found.by_name_only.difference(&self.logged) {
            tracing::warn!(
                "{} is denied by name only: its file system shows other device numbers than the kernel compares",
                path.display()
            );
        }
        self.logged.extend(found.by_name_only.iter().cloned());
        self.last = found.clone();
        self.answers.send(found).map_err(|_| ChannelClosed)
    }
}
