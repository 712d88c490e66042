//! Looks for the files of denied agents from time to time. On a thread of its own, since a directory may be on a network file
//! system whose server does not answer.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use watchdog_common::FileId;

use crate::config::DeniedFiles;
use crate::host::programs::{self, Programs};

/// How often files are looked for: an agent that is installed is denied as a file after this time, and by name at once.
const EVERY: Duration = Duration::from_secs(5);

/// Files that stay denied although nothing leads to them any more.
const MOVED: usize = 1_024;

/// The thread, as its owner sees it. It ends with its owner.
pub(super) struct Search {
    wanted: Sender<DeniedFiles>,
    found: Receiver<Programs>,
    looks: bool,
}

impl Search {
    pub(super) fn begin(denied: DeniedFiles) -> Self {
        let (wanted, orders) = channel();
        let (answers, found) = channel();
        let looks = !denied.is_empty();
        let thread = thread::Builder::new().name("denied-files".to_owned());
        if let Err(error) = thread.spawn(move || run(denied, &orders, &answers)) {
            tracing::warn!("denied agents can start under another name: cannot look for their files: {error}");
        }
        Self { wanted, found, looks }
    }

    /// Looks for other files from now on.
    pub(super) fn look_for(&mut self, denied: DeniedFiles) {
        self.looks = !denied.is_empty();
        // Without the thread nothing is found, which was said when it was started.
        drop(self.wanted.send(denied));
    }

    pub(super) fn looks_for_something(&self) -> bool {
        self.looks
    }

    /// What was found since the last call.
    pub(super) fn found(&self) -> Option<Programs> {
        self.found.try_iter().last()
    }
}

fn run(mut denied: DeniedFiles, orders: &Receiver<DeniedFiles>, answers: &Sender<Programs>) {
    let mut last = Programs::default();
    let mut said: BTreeSet<PathBuf> = BTreeSet::new();
    loop {
        let mut found = if denied.is_empty() { Programs::default() } else { programs::find(&denied) };
        // An inode with a generation is never another file's, so a file that was renamed stays denied.
        let moved = last.files.difference(&found.files).filter(|file| file.generation != 0).take(MOVED);
        let moved: Vec<FileId> = moved.copied().collect();
        found.files.extend(moved);
        for path in found.by_name_only.difference(&said) {
            tracing::warn!(
                "{} is denied by name only: its file system shows other device numbers than the kernel compares",
                path.display()
            );
        }
        said.extend(found.by_name_only.iter().cloned());
        if answers.send(found.clone()).is_err() {
            return;
        }
        last = found;
        let order = if denied.is_empty() {
            orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            orders.recv_timeout(EVERY)
        };
        match order {
            Ok(other) => {
                denied = orders.try_iter().last().unwrap_or(other);
                last.files.retain(|file| file.generation == 0);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
