//! Which cgroup ran out of memory: the `oom` counters of the cgroups above a victim of the OOM killer.
//!
//! `oom` of memory.events.local is incremented in the one cgroup whose limit was reached, before a victim is selected
//! (`mem_cgroup_oom` of mm/memcontrol.c). If no counter changed, the host ran out of memory. `oom_kill` does not show that: it
//! counts the victims in a cgroup, for any cause. Only a difference is evidence, so counters are recorded beforehand.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use super::error::HostError;
use super::limits::{CgroupTree, lineage};
use watchdog_types::{OomCgroup, OomSeen, Pid};

/// Cgroups whose counters are kept. systemd creates a new one for every scope.
const COUNTS_MAX: usize = 4_096;
/// One event may have several victims (memory.oom.group), each of which is reported.
const SAME_EVENT: Duration = Duration::from_secs(2);

/// The `oom` counters of cgroups, as last read.
#[derive(Debug, Default)]
pub struct OomCounts {
    counts: HashMap<String, OomCount>,
}

#[derive(Clone, Copy, Debug)]
struct OomCount {
    ooms: u64,
    last_hit: Option<Instant>,
}

impl OomCounts {
    /// Records the counters of a cgroup and those above it.
    pub fn count(&mut self, cgroups: &CgroupTree, path: &str) -> Result<(), HostError> {
        if self.counts.contains_key(path) {
            return Ok(());
        }
        if self.counts.len() >= COUNTS_MAX {
            self.counts.retain(|path, _| cgroups.memory_exists(path));
        }
        for path in lineage(path) {
            if !self.counts.contains_key(path)
                && let Some(ooms) = ooms(cgroups, path)?
            {
                self.counts.insert(path.to_owned(), OomCount { ooms, last_hit: None });
            }
        }
        Ok(())
    }

    /// Reads what the OOM killer has left. `cgroup` is the last known cgroup of the victim.
    pub fn inspect(
        &mut self,
        cgroups: &CgroupTree,
        number: u64,
        victim: Pid,
        cgroup: Option<&str>,
        others: &[Pid],
    ) -> Result<OomSeen, HostError> {
        // An exiting process is in the root of every hierarchy of version 1.
        let left = |path: &String| cgroups.is_legacy() && path == "/";
        let now = cgroups.memory_path_of(victim)?.filter(|path| !left(path));
        let mut seen = OomSeen {
            number,
            comm: read(victim, "comm").filter(|comm| !comm.is_empty()),
            cgroups: Vec::new(),
            complete: cgroups.have_memory(),
            scores: Vec::new(),
        };
        match now.as_deref().or(cgroup) {
            Some(path) => {
                for path in lineage(path) {
                    self.compare(cgroups, path, &mut seen)?;
                }
            }
            None => seen.complete = false,
        }
        let score = |pid: &Pid| Some((*pid, read(*pid, "oom_score_adj")?.parse().ok()?));
        seen.scores = std::iter::once(&victim).chain(others).filter_map(score).collect();
        Ok(seen)
    }

    fn compare(&mut self, cgroups: &CgroupTree, path: &str, seen: &mut OomSeen) -> Result<(), HostError> {
        let Some(ooms) = ooms(cgroups, path)? else {
            // A cgroup without the memory controller has no limit.
            seen.complete &= cgroups.memory_exists(path);
            return Ok(());
        };
        let now = Instant::now();
        let before = self.counts.get(path).copied();
        let moved = before.is_some_and(|before| ooms > before.ooms);
        let just_now =
            before.and_then(|before| before.last_hit).is_some_and(|hit| now.duration_since(hit) <= SAME_EVENT);
        let hit = match before {
            // A limit of version 1 that was reached may have been met by reclaim, and the host may have run out.
            Some(_) if cgroups.is_legacy() && (moved || just_now) => None,
            Some(_) => Some(moved || just_now),
            None if ooms == 0 => Some(false),
            None => None,
        };
        let last_hit = if moved { Some(now) } else { before.and_then(|before| before.last_hit) };
        self.counts.insert(path.to_owned(), OomCount { ooms, last_hit });
        seen.cgroups.push(OomCgroup { path: path.to_owned(), max: cgroups.max(path)?, hit });
        Ok(())
    }
}

