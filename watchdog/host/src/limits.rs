//! Memory limits of a process: those of its cgroups, of both versions; [`program_limits`](super::program_limits) has the others.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::cgroup_namespace;
use super::error::HostError;
use super::meminfo;
use super::process::ProcessDir;
use super::program_limits::program_limits;
use watchdog_types::{Bytes, CgroupLimit, Limits, Pid, ProcessId};

/// Mount points: alone, or beside hierarchies of version 1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// The memory hierarchy of version 1.
const LEGACY: &str = "/sys/fs/cgroup/memory";
/// From this value on, a limit of version 1 is none: the largest number of pages.
const UNLIMITED: u64 = i64::MAX.unsigned_abs() / 4096 * 4096;

/// The cgroup v2 hierarchy, and where it has no memory controller, that of version 1 for memory.
#[derive(Clone, Debug, Default)]
pub struct CgroupTree {
    /// `None` without one.
    root: Option<PathBuf>,
    memory: bool,
    /// See [`cgroup_namespace::root`].
    namespace_root: String,
    legacy: Option<LegacyMemory>,
}

/// A mounted hierarchy of version 1.
#[derive(Clone, Debug)]
struct LegacyMemory {
    root: PathBuf,
    /// The mounted part: `/`, or a container's cgroup.
    mounted: String,
}

/// Cache for one batch of processes: many are in the same cgroup.
pub type SeenCgroups = HashMap<String, Option<CgroupLimit>>;

impl CgroupTree {
    /// The tree of this host, found once: in a cgroup namespace the search costs 20 µs for each cgroup of the host.
    pub fn host() -> &'static Self {
        static HOST: LazyLock<CgroupTree> = LazyLock::new(CgroupTree::of_host);
        &HOST
    }

    pub(super) fn of_host() -> Self {
        let is_mounted = |root: &&Path| root.join("cgroup.controllers").exists();
        let mounted = MOUNTS.iter().map(Path::new).find(is_mounted);
        let tree = mounted.map(|root| Self { namespace_root: cgroup_namespace::root(root), ..Self::at(root) });
        let tree = tree.unwrap_or_default();
        let legacy = if tree.memory { None } else { LegacyMemory::of_host() };
        Self { legacy, ..tree }
    }

    pub(super) fn at(root: &Path) -> Self {
        let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        let memory = controllers.split_whitespace().any(|controller| controller == "memory");
        Self { root: Some(root.to_owned()), memory, namespace_root: String::new(), legacy: None }
    }

    pub(super) fn have_memory(&self) -> bool {
        self.memory || self.legacy.is_some()
    }

    /// Limits are read from a hierarchy of version 1.
    pub(super) fn is_legacy(&self) -> bool {
        self.legacy.is_some()
    }

    /// `None` when the process has exited. Two dozen system calls, and five per level of the hierarchy unless its cgroup is in
    /// `seen`. Of the environment a few variables are read, and none is kept.
    pub fn limits(&self, process: ProcessId, seen: &mut SeenCgroups) -> Result<Option<Limits>, HostError> {
        let mut buffer = Vec::new();
        let Some((dir, _)) = ProcessDir::of(process, &mut buffer)? else { return Ok(None) };
        let Some(path) = self.memory_path_in(&dir, &mut buffer)? else { return Ok(None) };
        let cgroup = match seen.get(&path) {
            Some(known) => known.clone(),
            None => {
                let found = self.tightest(&path)?;
                seen.insert(path.clone(), found.clone());
                found
            }
        };
        let total = meminfo::host_memory()?.total;
        let memory = cgroup.as_ref().map_or(total, |cgroup| cgroup.max.min(total));
        let own_cgroup = self.have_memory().then_some(path);
        let oom_score_adj = dir.oom_score_adj(&mut buffer)?;
        Ok(Some(Limits { cgroup, own_cgroup, oom_score_adj, ..program_limits(&dir, memory, &mut buffer)? }))
    }

    /// `None` without a hierarchy.
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

    /// The cgroups of this process that have a limit, innermost first; none when the process has exited.
    pub fn above(&self, process: ProcessId) -> Result<Vec<CgroupLimit>, HostError> {
        let mut buffer = Vec::new();
        let Some((dir, _)) = ProcessDir::of(process, &mut buffer)? else { return Ok(Vec::new()) };
        let Some(path) = self.memory_path_in(&dir, &mut buffer)? else { return Ok(Vec::new()) };
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

    /// Memory in use that the kernel cannot drop; `None` without the memory controller.
    pub(super) fn held(&self, path: &str) -> Result<Option<Bytes>, HostError> {
        let Some(current) = self.number(path, "memory.current")? else { return Ok(None) };
        let limit = CgroupLimit { current, cache: self.cache(path)?, ..CgroupLimit::default() };
        Ok(Some(limit.held()))
    }

    /// Memory in use that the kernel drops under pressure: pages of files outside tmpfs.
    fn cache(&self, path: &str) -> Result<Bytes, HostError> {
        let Some(text) = self.read_memory(path, "memory.stat")? else { return Ok(Bytes(0)) };
        let [file, shmem] = if self.is_legacy() { ["total_cache", "total_shmem"] } else { ["file", "shmem"] };
        let amount = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0)
        };
        Ok(Bytes(amount(file).saturating_sub(amount(shmem))))
    }

    /// The number in a file of a cgroup; `None` when it is `max`, or there is no such file: in the root, without the memory
    /// controller, or after the removal of the cgroup.
    fn number(&self, path: &str, file: &'static str) -> Result<Option<Bytes>, HostError> {
        let Some(text) = self.read_memory(path, file)? else { return Ok(None) };
        match text.trim() {
            "max" => Ok(None),
            number => match number.parse::<u64>() {
                Ok(bytes) if self.is_legacy() && bytes >= UNLIMITED => Ok(None),
                Ok(bytes) => Ok(Some(Bytes(bytes))),
                Err(_) => Err(HostError::malformed(PathBuf::from(path).join(file), "neither `max` nor a number")),
            },
        }
    }

    /// memory.max; `None` without a limit.
    pub(super) fn max(&self, path: &str) -> Result<Option<Bytes>, HostError> {
        self.number(path, "memory.max")
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.root.as_ref().is_some_and(|root| root.join(path.trim_start_matches('/')).is_dir())
    }

    /// The same in the hierarchy that limits memory.
    pub(super) fn memory_exists(&self, path: &str) -> bool {
        match &self.legacy {
            Some(legacy) => legacy.root.join(path.trim_start_matches('/')).is_dir(),
            None => self.exists(path),
        }
    }

    /// The cgroup of the process that has this pid now, if any.
    pub(super) fn path_of(&self, pid: Pid) -> Result<Option<String>, HostError> {
        let mut buffer = Vec::new();
        let Some((dir, _)) = ProcessDir::with_stat(pid, &mut buffer)? else { return Ok(None) };
        self.path_in(&dir, &mut buffer)
    }

    /// The process's v2 cgroup, as a path below the root of the hierarchy; `None` when the process has exited.
    fn path_in(&self, dir: &ProcessDir, buffer: &mut Vec<u8>) -> Result<Option<String>, HostError> {
        if dir.read_up_to("cgroup", 64 * 1024, buffer)?.is_none() {
            return Ok(None);
        }
        Ok(Some(cgroup_namespace::resolve(&self.namespace_root, unified(&String::from_utf8_lossy(buffer)))))
    }

    /// The same in the hierarchy that limits memory.
    pub(super) fn memory_path_of(&self, pid: Pid) -> Result<Option<String>, HostError> {
        let mut buffer = Vec::new();
        let Some((dir, _)) = ProcessDir::with_stat(pid, &mut buffer)? else { return Ok(None) };
        self.memory_path_in(&dir, &mut buffer)
    }

    fn memory_path_in(&self, dir: &ProcessDir, buffer: &mut Vec<u8>) -> Result<Option<String>, HostError> {
        let Some(legacy) = &self.legacy else { return self.path_in(dir, buffer) };
        if dir.read_up_to("cgroup", 64 * 1024, buffer)?.is_none() {
            return Ok(None);
        }
        Ok(Some(legacy.path(&String::from_utf8_lossy(buffer))))
    }

    /// `None` when the file does not exist.
    pub(super) fn read(&self, path: &str, file: &str) -> Result<Option<String>, HostError> {
        self.root.as_ref().map_or(Ok(None), |root| read_below(root, path, file))
    }

    /// A file of the memory controller, by its name of version 2; `None` when it does not exist.
    pub(super) fn read_memory(&self, path: &str, file: &str) -> Result<Option<String>, HostError> {
        let Some(legacy) = &self.legacy else { return self.read(path, file) };
        let file = match file {
            "memory.max" => "memory.limit_in_bytes",
            "memory.current" => "memory.usage_in_bytes",
            other => other,
        };
        read_below(&legacy.root, path, file)
    }
}

