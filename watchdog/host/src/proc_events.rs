//! Kernel events derived from scans of /proc: the degraded mode, for hosts without kernel programs.
//!
//! A process that starts and exits between two scans is missed. A child whose parent exits before the next scan loses its
//! lineage, so a double fork escapes. An exec that changes neither name nor arguments is missed, exit statuses and signals
//! are unknown, and times are those of the scan. `doctor` and `status` report this mode.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use watchdog_config::Profile;
use watchdog_types::{
    BootTime, Bytes, Exec, Exit, Fork, Image, KernelEvent, Lineage, Pid, ProcessId, Scan, ScannedProcess,
};

/// Time between two scans.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// Compares each scan with the one before. It replaces the kernel's map too: pass what the engine tracks and untracks to
/// [`track`](Self::track) and [`untrack`](Self::untrack).
pub struct Poller {
    profiles: Vec<Profile>,
    entries: HashMap<Pid, (ProcessId, Lineage)>,
    /// `None` before the first scan.
    before: Option<HashMap<ProcessId, LastScan>>,
}

struct LastScan {
    comm: String,
    image: Image,
    zombie: bool,
    peak: Bytes,
}

impl Poller {
    /// A process that matches one of the profiles becomes a possible agent.
    #[must_use]
    pub fn new(profiles: Vec<Profile>) -> Self {
        Self { profiles, entries: HashMap::new(), before: None }
    }

    pub fn set_profiles(&mut self, profiles: Vec<Profile>) {
        self.profiles = profiles;
    }

    /// The tracked processes, for [`scan`](super::scan::scan).
    #[must_use]
    pub fn entries(&self) -> &HashMap<Pid, (ProcessId, Lineage)> {
        &self.entries
    }

    /// Tracks a process, or changes its lineage.
    pub fn track(&mut self, process: ProcessId, lineage: Lineage) {
        self.entries.insert(process.pid, (process, lineage));
    }

    pub fn untrack(&mut self, process: ProcessId) {
        if self.lineage(process).is_some() {
            self.entries.remove(&process.pid);
        }
    }

    fn lineage(&self, process: ProcessId) -> Option<Lineage> {
        self.entries.get(&process.pid).filter(|(entry, _)| *entry == process).map(|(_, lineage)| *lineage)
    }

    /// The events since the last scan: forks (parents before their children), execs, exits. None for the first scan, which the
    /// engine takes itself.
    pub fn events(&mut self, scan: &Scan) -> Vec<KernelEvent> {
        let mut events = Vec::new();
        if let Some(before) = self.before.take() {
            let by_pid: HashMap<Pid, &ScannedProcess> =
                scan.processes.iter().map(|process| (process.process.pid, process)).collect();
            let mut reported = HashSet::new();
            loop {
                self.forks(scan, &before, &by_pid, &mut events);
                // A new agent may have new children, and agents among them: repeat.
                if !self.execs(scan, &before, &by_pid, &mut reported, &mut events) {
                    break;
                }
            }
            self.exits(scan.began, &before, &by_pid, &mut events);
        }
        self.before = Some(
            scan.processes
                .iter()
                .map(|ScannedProcess { process, comm, image, zombie, memory, .. }| {
                    let seen =
                        LastScan { comm: comm.clone(), image: image.clone(), zombie: *zombie, peak: memory.peak };
                    (*process, seen)
                })
                .collect(),
        );
        events
    }

