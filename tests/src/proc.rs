//! The truth, read from /proc by code that shares nothing with the daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A pid and the start of its process, field 22 of /proc/PID/stat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// The pid.
    pub pid: u32,
    /// The start, in clock ticks since boot.
    pub start_time: u64,
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.pid, self.start_time)
    }
}

impl ProcessId {
    /// The process that has this pid now.
    #[must_use]
    pub fn now(pid: u32) -> Option<Self> {
        Some(Self { pid, start_time: Stat::read(pid)?.start_time })
    }
}

struct Stat {
    state: String,
    ppid: u32,
    start_time: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // comm may hold spaces and brackets; field 3 begins after the last closing one.
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        Some(Self {
            state: (*fields.first()?).to_owned(),
            ppid: fields.get(1)?.parse().ok()?,
            start_time: fields.get(19)?.parse().ok()?,
        })
    }

    fn is_dead(&self) -> bool {
        matches!(self.state.as_str(), "Z" | "X" | "x")
    }
}

/// Whether the process is there and no zombie.
#[must_use]
pub fn is_alive(process: ProcessId) -> bool {
    Stat::read(process.pid).is_some_and(|stat| stat.start_time == process.start_time && !stat.is_dead())
}

/// Whether the process is there, and stopped by a signal.
#[must_use]
pub fn is_stopped(process: ProcessId) -> bool {
    Stat::read(process.pid).is_some_and(|stat| stat.start_time == process.start_time && stat.state == "T")
}

/// All living processes below `pid`, by today's parents.
#[must_use]
pub fn descendants(pid: u32) -> BTreeSet<ProcessId> {
    let mut children: BTreeMap<u32, Vec<(ProcessId, bool)>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Some(stat) = Stat::read(pid) else { continue };
        let process = ProcessId { pid, start_time: stat.start_time };
        children.entry(stat.ppid).or_default().push((process, stat.is_dead()));
    }
    let mut found = BTreeSet::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        for (child, dead) in children.remove(&parent).unwrap_or_default() {
            parents.push(child.pid);
            if !dead {
                found.insert(child);
            }
        }
    }
    found
}

/// A line of a /proc file in kB, as bytes.
fn kib_line(path: &str, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim_start_matches(':').trim().trim_end_matches(" kB").trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Exact anonymous resident memory of a process, by its page tables.
#[must_use]
pub fn anonymous_bytes(pid: u32) -> Option<u64> {
    kib_line(&format!("/proc/{pid}/smaps_rollup"), "Anonymous")
}

/// Exact anonymous, shared and swapped memory of a process, each page divided by its users.
#[must_use]
pub fn proportional_bytes(pid: u32) -> Option<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let part = |key| kib_line(&path, key);
    Some(part("Pss_Anon")? + part("Pss_Shmem")? + part("SwapPss")?)
}