impl LegacyMemory {
    fn of_host() -> Option<Self> {
        let root = PathBuf::from(LEGACY);
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mounts = mountinfo.lines().rev().map(|line| line.split(' ').collect::<Vec<_>>());
        let mounted =
            mounts.filter(|fields| fields.len() > 4).find(|fields| Path::new(fields[4]) == root)?[3].to_owned();
        root.join("memory.usage_in_bytes").exists().then_some(Self { root, mounted })
    }

    /// The path in the line of the memory controller of a /proc/PID/cgroup, below what is mounted.
    fn path(&self, text: &str) -> String {
        let path = text.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            fields.next()?.split(',').any(|controller| controller == "memory").then_some(fields.next()?)
        });
        let path = path.unwrap_or("/");
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        let below = path.strip_prefix(self.mounted.trim_end_matches('/')).unwrap_or(path);
        if below.starts_with('/') { below.to_owned() } else { format!("/{below}") }
    }
}

fn read_below(root: &Path, path: &str, file: &str) -> Result<Option<String>, HostError> {
    let file = root.join(path.trim_start_matches('/')).join(file);
    match fs::read_to_string(&file) {
        Ok(text) => Ok(Some(text)),
        // ENODEV: removed between open and read.
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(error) => Err(HostError::io("read", file, error)),
    }
}

/// A cgroup and its ancestors: `/a/b`, `/a`, `/`.
pub(super) fn lineage(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| match path.rsplit_once('/') {
        _ if *path == "/" => None,
        Some(("", _)) => Some("/"),
        Some((above, _)) => Some(above),
        None => None,
    })
}

/// The v2 line of a /proc/PID/cgroup: `0::/path`.
fn unified(text: &str) -> &str {
    let path = text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    path.strip_suffix(" (deleted)").unwrap_or(path)
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
