//! Ground truth from /proc, read without code of the daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A pid and its start time, field 22 of /proc/PID/stat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessKey {
    pub pid: u32,
    /// In clock ticks since boot.
    pub start_time: u64,
}

impl fmt::Display for ProcessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.pid, self.start_time)
    }
}

impl ProcessKey {
    /// The process that has this pid now.
    #[must_use]
    pub fn now(pid: u32) -> Option<Self> {
        Some(Self { pid, start_time: StatFields::read(pid)?.start_time })
    }
}

struct StatFields {
    state: String,
    flags: u32,
    ppid: u32,
    start_time: u64,
}

impl StatFields {
    fn read(pid: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // comm may contain spaces and parentheses; field 3 begins after the last one.
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        Some(Self {
            state: (*fields.first()?).to_owned(),
            ppid: fields.get(1)?.parse().ok()?,
            flags: fields.get(6)?.parse().ok()?,
            start_time: fields.get(19)?.parse().ok()?,
        })
    }

    fn is_dead(&self) -> bool {
        // include/linux/sched.h: set before the kernel reports the exit. The process is a zombie later.
        const PF_EXITING: u32 = 0x4;
        matches!(self.state.as_str(), "Z" | "X" | "x") || self.flags & PF_EXITING != 0
    }
}

/// Whether the process neither is exiting nor has exited; a zombie has.
#[must_use]
pub fn is_alive(process: ProcessKey) -> bool {
    StatFields::read(process.pid).is_some_and(|stat| stat.start_time == process.start_time && !stat.is_dead())
}

#[must_use]
pub fn is_stopped(process: ProcessKey) -> bool {
    StatFields::read(process.pid).is_some_and(|stat| stat.start_time == process.start_time && stat.state == "T")
}

/// All live descendants of `pid`, by current parents.
#[must_use]
pub fn descendants(pid: u32) -> BTreeSet<ProcessKey> {
    let mut children: BTreeMap<u32, Vec<(ProcessKey, bool)>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Some(stat) = StatFields::read(pid) else { continue };
        let process = ProcessKey { pid, start_time: stat.start_time };
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

/// Exact anonymous resident memory, from smaps.
#[must_use]
pub fn anonymous_bytes(pid: u32) -> Option<u64> {
    kib_line(&format!("/proc/{pid}/smaps_rollup"), "Anonymous")
}

/// The resident set of a process.
#[must_use]
pub fn resident_bytes(pid: u32) -> Option<u64> {
    kib_line(&format!("/proc/{pid}/status"), "VmRSS")
}

/// Memory of a process that is in swap.
#[must_use]
pub fn swapped_bytes(pid: u32) -> Option<u64> {
    kib_line(&format!("/proc/{pid}/status"), "VmSwap")
}

/// Exact anonymous, shared and swapped memory, each page divided by the number of processes that map it.
#[must_use]
pub fn proportional_bytes(pid: u32) -> Option<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let part = |key| kib_line(&path, key);
    Some(part("Pss_Anon")? + part("Pss_Shmem")? + part("SwapPss")?)
}
