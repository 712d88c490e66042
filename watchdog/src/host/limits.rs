//! The ceilings of a process's memory: its cgroup's (version 2), and what NODE_OPTIONS says of V8's heap.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::HostError;
use super::meminfo;
use super::process::ProcessDir;
use crate::engine::id::{Bytes, Pid, ProcessId};
use crate::engine::input::{CgroupLimit, Limits};
use crate::engine::v8;

/// Where the hierarchy may be mounted: alone, or beside those of version 1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Most bytes of an environment that are looked through.
const ENVIRONMENT: usize = 1 << 20;

/// The hierarchy of cgroups.
#[derive(Clone, Debug, Default)]
pub struct Cgroups {
    /// `None` where there is no version 2.
    root: Option<PathBuf>,
    /// It has the memory controller.
    memory: bool,
}

/// What was found of cgroups in one go: many processes are in one.
pub type Seen = HashMap<String, Option<CgroupLimit>>;

impl Cgroups {
    /// The hierarchy of this host.
    #[must_use]
    pub fn of_host() -> Self {
        let is_mounted = |root: &&Path| root.join("cgroup.controllers").exists();
        let mounted = MOUNTS.iter().map(Path::new).find(is_mounted);
        mounted.map_or(Self { root: None, memory: false }, Self::at)
    }

    /// The hierarchy that is mounted there.
    pub(super) fn at(root: &Path) -> Self {
        let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        let memory = controllers.split_whitespace().any(|controller| controller == "memory");
        Self { root: Some(root.to_owned()), memory }
    }

    /// Whether it tells of memory.
    pub(super) fn have_memory(&self) -> bool {
        self.memory
    }

    /// The ceilings of a process; `None` when it is gone. A dozen system calls, and five for each level of the hierarchy
    /// unless its cgroup is among `seen`. Of a node program's environment nothing but one variable is looked at, and nothing
    /// is kept.
    ///
    /// # Errors
    /// When the kernel refuses to open or read a file.
    pub fn limits(&self, process: ProcessId, seen: &mut Seen) -> Result<Option<Limits>, HostError> {
        let mut buffer = Vec::new();
        let Some((dir, _)) = ProcessDir::of(process, &mut buffer)? else { return Ok(None) };
        let Some(path) = path_of(&dir, &mut buffer)? else { return Ok(None) };
        let cgroup = match seen.get(&path) {
            Some(known) => known.clone(),
            None => {
                let found = self.tightest(&path)?;
                seen.insert(path, found.clone());
                found
            }
        };
        let options = if is_node(&dir)? { node_options(&dir, &mut buffer)? } else { None };
        let v8_heap = match options {
            Some(options) => {
                let total = meminfo::host_memory()?.total;
                let memory = cgroup.as_ref().map_or(total, |cgroup| cgroup.max.min(total));
                v8::stated_in_node_options(&options, memory)
            }
            None => None,
        };
        Ok(Some(Limits { cgroup, v8_heap }))
    }

    /// The directory of a cgroup; `None` where there is no hierarchy.
    pub(super) fn dir(&self, path: &str) -> Option<PathBuf> {
        self.root.as_ref().map(|root| root.join(path.trim_start_matches('/')))
    }

    /// The lowest `memory.max` of a cgroup and those above it; of equal ones the outermost, which more processes fill.
    fn tightest(&self, path: &str) -> Result<Option<CgroupLimit>, HostError> {
        let mut tightest: Option<(&str, Bytes)> = None;
        for path in lineage(path) {
            if let Some(max) = self.number(path, "memory.max")?
                && tightest.is_none_or(|(_, least)| max <= least)
            {
                tightest = Some((path, max));
            }
        }
        tightest.map(|(path, max)| self.limit(path, max)).transpose()
    }

    /// The cgroups of this process that have a limit, the inner ones first; none when the process is gone.
    ///
    /// # Errors
    /// When the kernel refuses to open or read a file.
    pub fn above(&self, process: ProcessId) -> Result<Vec<CgroupLimit>, HostError> {
        let mut buffer = Vec::new();
        let Some((dir, _)) = ProcessDir::of(process, &mut buffer)? else { return Ok(Vec::new()) };
        let Some(path) = path_of(&dir, &mut buffer)? else { return Ok(Vec::new()) };
        let mut limits = Vec::new();
        for path in lineage(&path) {
            if let Some(max) = self.number(path, "memory.max")? {
                limits.push(self.limit(path, max)?);
            }
        }
        Ok(limits)
    }

    fn limit(&self, path: &str, max: Bytes) -> Result<CgroupLimit, HostError> {
        let current = self.number(path, "memory.current")?.unwrap_or_default();
        let cache = self.cache(path)?;
        Ok(CgroupLimit { path: path.to_owned(), max, current, cache })
    }

