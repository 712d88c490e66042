//! A cgroup (version 2) per session, by which the kernel enforces the session's limits.
//!
//! It is created *beside* the launcher's own cgroup, below the same parent, so that every limit above still applies. It cannot
//! be created below the launcher's cgroup: a cgroup that enables controllers for its children must not contain a process. A
//! launcher whose own cgroup limits memory stays where it is, because its session would escape that limit. A limit on tasks
//! is copied.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::cgroup_namespace::DEPTH;
use super::error::HostError;
use super::limits::{CgroupTree, lineage};
use super::process::ProcessDir;
use watchdog_types::{Bounds, Bytes, Confinement, Pid, ProcessId, Ticks};

const PREFIX: &str = "agent-watchdog-";
/// memory.high in per cent of memory.max: reclaim begins there.
const HIGH: u64 = 80;
/// Tasks per process: pids.max counts threads, of which a node program has a dozen and a browser more. The kernel programs
/// enforce the exact limit on processes.
const THREADS: u64 = 32;
/// Pids that are returned for a cgroup and those below it.
const MEMBERS: usize = 65_536;
const MEMORY_LIMITS: [&str; 3] = ["memory.max", "memory.high", "memory.swap.max"];

/// Limits of a new cgroup; `None` leaves the kernel's default, no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CgroupLimits {
    high: Option<u64>,
    max: Option<u64>,
    pids: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfineResult {
    /// The cgroup of the session, or why it has none.
    pub confinement: Confinement,
    /// A cgroup that was created before the failure and could not be removed: retry.
    pub leftover: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    Gone,
    /// A process is still in it, or below it.
    Busy,
}

/// Creates, finds and removes the cgroups of sessions.
#[derive(Clone, Debug)]
pub struct SessionCgroups {
    pub(super) cgroups: CgroupTree,
}

impl SessionCgroups {
    #[must_use]
    pub fn new(cgroups: CgroupTree) -> Self {
        Self { cgroups }
    }

    /// Creates a cgroup for the session of this root, and moves the root into it. A root that has one, from before a restart of
    /// the daemon, keeps it.
    #[must_use]
    pub fn confine(&self, root: ProcessId, bounds: &Bounds) -> ConfineResult {
        self.try_confine(root, bounds).unwrap_or_else(|error| without(error.to_string()))
    }

