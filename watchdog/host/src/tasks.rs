//! Limits on tasks: pids.max of cgroups, RLIMIT_NPROC, and the host's own.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use super::error::HostError;
use super::limits::lineage;
use super::process::{ProcessDir, pids};
use super::stat::Fields;
use watchdog_types::{Pid, ProcessId, TaskLimit, TaskLimitScope, TaskReading, Uid};

/// Bytes of /proc/PID/cgroup, limits and status that are read.
const FILE: usize = 16 << 10;

/// Mount points of hierarchies with the pids controller.
#[derive(Clone, Debug)]
pub struct TaskLimits {
    /// Version 2.
    unified: Vec<PathBuf>,
    /// Version 1.
    legacy: PathBuf,
}

impl Default for TaskLimits {
    fn default() -> Self {
        Self {
            unified: ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from).into(),
            legacy: "/sys/fs/cgroup/pids".into(),
        }
    }
}

impl TaskLimits {
    /// The limits that hold for `agents`; while one of them is near, the threads of `members` too. 60 µs for each agent, and
    /// 20 µs for each process of the host while a limit of a user may be near.
    pub fn read(&self, agents: &[ProcessId], members: &[ProcessId]) -> Result<TaskReading, HostError> {
        let mut limits: BTreeMap<TaskLimitScope, TaskLimit> = BTreeMap::new();
        let mut hold = |of: TaskLimitScope, used: u64, max: u64, agent: ProcessId| {
            let limit = limits.entry(of.clone()).or_insert_with(|| TaskLimit { of, used, max, agents: Vec::new() });
            limit.max = limit.max.min(max);
            limit.agents.push(agent);
        };
        let host = host_tasks()?;
        let mut of_users: HashMap<Uid, u64> = HashMap::new();
        let mut buffer = Vec::new();
        for agent in agents {
            let Some((dir, _)) = ProcessDir::of(*agent, &mut buffer)? else { continue };
            if let Some((used, max)) = host {
                hold(TaskLimitScope::Host, used, max, *agent);
            }
            if let Some(()) = dir.read_up_to("cgroup", FILE, &mut buffer)? {
                for (path, used, max) in self.cgroups(&String::from_utf8_lossy(&buffer)) {
                    hold(TaskLimitScope::Cgroup(path), used, max, *agent);
                }
            }
            if let Some((uid, max)) = user_limit(&dir, &mut buffer)?
                && host.is_none_or(|(tasks, _)| tasks * 100 >= max.saturating_mul(TaskLimit::NEAR_PERCENT))
            {
                if of_users.is_empty() {
                    of_users = tasks_of_users()?;
                }
                hold(TaskLimitScope::User(uid), of_users.get(&uid).copied().unwrap_or(0), max, *agent);
            }
        }
        let limits: Vec<TaskLimit> = limits.into_values().collect();
        let mut threads = Vec::new();
        if limits.iter().any(TaskLimit::is_near) {
            for member in members {
                let Some((dir, _)) = ProcessDir::of(*member, &mut buffer)? else { continue };
                if let Some(()) = dir.read_up_to("status", FILE, &mut buffer)? {
                    threads.extend(Fields(&buffer).number("Threads").map(|threads| (*member, threads)));
                }
            }
        }
        Ok(TaskReading { limits, threads })
    }

    /// The cgroups of /proc/PID/cgroup, and those above them, that limit tasks: path, tasks, limit.
    fn cgroups(&self, text: &str) -> Vec<(String, u64, u64)> {
        let mut found = Vec::new();
        for line in text.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            let roots: &[PathBuf] = match controllers {
                "" => &self.unified,
                some if some.split(',').any(|controller| controller == "pids") => std::slice::from_ref(&self.legacy),
                _ => continue,
            };
            for path in lineage(path) {
                let limit = roots.iter().find_map(|root| cgroup_limit(&root.join(path.trim_start_matches('/'))));
                found.extend(limit.map(|(used, max)| (path.to_owned(), used, max)));
            }
        }
        found
    }
}

