//! Kernel events out of scans, where the kernel programs cannot be had: the degraded mode.
//!
//! What lives and dies between two scans is never seen. A child whose parent died before the next scan has lost its
//! lineage: a double fork escapes. An exec that changes neither name nor arguments goes unnoticed, exit statuses and
//! signals are unknown, and times are those of the look. Whoever uses this says so to the user.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::config::Profile;
use crate::engine::id::{BootTime, Bytes, Pid, ProcessId};
use crate::engine::input::{Exec, Exit, Fork, Image, KernelEvent, Lineage, Scan, ScannedProcess};

/// The time from one scan to the next.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// Compares each scan with the one before. It also stands in for the kernel's map: what the engine tracks and untracks is
/// to be told to it.
pub struct Poller {
    profiles: Vec<Profile>,
    entries: HashMap<Pid, (ProcessId, Lineage)>,
    /// What the last scan saw; `None` before the first.
    before: Option<HashMap<ProcessId, Seen>>,
}

struct Seen {
    comm: String,
    image: Image,
    zombie: bool,
    peak: Bytes,
}

impl Poller {
    /// A poller that takes processes for possible agents when one of the profiles matches.
    #[must_use]
    pub fn new(profiles: Vec<Profile>) -> Self {
        Self { profiles, entries: HashMap::new(), before: None }
    }

    /// Takes other profiles.
    pub fn set_profiles(&mut self, profiles: Vec<Profile>) {
        self.profiles = profiles;
    }

    /// What is tracked, for [`scan`](super::scan::scan).
    #[must_use]
    pub fn entries(&self) -> &HashMap<Pid, (ProcessId, Lineage)> {
        &self.entries
    }

    /// Tracks a process, or changes its lineage.
    pub fn track(&mut self, process: ProcessId, lineage: Lineage) {
        self.entries.insert(process.pid, (process, lineage));
    }

    /// Tracks a process no more.
    pub fn untrack(&mut self, process: ProcessId) {
        if self.lineage(process).is_some() {
            self.entries.remove(&process.pid);
        }
    }

    fn lineage(&self, process: ProcessId) -> Option<Lineage> {
        self.entries.get(&process.pid).filter(|(entry, _)| *entry == process).map(|(_, lineage)| *lineage)
    }

    /// What must have happened since the last scan: forks (parents before their children), execs, then exits. Nothing the
    /// first time: the engine takes that scan itself.
    pub fn events(&mut self, scan: &Scan) -> Vec<KernelEvent> {
        let mut events = Vec::new();
        if let Some(before) = self.before.take() {
            let by_pid: HashMap<Pid, &ScannedProcess> =
                scan.processes.iter().map(|process| (process.process.pid, process)).collect();
            let mut told = HashSet::new();
            loop {
                self.forks(scan, &before, &by_pid, &mut events);
                // Each new agent may have children that are new too, agents among them: they are looked at again.
                if !self.execs(scan, &before, &by_pid, &mut told, &mut events) {
                    break;
                }
            }
            self.exits(scan.began, &before, &by_pid, &mut events);
        }
        self.before = Some(
            scan.processes
                .iter()
                .map(|ScannedProcess { process, comm, image, zombie, memory, .. }| {
                    let seen = Seen { comm: comm.clone(), image: image.clone(), zombie: *zombie, peak: memory.peak };
                    (*process, seen)
                })
                .collect(),
        );
        events
    }

    /// New processes whose parent is tracked inherit from it.
    fn forks(
        &mut self,
        scan: &Scan,
        before: &HashMap<ProcessId, Seen>,
        by_pid: &HashMap<Pid, &ScannedProcess>,
        events: &mut Vec<KernelEvent>,
    ) {
        let is_new = |process: &ScannedProcess| !before.contains_key(&process.process);
        let mut new: Vec<&ScannedProcess> =
            scan.processes.iter().filter(|new| is_new(new) && self.lineage(new.process).is_none()).collect();
        new.sort_by_key(|process| (process.process.start_time, process.process.pid));
        // Within a tick a child may have the lower pid, when pids have wrapped: then it has to wait for its parent.
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

    /// Tracked processes that show another program than before (or than their parent, if they are new), and the oldest
    /// untracked one that is new or changed and may be an agent: whether there was one. Each process is told once.
    fn execs(
        &mut self,
        scan: &Scan,
        before: &HashMap<ProcessId, Seen>,
        by_pid: &HashMap<Pid, &ScannedProcess>,
        told: &mut HashSet<ProcessId>,
        events: &mut Vec<KernelEvent>,
    ) -> bool {
        let mut living: Vec<&ScannedProcess> = scan.processes.iter().filter(|process| !process.zombie).collect();
        living.sort_by_key(|process| (process.process.start_time, process.process.pid));
        let mut agent = None;
        for process in living {
            let id = process.process;
            if told.contains(&id) {
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
            told.insert(id);
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

    /// Tracked processes that are gone, or zombies now.
    fn exits(
        &mut self,
        at: BootTime,
        before: &HashMap<ProcessId, Seen>,
        by_pid: &HashMap<Pid, &ScannedProcess>,
        events: &mut Vec<KernelEvent>,
    ) {
        let mut ended: Vec<(ProcessId, Option<Bytes>)> = Vec::new();
        for (process, _) in self.entries.values() {
            let seen = before.get(process);
            let alive = by_pid.get(&process.pid).is_some_and(|now| now.process == *process && !now.zombie);
            // What neither scan saw was tracked and gone within the interval, and nobody else will tell of it.
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
#[path = "poll_tests.rs"]
mod tests;