    /// New processes inherit the lineage of a tracked parent.
    fn forks(
        &mut self,
        scan: &Scan,
        before: &HashMap<ProcessId, LastScan>,
        by_pid: &HashMap<Pid, &ScannedProcess>,
        events: &mut Vec<KernelEvent>,
    ) {
        let is_new = |process: &ScannedProcess| !before.contains_key(&process.process);
        let mut new: Vec<&ScannedProcess> =
            scan.processes.iter().filter(|new| is_new(new) && self.lineage(new.process).is_none()).collect();
        new.sort_by_key(|process| (process.process.start_time, process.process.pid));
        // When pids have wrapped, a child of the same tick may have the lower pid: it waits for its parent.
        loop {
            let waiting = new.len();
            new.retain(|child| {
                let parent = by_pid.get(&child.ppid).map(|parent| parent.process);
                let Some((parent, lineage)) = parent.and_then(|parent| Some((parent, self.lineage(parent)?))) else {
                    return true;
                };
                if lineage.witness {
                    return false;
                }
                let depth = lineage.depth.saturating_add(1);
                let lineage = Lineage { parent: Some(parent), depth, forked: true, ..lineage };
                self.track(child.process, lineage);
                events.push(KernelEvent::Fork(Fork {
                    at: BootTime::from(child.process.start_time),
                    process: child.process,
                    lineage,
                    uid: child.uid,
                    comm: child.comm.clone(),
                }));
                false
            });
            if new.len() == waiting {
                return;
            }
        }
    }

    /// Tracked processes with another program than before (or than their parent, if they are new), and the oldest new or
    /// changed untracked process that may be an agent. Returns whether there was one. Reports each process once.
    fn execs(
        &mut self,
        scan: &Scan,
        before: &HashMap<ProcessId, LastScan>,
        by_pid: &HashMap<Pid, &ScannedProcess>,
        reported: &mut HashSet<ProcessId>,
        events: &mut Vec<KernelEvent>,
    ) -> bool {
        let mut living: Vec<&ScannedProcess> = scan.processes.iter().filter(|process| !process.zombie).collect();
        living.sort_by_key(|process| (process.process.start_time, process.process.pid));
        let mut agent = None;
        for process in living {
            let id = process.process;
            if reported.contains(&id) {
                continue;
            }
            let same = match before.get(&id) {
                Some(seen) => seen.comm == process.comm && seen.image == process.image,
                None => by_pid.get(&process.ppid).is_some_and(|parent| {
                    parent.comm == process.comm && parent.image == process.image && self.lineage(id).is_some()
                }),
            };
            if same {
                continue;
            }
            let lineage = match self.lineage(id) {
                Some(Lineage { witness: true, .. }) => continue,
                Some(lineage) => Lineage { forked: false, ..lineage },
                None if agent.is_none()
                    && self.profiles.iter().any(|profile| profile.matches(&process.image, &process.comm)) =>
                {
                    agent = Some(id);
                    Lineage { root: id, parent: None, depth: 0, provisional: true, forked: false, witness: false }
                }
                None => continue,
            };
            self.track(id, lineage);
            reported.insert(id);
            events.push(KernelEvent::Exec(Exec {
                at: scan.began,
                process: id,
                lineage,
                uid: process.uid,
                ppid: process.ppid,
                comm: process.comm.clone(),
                image: process.image.clone(),
            }));
        }
        agent.is_some()
    }

    /// Tracked processes that have exited or become zombies.
    fn exits(
        &mut self,
        at: BootTime,
        before: &HashMap<ProcessId, LastScan>,
        by_pid: &HashMap<Pid, &ScannedProcess>,
        events: &mut Vec<KernelEvent>,
    ) {
        let mut ended: Vec<(ProcessId, Option<Bytes>)> = Vec::new();
        for (process, _) in self.entries.values() {
            let seen = before.get(process);
            let alive = by_pid.get(&process.pid).is_some_and(|now| now.process == *process && !now.zombie);
            // Without a scan of it, the process was tracked and exited within the interval.
            if !alive && seen.is_none_or(|seen| !seen.zombie) {
                ended.push((*process, seen.map(|seen| seen.peak).filter(|peak| *peak > Bytes(0))));
            }
        }
        ended.sort();
        for (process, peak) in ended {
            events.push(KernelEvent::Exit(Exit { at, process, status: None, peak }));
        }
        let there: HashSet<ProcessId> =
            by_pid.values().filter(|process| !process.zombie).map(|process| process.process).collect();
        self.entries.retain(|_, (process, _)| there.contains(process));
    }
}

#[cfg(test)]
#[path = "proc_events_tests.rs"]
mod tests;
