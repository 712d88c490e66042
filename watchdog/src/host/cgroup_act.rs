//! What is done to a session's cgroup as a whole: killed, frozen, throttled, and let go.
//!
//! Nothing is done to a cgroup that we have not made. One is killed or frozen only if it, with those below it, holds exactly the
//! processes that are meant: whoever else is in there would be hit without having been judged.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

use super::cgroup::{DEPTH, SessionCgroups, high, is_removed, root_of};
use super::error::HostError;
use super::pinned::Pinned;
use crate::engine::id::{Bytes, Pid};

/// No session is throttled to less: below this even a shell and an agent that waits do nothing but fault.
const LEAST: Bytes = Bytes(64 << 20);

impl SessionCgroups {
    /// Whether a cgroup is one that we made for a session, and it and those below it hold exactly these processes, all of which
    /// live. What is not to be told for certain is not so.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn holds_exactly(&self, path: &str, processes: &[Pinned]) -> Result<bool, HostError> {
        let pids = processes.iter().map(Pinned::pid).collect();
        if !self.holds(path, &pids)? {
            return Ok(false);
        }
        // Afterwards: whoever is dead may have a successor of the same pid in there.
        processes.iter().try_fold(true, |all, process| Ok(all && process.is_alive()?))
    }

    fn holds(&self, path: &str, pids: &BTreeSet<Pid>) -> Result<bool, HostError> {
        if !is_ours(path) || !self.cgroups.exists(path) {
            return Ok(false);
        }
        let (mut found, mut certain) = (BTreeSet::new(), true);
        self.walk(path, DEPTH, &mut |path| {
            // What lies deeper is not walked.
            certain &= path.split('/').count() < DEPTH;
            for pid in self.cgroups.read(path, "cgroup.procs")?.unwrap_or_default().lines() {
                // 0 stands for somebody in a pid namespace that we cannot see.
                match pid.trim().parse() {
                    Ok(pid @ 1..) => drop(found.insert(Pid(pid))),
                    _ => certain = false,
                }
            }
            Ok(())
        })?;
        Ok(certain && found == *pids)
    }

    /// Kills everybody in a cgroup if those are exactly these processes; `false` when they are not, or the kernel (before 5.14)
    /// cannot: then nothing was done.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill_exactly(&self, path: &str, processes: &[Pinned]) -> Result<bool, HostError> {
        Ok(self.holds_exactly(path, processes)? && self.write_existing(path, "cgroup.kill", "1")?)
    }

    /// Freezes everybody in a cgroup if those are exactly these processes; `false` when they are not, or the kernel (before 5.2)
    /// cannot: then nothing was done.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn freeze_exactly(&self, path: &str, processes: &[Pinned]) -> Result<bool, HostError> {
        Ok(self.holds_exactly(path, processes)? && self.write_existing(path, "cgroup.freeze", "1")?)
    }

    /// Has a cgroup go on that was frozen, whoever is in it by now: it would stay frozen for ever. `false` when there is none.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn thaw(&self, path: &str) -> Result<bool, HostError> {
        Ok(is_ours(path) && self.write_existing(path, "cgroup.freeze", "0")?)
    }

    /// Has a cgroup take no more than it holds now and cannot drop: from there on it has to reclaim, and waits for that. Told is
    /// the new bound; `None` when there is no such cgroup, or it has no memory controller.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn throttle(&self, path: &str) -> Result<Option<Bytes>, HostError> {
        if !is_ours(path) {
            return Ok(None);
        }
        let Some(held) = self.cgroups.held(path)? else { return Ok(None) };
        let made_with = self.cgroups.max(path)?.map(|max| Bytes(high(max.0)));
        let bound = held.max(LEAST).min(made_with.unwrap_or(Bytes(u64::MAX)));
        let bound = self.amount(path, "memory.high")?.map_or(bound, |today| bound.min(Bytes(today)));
        Ok(self.write_existing(path, "memory.high", &bound.0.to_string())?.then_some(bound))
    }

    /// Gives a cgroup the bound that it was made with; `false` when there is no such cgroup, or it has no memory controller.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn loosen(&self, path: &str) -> Result<bool, HostError> {
        let bound = self.cgroups.max(path)?.map_or_else(|| "max".to_owned(), |max| high(max.0).to_string());
        Ok(is_ours(path) && self.write_existing(path, "memory.high", &bound)?)
    }

    /// Writes a file of a cgroup; `false` when there is none.
    fn write_existing(&self, path: &str, file: &str, text: &str) -> Result<bool, HostError> {
        let Some(file) = self.cgroups.dir(path).map(|dir| dir.join(file)) else { return Ok(false) };
        // Whoever lowers memory.high reclaims what is above it; newer kernels leave that to those who are in the cgroup when the
        // writer does not want to wait.
        let opened = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&file);
        match opened.and_then(|mut opened| opened.write_all(text.as_bytes())) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound || is_removed(&error) => Ok(false),
            Err(error) => Err(HostError::io("write", file, error)),
        }
    }
}

/// Whether a cgroup bears a name that we give to those of sessions, and its path leads nowhere else.
fn is_ours(path: &str) -> bool {
    let is_plain = !path.split('/').any(|part| part == "..");
    is_plain && path.rsplit('/').next().and_then(root_of).is_some()
}

#[cfg(test)]
#[path = "cgroup_act_tests.rs"]
mod tests;
