//! Kills, freezes and throttles a session's cgroup as a whole.
//!
//! Only cgroups that the daemon made are changed. One is killed or frozen only if it, with those below it, holds exactly
//! the target processes: any other process in it would be hit without a verdict.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

use super::cgroup::{SessionCgroups, high, is_removed, root_of};
use super::cgroup_namespace::DEPTH;
use super::error::HostError;
use super::pidfd::PidFd;
use watchdog_types::{Bytes, Pid};

/// Lowest limit of a throttled session: with less, even a shell and a waiting agent only page-fault.
const MIN_THROTTLE: Bytes = Bytes(64 << 20);

impl SessionCgroups {
    /// Whether the daemon made this cgroup for a session, and it and those below it hold exactly these processes, all of
    /// them alive. `false` where that is uncertain.
    pub fn holds_exactly(&self, path: &str, processes: &[PidFd]) -> Result<bool, HostError> {
        let pids = processes.iter().map(PidFd::pid).collect();
        if !self.holds(path, &pids)? {
            return Ok(false);
        }
        // Checked last: the pid of a dead process may belong to another process in the cgroup.
        processes.iter().try_fold(true, |all, process| Ok(all && process.is_alive()?))
    }

    fn holds(&self, path: &str, pids: &BTreeSet<Pid>) -> Result<bool, HostError> {
        if !is_ours(path) || !self.cgroups.exists(path) {
            return Ok(false);
        }
        let (mut found, mut certain) = (BTreeSet::new(), true);
        self.walk(path, DEPTH, &mut |path| {
            // Deeper cgroups are not walked.
            certain &= path.split('/').count() < DEPTH;
            for pid in self.cgroups.read(path, "cgroup.procs")?.unwrap_or_default().lines() {
                // 0: a process in a pid namespace outside of ours.
                match pid.trim().parse() {
                    Ok(pid @ 1..) => drop(found.insert(Pid(pid))),
                    _ => certain = false,
                }
            }
            Ok(())
        })?;
        Ok(certain && found == *pids)
    }

    /// Kills the processes of a cgroup if they are exactly these. `false`, without any effect, when they are not or
    /// the kernel is older than 5.14.
    pub fn kill_exactly(&self, path: &str, processes: &[PidFd]) -> Result<bool, HostError> {
        Ok(self.holds_exactly(path, processes)? && self.write_existing(path, "cgroup.kill", "1")?)
    }

    /// Freezes the processes of a cgroup if they are exactly these. `false`, without any effect, when they are not or
    /// the kernel is older than 5.2.
    pub fn freeze_exactly(&self, path: &str, processes: &[PidFd]) -> Result<bool, HostError> {
        Ok(self.holds_exactly(path, processes)? && self.write_existing(path, "cgroup.freeze", "1")?)
    }

    /// Thaws a cgroup, even if other processes have joined it: it would stay frozen for ever. `false` when it does not exist.
    pub fn thaw(&self, path: &str) -> Result<bool, HostError> {
        Ok(is_ours(path) && self.write_existing(path, "cgroup.freeze", "0")?)
    }

    /// Lowers memory.high to the memory in use that cannot be dropped: from then on the processes reclaim before they
    /// allocate. Returns the new limit; `None` when the cgroup does not exist or has no memory controller.
    pub fn throttle(&self, path: &str) -> Result<Option<Bytes>, HostError> {
        if !is_ours(path) {
            return Ok(None);
        }
        let Some(held) = self.cgroups.held(path)? else { return Ok(None) };
        let made_with = self.cgroups.max(path)?.map(|max| Bytes(high(max.0)));
        let bound = held.max(MIN_THROTTLE).min(made_with.unwrap_or(Bytes(u64::MAX)));
        let bound = self.amount(path, "memory.high")?.map_or(bound, |today| bound.min(Bytes(today)));
        Ok(self.write_existing(path, "memory.high", &bound.0.to_string())?.then_some(bound))
    }

    /// Restores the memory.high that the cgroup was made with; `false` when it does not exist or has no memory controller.
    pub fn unthrottle(&self, path: &str) -> Result<bool, HostError> {
        let bound = self.cgroups.max(path)?.map_or_else(|| "max".to_owned(), |max| high(max.0).to_string());
        Ok(is_ours(path) && self.write_existing(path, "memory.high", &bound)?)
    }

    /// `false` when the file does not exist.
    fn write_existing(&self, path: &str, file: &str, text: &str) -> Result<bool, HostError> {
        let Some(file) = self.cgroups.dir(path).map(|dir| dir.join(file)) else { return Ok(false) };
        // The writer of memory.high reclaims what is above it. With O_NONBLOCK, newer kernels leave that to the processes of
        // the cgroup.
        let opened = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&file);
        match opened.and_then(|mut opened| opened.write_all(text.as_bytes())) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound || is_removed(&error) => Ok(false),
            Err(error) => Err(HostError::io("write", file, error)),
        }
    }
}

/// Whether the name is one that the daemon gives to cgroups of sessions, in a path without `..`.
fn is_ours(path: &str) -> bool {
    let is_plain = !path.split('/').any(|part| part == "..");
    is_plain && path.rsplit('/').next().and_then(root_of).is_some()
}

#[cfg(test)]
#[path = "cgroup_control_tests.rs"]
mod tests;
