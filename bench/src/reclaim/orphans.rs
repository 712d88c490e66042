//! What a benchmark of reclaim started and did not end.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process, set_child_subreaper};

use watchdog_tests::{ProcessKey, descendants, poll};

/// How long killed processes may take to exit.
const EXIT: Duration = Duration::from_secs(60);

/// Kills what is started meanwhile: gemini ignores the end of its terminal, and codex starts a daemon.
pub(super) struct OrphanReaper {
    /// Processes that existed before.
    before: BTreeSet<ProcessKey>,
}

impl OrphanReaper {
    /// From now on, orphans become children of this process.
    pub(super) fn new() -> Result<Self> {
        set_child_subreaper(Some(Pid::INIT)).context("becoming a subreaper")?;
        Ok(Self { before: descendants(std::process::id()) })
    }
}

impl Drop for OrphanReaper {
    fn drop(&mut self) {
        let ended = poll(EXIT, || {
            let left: Vec<_> = descendants(std::process::id()).difference(&self.before).copied().collect();
            for pid in left.iter().filter_map(|process| Pid::from_raw(i32::try_from(process.pid).ok()?)) {
                // An error means that it has exited.
                let _ = kill_process(pid, Signal::KILL);
            }
            left.is_empty().then_some(())
        });
        if ended.is_none() {
            eprintln!("processes of an agent are still running");
        }
    }
}