/// The `oom` counter of the cgroup itself; `None` when it was removed or has no memory controller. Kernels before 5.2 only
/// have one that includes the cgroups below.
///
/// Version 1 counts how often the limit was reached, but not that of memory and swap together; and the processes that the OOM
/// killer took, for whatever reason.
fn ooms(cgroups: &CgroupTree, path: &str) -> Result<Option<u64>, HostError> {
    if cgroups.is_legacy() {
        let Some(failed) = cgroups.read_memory(path, "memory.failcnt")? else { return Ok(None) };
        let control = cgroups.read_memory(path, "memory.oom_control")?.unwrap_or_default();
        let killed = control.lines().find_map(|line| line.strip_prefix("oom_kill "));
        let count = |text: &str| text.trim().parse().unwrap_or(0);
        return Ok(Some(count(&failed) + killed.map_or(0, count)));
    }
    let events = match cgroups.read(path, "memory.events.local")? {
        Some(events) => Some(events),
        None => cgroups.read(path, "memory.events")?,
    };
    let Some(events) = events else { return Ok(None) };
    let count = events.lines().find_map(|line| line.strip_prefix("oom ")).and_then(|count| count.trim().parse().ok());
    count.map(Some).ok_or_else(|| HostError::malformed(format!("{path}/memory.events.local"), "no count of `oom`"))
}

/// A short file of a process; `None` when it has exited.
fn read(pid: Pid, file: &str) -> Option<String> {
    let text = fs::read(format!("/proc/{pid}/{file}")).ok()?;
    Some(String::from_utf8_lossy(&text).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use watchdog_types::Bytes;

    fn cgroup(root: &Path, path: &str, ooms: u64) {
        let dir = root.join(path);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("memory.max"), "500\n").unwrap();
        fs::write(dir.join("memory.events.local"), format!("low 0\nhigh 0\nmax 7\noom {ooms}\noom_kill 9\n")).unwrap();
    }

    fn hierarchy() -> (tempfile::TempDir, CgroupTree) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        cgroup(dir.path(), "a", 3);
        cgroup(dir.path(), "a/b", 0);
        let cgroups = CgroupTree::at(dir.path());
        (dir, cgroups)
    }

    /// No process has this pid, so the cgroup that the caller passes is used.
    const NO_PROCESS: Pid = Pid(u32::MAX);

    fn look(counts: &mut OomCounts, cgroups: &CgroupTree) -> (Vec<(String, Option<bool>)>, bool) {
        let seen = counts.inspect(cgroups, 1, NO_PROCESS, Some("/a/b"), &[]).unwrap();
        (seen.cgroups.into_iter().map(|cgroup| (cgroup.path, cgroup.hit)).collect(), seen.complete)
    }

    #[test]
    fn changed_counter_shows_cgroup_limit() {
        let (dir, cgroups) = hierarchy();
        let mut counts = OomCounts::default();
        counts.count(&cgroups, "/a/b").unwrap();
        cgroup(dir.path(), "a", 4);

        let expected = vec![("/a/b".to_owned(), Some(false)), ("/a".to_owned(), Some(true))];
        assert_eq!(look(&mut counts, &cgroups), (expected.clone(), true));
        assert_eq!(look(&mut counts, &cgroups), (expected, true), "a second victim of the same event");
    }

    #[test]
    fn unchanged_counters_show_host_limit() {
        let (_dir, cgroups) = hierarchy();
        let mut counts = OomCounts::default();
        counts.count(&cgroups, "/a/b").unwrap();
        let (seen, complete) = look(&mut counts, &cgroups);
        assert!(complete && seen.iter().all(|(_, hit)| *hit == Some(false)), "{seen:?}");
    }

    #[test]
    fn unrecorded_counter_is_unknown() {
        let (_dir, cgroups) = hierarchy();
        let (seen, _) = look(&mut OomCounts::default(), &cgroups);
        assert_eq!(seen, [("/a/b".to_owned(), Some(false)), ("/a".to_owned(), None)]);
    }

    #[test]
    fn removed_cgroup_makes_result_incomplete() {
        let (dir, cgroups) = hierarchy();
        let mut counts = OomCounts::default();
        counts.count(&cgroups, "/a/b").unwrap();
        fs::remove_dir_all(dir.path().join("a/b")).unwrap();
        let (seen, complete) = look(&mut counts, &cgroups);
        assert!(!complete);
        assert_eq!(seen, [("/a".to_owned(), Some(false))]);
    }

    #[test]
    fn missing_memory_controller_makes_incomplete() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.controllers"), "cpu pids\n").unwrap();
        let cgroups = CgroupTree::at(dir.path());
        assert!(!OomCounts::default().inspect(&cgroups, 1, NO_PROCESS, Some("/"), &[]).unwrap().complete);
    }

    #[test]
    fn limit_and_scores_are_read() {
        let (_dir, cgroups) = hierarchy();
        let own = Pid(std::process::id());
        let seen = OomCounts::default().inspect(&cgroups, 1, NO_PROCESS, Some("/a"), &[own]).unwrap();
        assert_eq!(seen.cgroups[0].max, Some(Bytes(500)));
        let score = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
        assert_eq!(seen.scores, [(own, score.trim().parse().unwrap())]);
    }
}