    /// What a cgroup holds and cannot drop; `None` when it does not tell.
    pub(super) fn held(&self, path: &str) -> Result<Option<Bytes>, HostError> {
        let Some(current) = self.number(path, "memory.current")? else { return Ok(None) };
        let limit = CgroupLimit { current, cache: self.cache(path)?, ..CgroupLimit::default() };
        Ok(Some(limit.held()))
    }

    /// What a cgroup holds that the kernel drops when it needs to: files' pages that are no tmpfs's.
    fn cache(&self, path: &str) -> Result<Bytes, HostError> {
        let Some(text) = self.read(path, "memory.stat")? else { return Ok(Bytes(0)) };
        let amount = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0)
        };
        Ok(Bytes(amount("file").saturating_sub(amount("shmem"))))
    }

    /// An amount that a file of a cgroup states; `None` when it is `max`, or there is no such file: the root has none,
    /// and neither has a cgroup without the memory controller, or one that is gone.
    fn number(&self, path: &str, file: &'static str) -> Result<Option<Bytes>, HostError> {
        let Some(text) = self.read(path, file)? else { return Ok(None) };
        match text.trim() {
            "max" => Ok(None),
            number => match number.parse() {
                Ok(bytes) => Ok(Some(Bytes(bytes))),
                Err(_) => Err(HostError::malformed(PathBuf::from(path).join(file), "neither `max` nor a number")),
            },
        }
    }

    /// memory.max of a cgroup; `None` when it has none.
    pub(super) fn max(&self, path: &str) -> Result<Option<Bytes>, HostError> {
        self.number(path, "memory.max")
    }

    /// Whether there is such a cgroup.
    pub(super) fn exists(&self, path: &str) -> bool {
        self.root.as_ref().is_some_and(|root| root.join(path.trim_start_matches('/')).is_dir())
    }

    /// The cgroup of whoever has this pid now; `None` when nobody has.
    pub(super) fn path_of(&self, pid: Pid) -> Result<Option<String>, HostError> {
        let mut buffer = Vec::new();
        let Some((dir, _)) = ProcessDir::with_stat(pid, &mut buffer)? else { return Ok(None) };
        path_of(&dir, &mut buffer)
    }

    /// A file of a cgroup; `None` when there is none.
    pub(super) fn read(&self, path: &str, file: &str) -> Result<Option<String>, HostError> {
        let Some(root) = &self.root else { return Ok(None) };
        let file = root.join(path.trim_start_matches('/')).join(file);
        match fs::read_to_string(&file) {
            Ok(text) => Ok(Some(text)),
            // ENODEV: it was removed between open and read.
            Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV) => {
                Ok(None)
            }
            Err(error) => Err(HostError::io("read", file, error)),
        }
    }
}

/// A cgroup and those above it, from the inside out: `/a/b`, `/a`, `/`.
pub(super) fn lineage(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| match path.rsplit_once('/') {
        _ if *path == "/" => None,
        Some(("", _)) => Some("/"),
        Some((above, _)) => Some(above),
        None => None,
    })
}

/// The process's cgroup in the hierarchy of version 2, as a path below its root; `None` when the process is gone.
fn path_of(dir: &ProcessDir, buffer: &mut Vec<u8>) -> Result<Option<String>, HostError> {
    if dir.read_up_to("cgroup", 64 * 1024, buffer)?.is_none() {
        return Ok(None);
    }
    Ok(Some(unified(&String::from_utf8_lossy(buffer)).to_owned()))
}

/// The line of version 2 of a /proc/PID/cgroup: `0::/path`. Paths outside of our own cgroup namespace lead upwards
/// (`/../x`): nothing can be said of them.
fn unified(text: &str) -> &str {
    let path = text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    if path.starts_with("/..") { "/" } else { path }
}

fn is_node(dir: &ProcessDir) -> Result<bool, HostError> {
    let Some(path) = dir.link("exe")? else { return Ok(false) };
    let path = path.strip_suffix(b" (deleted)").unwrap_or(&path);
    let name = path.rsplit(|byte| *byte == b'/').next();
    Ok(matches!(name, Some(b"node" | b"nodejs")))
}

/// The value of NODE_OPTIONS, and nothing else of the environment: secrets stand there.
fn node_options(dir: &ProcessDir, buffer: &mut Vec<u8>) -> Result<Option<String>, HostError> {
    if dir.read_up_to("environ", ENVIRONMENT, buffer)?.is_none() {
        return Ok(None);
    }
    let value = buffer.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(b"NODE_OPTIONS="));
    let value = value.map(|value| String::from_utf8_lossy(value).into_owned());
    buffer.clear();
    Ok(value)
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
