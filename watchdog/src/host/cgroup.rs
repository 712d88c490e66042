//! A cgroup (version 2) for a session: what it may take, held by the kernel.
//!
//! It is made *beside* the launcher's own cgroup, below the same parent, so that every limit above it goes on holding. It cannot
//! be made below the launcher's own: a cgroup that hands on controllers must hold no process itself. A launcher whose own
//! cgroup limits memory stays where it is, since its session would leave that limit, which it shares with others; a limit on
//! tasks is copied.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::error::HostError;
use super::limits::{Cgroups, lineage};
use super::process::ProcessDir;
use crate::engine::gate::{Bounds, Confinement};
use crate::engine::id::{Bytes, Pid, ProcessId, Ticks};

/// What the names of our cgroups begin with.
const PREFIX: &str = "agent-watchdog-";
/// Reclaim begins at this share of what the session may take, in per cent.
const HIGH: u64 = 80;
/// Tasks that a process may have: pids.max counts threads, of which a node program has a dozen and a browser more. The exact
/// bound on processes is the kernel programs'.
const THREADS: u64 = 32;
/// How deep the hierarchy is looked through.
pub(super) const DEPTH: usize = 32;
/// Pids of a cgroup and those below it that are told at most.
const MEMBERS: usize = 65_536;
/// Where a cgroup limits memory.
const MEMORY_LIMITS: [&str; 3] = ["memory.max", "memory.high", "memory.swap.max"];

/// What is written into a new cgroup. `None` leaves the kernel's default, which is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Limits {
    high: Option<u64>,
    max: Option<u64>,
    pids: Option<u64>,
}

/// What became of a session's cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confined {
    /// What the session is held by, or why by nothing.
    pub confinement: Confinement,
    /// A cgroup that was made in vain, and could not be removed at once: it is to be tried again.
    pub leftover: Option<String>,
}

/// Whether a cgroup is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It is.
    Gone,
    /// Somebody is still in it, or below it.
    Busy,
}

/// Makes cgroups for sessions.
#[derive(Clone, Debug)]
pub struct SessionCgroups {
    pub(super) cgroups: Cgroups,
}

impl SessionCgroups {
    /// In this hierarchy.
    #[must_use]
    pub fn new(cgroups: Cgroups) -> Self {
        Self { cgroups }
    }

    /// Gives the session of this root a cgroup of its own, and moves the root into it. A root that has one already (the daemon
    /// was started again) keeps it.
    #[must_use]
    pub fn confine(&self, root: ProcessId, bounds: &Bounds) -> Confined {
        self.try_confine(root, bounds).unwrap_or_else(|error| without(error.to_string()))
    }

    fn try_confine(&self, root: ProcessId, bounds: &Bounds) -> Result<Confined, HostError> {
        let Some(top) = self.cgroups.dir("/") else {
            return Ok(without("this host has no hierarchy of cgroup version 2".to_owned()));
        };
        let Some(own) = self.cgroups.path_of(root.pid)? else { return Ok(without(gone(root))) };
        if own.rsplit('/').next() == Some(name(root).as_str()) {
            return Ok(within(own, None));
        }
        for file in MEMORY_LIMITS {
            if self.amount(&own, file)?.is_some() {
                return Ok(without(format!(
                    "the launcher's own cgroup {own} has a {file}, which a session in a cgroup beside it would leave"
                )));
            }
        }
        let (wants_memory, wants_pids) = (bounds.max_memory.is_some(), bounds.max_helpers.is_some());
        let parent = beside(&own);
        let offered = self.words(parent, "cgroup.controllers")?;
        let missing: Vec<&str> = [("memory", wants_memory), ("pids", wants_pids)]
            .into_iter()
            .filter(|(controller, wanted)| *wanted && !offered.iter().any(|one| one == controller))
            .map(|(controller, _)| controller)
            .collect();
        let problem = (!missing.is_empty()).then(|| {
            let file = top.join(parent.trim_start_matches('/')).join("cgroup.controllers");
            format!("{} does not offer {}, so no cgroup can limit that", file.display(), missing.join(" and "))
        });
        if missing.len() == usize::from(wants_memory) + usize::from(wants_pids) {
            return Ok(Confined { confinement: Confinement { cgroup: None, problem }, leftover: None });
        }
        self.hand_on(parent, &offered)?;
        let path = below(parent, &name(root));
        let problem = match self.fill(&path, root, Limits::of(bounds, self.amount(&own, "pids.max")?)) {
            Ok(true) => return Ok(within(path, problem)),
            Ok(false) => {
                // Whoever has the pid now, if anybody, goes back to where it was.
                let _ = self.write(&own, "cgroup.procs", &root.pid.to_string());
                gone(root)
            }
            Err(error) => error.to_string(),
        };
        let leftover = !matches!(self.remove(&path), Ok(Removal::Gone));
        Ok(Confined { leftover: leftover.then_some(path), ..without(problem) })
    }

