//! What the OOM killer leaves behind: counters of the cgroups above its victim.
//!
//! `oom` of memory.events.local is counted up in the one cgroup whose limit was reached, before a victim is chosen
//! (`mem_cgroup_oom` of mm/memcontrol.c); when it moved nowhere, the host ran out. `oom_kill` does not tell: it counts a cgroup's
//! victims whoever ran out. A number says nothing by itself, so somebody must have counted before.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use super::error::HostError;
use super::limits::{Cgroups, lineage};
use crate::engine::id::Pid;
use crate::engine::input::{OomCgroup, OomSeen};

/// Cgroups whose counts are remembered. Systemd makes a new one for every scope.
const COUNTED: usize = 4_096;
/// One lack of memory may take several victims (memory.oom.group), of whom each is told.
const SAME_LACK: Duration = Duration::from_secs(2);

/// How often cgroups had run out of memory when somebody last looked.
#[derive(Debug, Default)]
pub struct OomCounts {
    counts: HashMap<String, Count>,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    ooms: u64,
    last_hit: Option<Instant>,
}

impl OomCounts {
    /// Counts for later, of a cgroup and those above it.
    ///
    /// # Errors
    /// When the kernel refuses to read a file.
    pub fn count(&mut self, cgroups: &Cgroups, path: &str) -> Result<(), HostError> {
        if self.counts.contains_key(path) {
            return Ok(());
        }
        if self.counts.len() >= COUNTED {
            self.counts.retain(|path, _| cgroups.exists(path));
        }
        for path in lineage(path) {
            if !self.counts.contains_key(path)
                && let Some(ooms) = ooms(cgroups, path)?
            {
                self.counts.insert(path.to_owned(), Count { ooms, last_hit: None });
            }
        }
        Ok(())
    }

    /// What can be seen now of a choice of the OOM killer. `cgroup` is where the victim was when it was last looked at.
    ///
    /// # Errors
    /// When the kernel refuses to read a file.
    pub fn look(
        &mut self,
        cgroups: &Cgroups,
        number: u64,
        victim: Pid,
        cgroup: Option<&str>,
        others: &[Pid],
    ) -> Result<OomSeen, HostError> {
        let now = cgroups.path_of(victim)?;
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
                    self.look_at(cgroups, path, &mut seen)?;
                }
            }
            None => seen.complete = false,
        }
        let score = |pid: &Pid| Some((*pid, read(*pid, "oom_score_adj")?.parse().ok()?));
        seen.scores = std::iter::once(&victim).chain(others).filter_map(score).collect();
        Ok(seen)
    }

    fn look_at(&mut self, cgroups: &Cgroups, path: &str, seen: &mut OomSeen) -> Result<(), HostError> {
        let Some(ooms) = ooms(cgroups, path)? else {
            // One without the memory controller ran out of nothing.
            seen.complete &= cgroups.exists(path);
            return Ok(());
        };
        let now = Instant::now();
        let before = self.counts.get(path).copied();
        let moved = before.is_some_and(|before| ooms > before.ooms);
        let just_now =
            before.and_then(|before| before.last_hit).is_some_and(|hit| now.duration_since(hit) <= SAME_LACK);
        let hit = match before {
            Some(_) => Some(moved || just_now),
            None if ooms == 0 => Some(false),
            None => None,
        };
        let last_hit = if moved { Some(now) } else { before.and_then(|before| before.last_hit) };
        self.counts.insert(path.to_owned(), Count { ooms, last_hit });
        seen.cgroups.push(OomCgroup { path: path.to_owned(), max: cgroups.max(path)?, hit });
        Ok(())
    }
}

/// How often a cgroup itself has reached its limit in vain; `None` when it is gone or has no memory controller. Kernels
/// before 5.2 count only those below it too.
fn ooms(cgroups: &Cgroups, path: &str) -> Result<Option<u64>, HostError> {
    let events = match cgroups.read(path, "memory.events.local")? {
        Some(events) => Some(events),
        None => cgroups.read(path, "memory.events")?,
    };
    let Some(events) = events else { return Ok(None) };
    let count = events.lines().find_map(|line| line.strip_prefix("oom ")).and_then(|count| count.trim().parse().ok());
    count.map(Some).ok_or_else(|| HostError::malformed(format!("{path}/memory.events.local"), "no count of `oom`"))
}