    fn try_confine(&self, root: ProcessId, bounds: &Bounds) -> Result<ConfineResult, HostError> {
        let Some(top) = self.cgroups.dir("/") else {
            return Ok(without("no cgroup v2 hierarchy on this host".to_owned()));
        };
        let Some(own) = self.cgroups.path_of(root.pid)? else { return Ok(without(gone(root))) };
        if own.rsplit('/').next() == Some(name(root).as_str()) {
            return Ok(within(own, None));
        }
        for file in MEMORY_LIMITS {
            if self.amount(&own, file)?.is_some() {
                return Ok(without(format!(
                    "the launcher's own cgroup {own} has a {file}, which a cgroup beside it would escape"
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
            format!("{} does not offer {}, so a cgroup cannot limit that", file.display(), missing.join(" and "))
        });
        if missing.len() == usize::from(wants_memory) + usize::from(wants_pids) {
            return Ok(ConfineResult { confinement: Confinement { cgroup: None, problem }, leftover: None });
        }
        self.enable_controllers(parent, &offered)?;
        let path = below(parent, &name(root));
        let problem = match self.fill(&path, root, CgroupLimits::of(bounds, self.amount(&own, "pids.max")?)) {
            Ok(true) => return Ok(within(path, problem)),
            Ok(false) => {
                // Another process may have the pid by now: move it back.
                let _ = self.write(&own, "cgroup.procs", &root.pid.to_string());
                gone(root)
            }
            Err(error) => error.to_string(),
        };
        let leftover = !matches!(self.remove(&path), Ok(Removal::Gone));
        Ok(ConfineResult { leftover: leftover.then_some(path), ..without(problem) })
    }

    /// Enables controllers for the children of a cgroup. Possible for the root, and for a cgroup without processes.
    fn enable_controllers(&self, parent: &str, offered: &[String]) -> Result<(), HostError> {
        let enabled = self.words(parent, "cgroup.subtree_control")?;
        for controller in ["memory", "pids"] {
            let is_in = |words: &[String]| words.iter().any(|word| word == controller);
            if is_in(offered) && !is_in(&enabled) {
                self.write(parent, "cgroup.subtree_control", &format!("+{controller}"))?;
            }
        }
        Ok(())
    }

    /// Creates a cgroup, sets its limits and moves the root into it; `false` when the root has exited.
    fn fill(&self, path: &str, root: ProcessId, limits: CgroupLimits) -> Result<bool, HostError> {
        let Some(dir) = self.cgroups.dir(path) else { return Ok(false) };
        match fs::create_dir(&dir) {
            // Every user may read the usage, even if the daemon has a strict umask.
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
        // Out of memory, the kernel kills the whole session, not one process. Kernels before 4.19 have no such file.
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

    /// The number in a file of a cgroup; `None` when it is `max`, or there is no such file.
    pub(super) fn amount(&self, path: &str, file: &str) -> Result<Option<u64>, HostError> {
        Ok(self.cgroups.read(path, file)?.and_then(|text| text.trim().parse().ok()))
    }

    /// Removes the cgroup of an ended session. It may be busy for a moment after its last process has exited.
    ///
    /// # Errors
    /// When the kernel refuses for another reason than a process in it.
    pub fn remove(&self, path: &str) -> Result<Removal, HostError> {
        let Some(dir) = self.cgroups.dir(path) else { return Ok(Removal::Gone) };
        match fs::remove_dir(&dir) {
            Ok(()) => Ok(Removal::Gone),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Removal::Gone),
            Err(error) if is_busy(&error) => Ok(Removal::Busy),
            Err(error) => Err(HostError::io("remove", dir, error)),
        }
    }

    /// The existing cgroups of sessions, with the sessions' roots.
    pub fn find(&self) -> Result<Vec<(ProcessId, String)>, HostError> {
        let mut found = Vec::new();
        self.walk("/", DEPTH, &mut |path| {
            found.extend(path.rsplit('/').next().and_then(root_of).map(|root| (root, path.to_owned())));
            Ok(())
        })?;
        Ok(found)
    }

    /// The pids in a cgroup and below it, ascending; `None` when it does not exist.
    pub fn members(&self, path: &str) -> Result<Option<Vec<Pid>>, HostError> {
        if !self.cgroups.exists(path) {
            return Ok(None);
        }
        let mut members = Vec::new();
        self.walk(path, DEPTH, &mut |path| {
            let Some(pids) = self.cgroups.read(path, "cgroup.procs")? else { return Ok(()) };
            let room = MEMBERS.saturating_sub(members.len());
            // 0: a process in a pid namespace outside of ours.
            let pids = pids.lines().filter_map(|pid| pid.trim().parse().ok()).filter(|pid| *pid != 0);
            members.extend(pids.map(Pid).take(room));
            Ok(())
        })?;
        members.sort_unstable();
        members.dedup();
        Ok(Some(members))
    }

    /// Visits a cgroup and those below it.
    pub(super) fn walk(
        &self,
        path: &str,
        depth: usize,
        visit: &mut impl FnMut(&str) -> Result<(), HostError>,
    ) -> Result<(), HostError> {
        visit(path)?;
        let Some(dir) = self.cgroups.dir(path).filter(|_| depth > 0) else { return Ok(()) };
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            // Removed meanwhile.
            Err(error) if is_removed(&error) => return Ok(()),
            Err(error) => return Err(HostError::io("list", dir, error)),
        };
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir())
                && let Some(name) = entry.file_name().to_str()
            {
                self.walk(&below(path, name), depth - 1, visit)?;
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

impl CgroupLimits {
    /// Limits of a session; not more tasks than its launcher's own cgroup allows.
    fn of(bounds: &Bounds, own_pids: Option<u64>) -> Self {
        let max = bounds.max_memory.map(|Bytes(bytes)| bytes);
        let tasks = |helpers: u32| (u64::from(helpers) + 1) * THREADS;
        Self { high: max.map(high), max, pids: own_pids.into_iter().chain(bounds.max_helpers.map(tasks)).min() }
    }
}

/// memory.high for this memory.max.
pub(super) fn high(max: u64) -> u64 {
    // In this order a huge amount does not overflow, and a small one does not become zero.
    max / 100 * HIGH + max % 100 * HIGH / 100
}

fn within(path: String, problem: Option<String>) -> ConfineResult {
    ConfineResult { confinement: Confinement { cgroup: Some(path), problem }, leftover: None }
}

fn without(problem: String) -> ConfineResult {
    ConfineResult { confinement: Confinement { cgroup: None, problem: Some(problem) }, leftover: None }
}

/// The parent for the cgroup of a session that was launched in this one.
fn beside(own: &str) -> &str {
    lineage(own).nth(1).unwrap_or("/")
}

fn below(parent: &str, name: &str) -> String {
    format!("{}/{name}", parent.trim_end_matches('/'))
}

fn name(root: ProcessId) -> String {
    format!("{PREFIX}{}-{}", root.pid.0, root.start_time.0)
}

/// The root of the session of this cgroup, if the daemon made it.
pub(super) fn root_of(name: &str) -> Option<ProcessId> {
    let (pid, start_time) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Some(ProcessId { pid: Pid(pid.parse().ok()?), start_time: Ticks(start_time.parse().ok()?) })
}

/// Whether the process can still start others: neither exited nor a zombie.
fn is_there(process: ProcessId) -> Result<bool, HostError> {
    Ok(ProcessDir::of(process, &mut Vec::new())?.is_some_and(|(_, stat)| !stat.is_zombie()))
}

fn gone(root: ProcessId) -> String {
    format!("process {} exited before it could be moved into a cgroup", root.pid)
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