    /// Has a cgroup give its controllers to those below it. Only one without processes can, and the root.
    fn hand_on(&self, parent: &str, offered: &[String]) -> Result<(), HostError> {
        let handed_on = self.words(parent, "cgroup.subtree_control")?;
        for controller in ["memory", "pids"] {
            let is_in = |words: &[String]| words.iter().any(|word| word == controller);
            if is_in(offered) && !is_in(&handed_on) {
                self.write(parent, "cgroup.subtree_control", &format!("+{controller}"))?;
            }
        }
        Ok(())
    }

    /// Makes a cgroup, sets its limits and moves the root into it; `false` when the root is gone.
    fn fill(&self, path: &str, root: ProcessId, limits: Limits) -> Result<bool, HostError> {
        let Some(dir) = self.cgroups.dir(path) else { return Ok(false) };
        match fs::create_dir(&dir) {
            // Every user may read what a cgroup takes, also where the daemon has a strict umask.
            Ok(()) => fs::set_permissions(&dir, Permissions::from_mode(0o755))
                .map_err(|error| HostError::io("set the permissions of", dir.clone(), error))?,
            // Left by a daemon that was killed before it moved the root.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(HostError::io("make", dir, error)),
        }
        let amounts = [("memory.max", limits.max), ("memory.high", limits.high), ("pids.max", limits.pids)];
        for (file, amount) in amounts {
            if let Some(amount) = amount
                && dir.join(file).exists()
            {
                self.write(path, file, &amount.to_string())?;
            }
        }
        // The whole session goes when it runs out, not one process of it; kernels before 4.19 have no such file.
        if limits.max.is_some() && dir.join("memory.oom.group").exists() {
            self.write(path, "memory.oom.group", "1")?;
        }
        if !is_there(root)? {
            return Ok(false);
        }
        match self.write(path, "cgroup.procs", &root.pid.to_string()) {
            Err(HostError::Io { source, .. }) if source.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
            written => written?,
        }
        is_there(root)
    }

    /// What a file of a cgroup limits; `None` when it is `max`, or there is no such file.
    pub(super) fn amount(&self, path: &str, file: &str) -> Result<Option<u64>, HostError> {
        Ok(self.cgroups.read(path, file)?.and_then(|text| text.trim().parse().ok()))
    }