/// A short file of a process; `None` when it is gone.
fn read(pid: Pid, file: &str) -> Option<String> {
    let text = fs::read(format!("/proc/{pid}/{file}")).ok()?;
    Some(String::from_utf8_lossy(&text).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::engine::id::Bytes;

    fn cgroup(root: &Path, path: &str, ooms: u64) {
        let dir = root.join(path);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("memory.max"), "500\n").unwrap();
        fs::write(dir.join("memory.events.local"), format!("low 0\nhigh 0\nmax 7\noom {ooms}\noom_kill 9\n")).unwrap();
    }

    fn hierarchy() -> (tempfile::TempDir, Cgroups) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        cgroup(dir.path(), "a", 3);
        cgroup(dir.path(), "a/b", 0);
        let cgroups = Cgroups::at(dir.path());
        (dir, cgroups)
    }

    /// No process has this pid, so the place that the caller knows counts.
    const NOBODY: Pid = Pid(u32::MAX);

    fn look(counts: &mut OomCounts, cgroups: &Cgroups) -> (Vec<(String, Option<bool>)>, bool) {
        let seen = counts.look(cgroups, 1, NOBODY, Some("/a/b"), &[]).unwrap();
        (seen.cgroups.into_iter().map(|cgroup| (cgroup.path, cgroup.hit)).collect(), seen.complete)
    }

    #[test]
    fn the_cgroup_whose_count_moved_ran_out() {
        let (dir, cgroups) = hierarchy();
        let mut counts = OomCounts::default();
        counts.count(&cgroups, "/a/b").unwrap();
        cgroup(dir.path(), "a", 4);

        let expected = vec![("/a/b".to_owned(), Some(false)), ("/a".to_owned(), Some(true))];
        assert_eq!(look(&mut counts, &cgroups), (expected.clone(), true));
        assert_eq!(look(&mut counts, &cgroups), (expected, true), "its second victim is of the same lack");
    }

    #[test]
    fn where_no_count_moved_the_host_ran_out() {
        let (_dir, cgroups) = hierarchy();
        let mut counts = OomCounts::default();
        counts.count(&cgroups, "/a/b").unwrap();
        let (seen, complete) = look(&mut counts, &cgroups);
        assert!(complete && seen.iter().all(|(_, hit)| *hit == Some(false)), "{seen:?}");
    }

    #[test]
    fn a_count_that_nobody_knew_before_is_told_as_such() {
        let (_dir, cgroups) = hierarchy();
        let (seen, _) = look(&mut OomCounts::default(), &cgroups);
        assert_eq!(seen, [("/a/b".to_owned(), Some(false)), ("/a".to_owned(), None)]);
    }

    #[test]
    fn a_cgroup_that_is_gone_leaves_it_open_who_ran_out() {
        let (dir, cgroups) = hierarchy();
        let mut counts = OomCounts::default();
        counts.count(&cgroups, "/a/b").unwrap();
        fs::remove_dir_all(dir.path().join("a/b")).unwrap();
        let (seen, complete) = look(&mut counts, &cgroups);
        assert!(!complete);
        assert_eq!(seen, [("/a".to_owned(), Some(false))]);
    }

    #[test]
    fn without_the_memory_controller_nothing_can_be_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.controllers"), "cpu pids\n").unwrap();
        let cgroups = Cgroups::at(dir.path());
        assert!(!OomCounts::default().look(&cgroups, 1, NOBODY, Some("/"), &[]).unwrap().complete);
    }

    #[test]
    fn a_limit_and_a_score_are_told_with_it() {
        let (_dir, cgroups) = hierarchy();
        let own = Pid(std::process::id());
        let seen = OomCounts::default().look(&cgroups, 1, NOBODY, Some("/a"), &[own]).unwrap();
        assert_eq!(seen.cgroups[0].max, Some(Bytes(500)));
        let score = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
        assert_eq!(seen.scores, [(own, score.trim().parse().unwrap())]);
    }
}