/// `None` where the cgroup has no limit, or no pids controller, or was removed.
fn cgroup_limit(directory: &Path) -> Option<(u64, u64)> {
    let number = |file: &str| fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok();
    Some((number("pids.current")?, number("pids.max")?))
}

/// The user of a process, and its RLIMIT_NPROC. None for root, which it does not limit, and where it is unlimited.
fn user_limit(dir: &ProcessDir, buffer: &mut Vec<u8>) -> Result<Option<(Uid, u64)>, HostError> {
    let Some(()) = dir.read_up_to("status", FILE, buffer)? else { return Ok(None) };
    let Some(uid) = Fields(buffer).uid().filter(|uid| *uid != Uid::ROOT) else { return Ok(None) };
    let Some(()) = dir.read_up_to("limits", FILE, buffer)? else { return Ok(None) };
    let text = String::from_utf8_lossy(buffer);
    let soft = text.lines().find_map(|line| line.strip_prefix("Max processes")?.split_whitespace().next());
    Ok(soft.and_then(|soft| soft.parse().ok()).map(|max| (uid, max)))
}

/// The tasks of the host, and how many there can be.
fn host_tasks() -> Result<Option<(u64, u64)>, HostError> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| HostError::io("read", path, error));
    // "0.20 0.18 0.12 1/80 11206": those that run now, of all.
    let load = read("/proc/loadavg")?;
    let used = load.split([' ', '/']).nth(4).and_then(|field| field.parse().ok());
    let max = |path: &str| read(path).map(|text| text.trim().parse::<u64>().unwrap_or(u64::MAX));
    let max = max("/proc/sys/kernel/threads-max")?.min(max("/proc/sys/kernel/pid_max")?);
    Ok(used.map(|used| (used, max)))
}

/// Tasks by real user.
fn tasks_of_users() -> Result<HashMap<Uid, u64>, HostError> {
    let mut of_users = HashMap::new();
    let mut buffer = Vec::new();
    let mut count = |pid: Pid| -> Result<(), HostError> {
        let Some(dir) = ProcessDir::open(pid)? else { return Ok(()) };
        let Some(()) = dir.read_up_to("status", FILE, &mut buffer)? else { return Ok(()) };
        let fields = Fields(&buffer);
        if let (Some(uid), threads) = (fields.uid(), fields.number("Threads").unwrap_or(1)) {
            *of_users.entry(uid).or_default() += u64::max(threads, 1);
        }
        Ok(())
    };
    pids()?.into_iter().try_for_each(&mut count)?;
    Ok(of_users)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::this_process;

    fn cgroup(directory: &Path, used: &str, max: &str) {
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join("pids.current"), used).unwrap();
        fs::write(directory.join("pids.max"), max).unwrap();
    }

    #[test]
    fn both_versions_of_cgroups_are_read() {
        let top = tempfile::tempdir().unwrap();
        let (unified, legacy) = (top.path().join("unified"), top.path().join("pids"));
        cgroup(&unified.join("user.slice"), "900\n", "1000\n");
        cgroup(&unified.join("user.slice/run.scope"), "20\n", "max\n");
        cgroup(&legacy.join("jobs"), "7\n", "64\n");
        let limits = TaskLimits { unified: vec![unified], legacy };
        let found = limits.cgroups("12:pids:/jobs\n4:memory:/jobs\n0::/user.slice/run.scope\n");
        assert_eq!(found, [("/jobs".to_owned(), 7, 64), ("/user.slice".to_owned(), 900, 1000)]);
    }

    #[test]
    fn own_process_within_host_limit() {
        let own = this_process().unwrap();
        let reading = TaskLimits::default().read(&[own], &[own]).unwrap();
        let host = reading.limits.iter().find(|limit| limit.of == TaskLimitScope::Host).unwrap();
        assert!(host.used > 1 && host.used < host.max, "{host:?}");
        assert_eq!(host.agents, [own]);
    }

    #[test]
    fn tasks_are_counted_by_user() {
        let (_, threads) = (0, tasks_of_users().unwrap());
        assert!(threads.values().sum::<u64>() > 1);
    }
}