    /// Takes away a cgroup whose session is over. One whose last process has just exited may be busy for a moment.
    ///
    /// # Errors
    /// When the kernel refuses for another reason than that somebody is in it.
    pub fn remove(&self, path: &str) -> Result<Removal, HostError> {
        let Some(dir) = self.cgroups.dir(path) else { return Ok(Removal::Gone) };
        match fs::remove_dir(&dir) {
            Ok(()) => Ok(Removal::Gone),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Removal::Gone),
            Err(error) if is_busy(&error) => Ok(Removal::Busy),
            Err(error) => Err(HostError::io("remove", dir, error)),
        }
    }

    /// The cgroups of sessions that are there, with the sessions' roots.
    ///
    /// # Errors
    /// When the kernel refuses to list the hierarchy.
    pub fn find(&self) -> Result<Vec<(ProcessId, String)>, HostError> {
        let mut found = Vec::new();
        self.walk("/", DEPTH, &mut |path| {
            found.extend(path.rsplit('/').next().and_then(root_of).map(|root| (root, path.to_owned())));
            Ok(())
        })?;
        Ok(found)
    }

    /// Who is in a cgroup or below it, ascending; `None` when there is no such cgroup.
    ///
    /// # Errors
    /// When the kernel refuses to list or read.
    pub fn members(&self, path: &str) -> Result<Option<Vec<Pid>>, HostError> {
        if !self.cgroups.exists(path) {
            return Ok(None);
        }
        let mut members = Vec::new();
        self.walk(path, DEPTH, &mut |path| {
            let Some(pids) = self.cgroups.read(path, "cgroup.procs")? else { return Ok(()) };
            let room = MEMBERS.saturating_sub(members.len());
            // 0 stands for whoever is in a pid namespace that we cannot see.
            let pids = pids.lines().filter_map(|pid| pid.trim().parse().ok()).filter(|pid| *pid != 0);
            members.extend(pids.map(Pid).take(room));
            Ok(())
        })?;
        members.sort_unstable();
        members.dedup();
        Ok(Some(members))
    }

    /// Looks at a cgroup and those below it.
    pub(super) fn walk(
        &self,
        path: &str,
        depth: usize,
        look: &mut impl FnMut(&str) -> Result<(), HostError>,
    ) -> Result<(), HostError> {
        look(path)?;
        let Some(dir) = self.cgroups.dir(path).filter(|_| depth > 0) else { return Ok(()) };
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            // It was removed meanwhile.
            Err(error) if is_removed(&error) => return Ok(()),
            Err(error) => return Err(HostError::io("list", dir, error)),
        };
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir())
                && let Some(name) = entry.file_name().to_str()
            {
                self.walk(&below(path, name), depth - 1, look)?;
            }
        }
        Ok(())
    }

    fn words(&self, path: &str, file: &str) -> Result<Vec<String>, HostError> {
        let text = self.cgroups.read(path, file)?.unwrap_or_default();
        Ok(text.split_whitespace().map(str::to_owned).collect())
    }

    fn write(&self, path: &str, file: &str, text: &str) -> Result<(), HostError> {
        let file = self.cgroups.dir(path).unwrap_or_else(|| PathBuf::from(path)).join(file);
        fs::write(&file, text).map_err(|error| HostError::io("write", file, error))
    }
}

impl Limits {
    /// What a session is held to, and no more tasks than its launcher's own cgroup may have.
    fn of(bounds: &Bounds, own_pids: Option<u64>) -> Self {
        let max = bounds.max_memory.map(|Bytes(bytes)| bytes);
        let tasks = |helpers: u32| (u64::from(helpers) + 1) * THREADS;
        Self { high: max.map(high), max, pids: own_pids.into_iter().chain(bounds.max_helpers.map(tasks)).min() }
    }
}

/// memory.high of a cgroup that may take `max`.
pub(super) fn high(max: u64) -> u64 {
    // In this order a share of a huge amount does not overflow, and one of a small amount is not nothing.
    max / 100 * HIGH + max % 100 * HIGH / 100
}

fn within(path: String, problem: Option<String>) -> Confined {
    Confined { confinement: Confinement { cgroup: Some(path), problem }, leftover: None }
}

fn without(problem: String) -> Confined {
    Confined { confinement: Confinement { cgroup: None, problem: Some(problem) }, leftover: None }
}

/// The cgroup in which a session's goes that was launched in this one.
fn beside(own: &str) -> &str {
    lineage(own).nth(1).unwrap_or("/")
}

fn below(parent: &str, name: &str) -> String {
    format!("{}/{name}", parent.trim_end_matches('/'))
}

fn name(root: ProcessId) -> String {
    format!("{PREFIX}{}-{}", root.pid.0, root.start_time.0)
}

/// Whose session a cgroup of this name is for, if it is one of ours.
pub(super) fn root_of(name: &str) -> Option<ProcessId> {
    let (pid, start_time) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Some(ProcessId { pid: Pid(pid.parse().ok()?), start_time: Ticks(start_time.parse().ok()?) })
}

/// Whether the process lives: a zombie will not start anything any more.
fn is_there(process: ProcessId) -> Result<bool, HostError> {
    Ok(ProcessDir::of(process, &mut Vec::new())?.is_some_and(|(_, stat)| !stat.is_zombie()))
}

fn gone(root: ProcessId) -> String {
    format!("process {} was gone before it could be moved into a cgroup", root.pid)
}

fn is_busy(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::DirectoryNotEmpty)
}

pub(super) fn is_removed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

#[cfg(test)]
#[path = "cgroup_tests.rs"]
mod tests;
