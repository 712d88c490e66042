//! The process table: every process of every session, by identity, with the forks between them.
//!
//! A dead process stays while a process that it forked is in the table, since lineage runs through it. It stays for a
//! moment longer, since only then is it known whether its parent reaps it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use super::process::{Life, TrackedProcess};
use watchdog_types::{BootTime, ExitStatus, Pid, ProcessId};

/// How long the childless dead stay: longer than the sampler's interval, which is what finds zombies.
const LINGER: Duration = Duration::from_secs(3);
/// How many of them stay at most: a fork storm must not fill the daemon's memory.
const LINGER_MAX: usize = 2_048;

#[derive(Debug, Default)]
pub(super) struct Table {
    /// In an order that is the same each time: it reaches effects.
    processes: BTreeMap<ProcessId, TrackedProcess>,
    /// The process that has this pid now, or had it last.
    by_pid: HashMap<Pid, ProcessId>,
    /// The dead that may go, oldest first.
    leaving: VecDeque<(BootTime, ProcessId)>,
    generation: u64,
}

impl Table {
    pub(super) fn get(&self, id: ProcessId) -> Option<&TrackedProcess> {
        self.processes.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: ProcessId) -> Option<&mut TrackedProcess> {
        self.processes.get_mut(&id)
    }

    pub(super) fn alive(&self, id: ProcessId) -> Option<&TrackedProcess> {
        self.get(id).filter(|process| process.alive())
    }

    /// The living process that has this pid now.
    pub(super) fn by_pid(&self, pid: Pid) -> Option<&TrackedProcess> {
        self.by_pid.get(&pid).and_then(|id| self.alive(*id))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &TrackedProcess> {
        self.processes.values()
    }

    pub(super) fn living(&self) -> impl Iterator<Item = &TrackedProcess> {
        self.iter().filter(|process| process.alive())
    }

    /// Counts changes that affect sums over the table: its processes, their programs, and their memory.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Something about a process has changed that a sum over the table may show.
    pub(super) fn bump_generation(&mut self) {
        self.generation += 1;
    }

    pub(super) fn insert(&mut self, mut process: TrackedProcess) {
        self.bump_generation();
        let id = process.id;
        // One that was taken for dead and shows up again is still the parent of what it forked.
        if let Some(before) = self.processes.get_mut(&id) {
            process.children.append(&mut before.children);
        }
        if let Some(parent) = process.parent.and_then(|parent| self.processes.get_mut(&parent))
            && !parent.children.contains(&id)
        {
            parent.children.push(id);
        }
        if process.alive() || !self.by_pid.contains_key(&id.pid) {
            self.by_pid.insert(id.pid, id);
        }
        self.processes.insert(id, process);
    }

    /// Gives a process the parent that forked it, learned after the process itself.
    pub(super) fn set_parent(&mut self, id: ProcessId, parent: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        if process.parent == Some(parent) || id == parent {
            return;
        }
        let before = process.parent.replace(parent);
        if let Some(before) = before.and_then(|before| self.processes.get_mut(&before)) {
            before.children.retain(|child| *child != id);
            // A dead process leaves with its last child, which this may have been.
            if !before.alive() && before.children.is_empty() {
                let since = self.leaving.back().map_or(BootTime::default(), |(since, _)| *since);
                self.leaving.push_back((since, before.id));
            }
        }
        if let Some(parent) = self.processes.get_mut(&parent) {
            parent.children.push(id);
        }
    }

    /// The process is dead. `false` when it was not alive in the table.
    pub(super) fn mark_dead(&mut self, id: ProcessId, at: BootTime, status: Option<ExitStatus>, now: BootTime) -> bool {
        let Some(process) = self.processes.get_mut(&id).filter(|process| process.alive()) else { return false };
        process.life = Life::Dead { at, status, zombie: false };
        process.inspection = None;
        self.bump_generation();
        self.leaving.push_back((now, id));
        true
    }

    /// Marks exactly these of the dead as zombies.
    pub(super) fn set_zombies(&mut self, zombies: &[ProcessId], now: BootTime) {
        for process in self.processes.values_mut() {
            if let Life::Dead { zombie, .. } = &mut process.life {
                let is = zombies.contains(&process.id);
                self.generation += u64::from(*zombie != is);
                if *zombie && !is {
                    self.leaving.push_back((now, process.id));
                }
                *zombie = is;
            }
        }
    }

    /// Removes dead processes that no lineage needs.
    pub(super) fn sweep(&mut self, now: BootTime) {
        while let Some((since, id)) = self.leaving.front().copied() {
            if now.since(since) < LINGER && self.leaving.len() <= LINGER_MAX {
                break;
            }
            self.leaving.pop_front();
            self.forget(id);
        }
        if self.by_pid.len() < self.by_pid.capacity() / 8 {
            self.by_pid.shrink_to(2 * self.by_pid.len());
        }
    }

    /// Removes a dead process, and the dead above it that it was the last child of.
    fn forget(&mut self, id: ProcessId) {
        let mut next = Some(id);
        while let Some(process) = next.take().and_then(|id| self.processes.get(&id)) {
            if process.alive() || process.zombie() {
                return;
            }
            let (id, parent) = (process.id, process.parent);
            if process.children.is_empty() {
                next = self.remove(id);
            } else {
                self.shorten(id);
                parent.into_iter().for_each(|parent| self.shorten(parent));
            }
        }
    }

    /// Takes a dead process out of the middle of a lineage when nothing depends on its having been there: a daemon that
    /// forks itself again and again would leave one dead process for every fork.
    fn shorten(&mut self, id: ProcessId) {
        let Some(process) = self.get(id) else { return };
        let Some(parent) = process.parent.and_then(|parent| self.get(parent)) else { return };
        // What is kept ends the walk up a lineage, before the agent above it is come to.
        let ends_walk = process.verdict.is_kept() && (parent.is_agent() || !parent.verdict.is_kept());
        let decides = process.is_agent() || ends_walk;
        // The dead starter of a living process is what a finding names.
        let named = if process.forked {
            process.children.iter().any(|child| self.alive(*child).is_some())
        } else {
            !self.started(id).is_empty()
        };
        if process.alive() || process.zombie() || decides || named {
            return;
        }
        let (parent, children) = (parent.id, process.children.clone());
        children.into_iter().for_each(|child| self.set_parent(child, parent));
        self.remove(id);
    }

    /// Removes a process, whatever its state; gives the parent back.
    pub(super) fn remove(&mut self, id: ProcessId) -> Option<ProcessId> {
        let process = self.processes.remove(&id)?;
        self.generation += 1;
        if self.by_pid.get(&id.pid) == Some(&id) {
            self.by_pid.remove(&id.pid);
        }
        let parent = self.processes.get_mut(&process.parent?)?;
        parent.children.retain(|child| *child != id);
        (!parent.alive()).then_some(parent.id)
    }

    /// Everything forked below a process, dead or alive, parents before children; not below those that `enter` refuses.
    pub(super) fn below(&self, root: ProcessId, enter: impl Fn(&TrackedProcess) -> bool) -> Vec<ProcessId> {
        let mut found = Vec::new();
        let mut open: VecDeque<ProcessId> = self.get(root).map(|root| root.children.clone()).unwrap_or_default().into();
        while let Some(id) = open.pop_front() {
            if let Some(process) = self.get(id).filter(|process| enter(process)) {
                found.push(id);
                open.extend(process.children.iter().copied());
            }
        }
        found
    }

    /// Everything alive that was forked below a process, parents before children.
    pub(super) fn living_below(&self, root: ProcessId) -> impl Iterator<Item = &TrackedProcess> {
        self.below(root, |_| true).into_iter().filter_map(|id| self.alive(id))
    }

    /// The processes above one, its parent first, up to where lineage ends.
    pub(super) fn above(&self, id: ProcessId) -> impl Iterator<Item = &TrackedProcess> {
        std::iter::successors(self.get(id), |process| process.parent.and_then(|parent| self.get(parent))).skip(1)
    }

    /// The nearest ancestor that executed a program of its own. A fork or setsid between
    /// acts for its parent.
    pub(super) fn starter(&self, id: ProcessId) -> Option<&TrackedProcess> {
        self.above(id).find(|above| !above.acts_for_parent())
    }

    /// Living processes that a process started, also through exited ones that acted for it.
    pub(super) fn started(&self, id: ProcessId) -> Vec<ProcessId> {
        self.surviving_children(id, TrackedProcess::acts_for_parent)
    }

    /// Living ancestors up to the first agent.
    pub(super) fn living_above(&self, id: ProcessId) -> impl Iterator<Item = &TrackedProcess> {
        self.above(id).take_while(|above| !above.is_agent()).filter(|above| above.alive())
    }

    /// The nearest living processes that were forked below one, through the dead that `through` accepts.
    pub(super) fn surviving_children(
        &self,
        of: ProcessId,
        through: impl Fn(&TrackedProcess) -> bool,
    ) -> Vec<ProcessId> {
        let mut open = self.get(of).map(|of| of.children.clone()).unwrap_or_default();
        let mut surviving_children = Vec::new();
        while let Some(child) = open.pop().and_then(|child| self.get(child)) {
            if child.alive() {
                surviving_children.push(child.id);
            } else if through(child) {
                open.extend(child.children.iter().copied());
            }
        }
        surviving_children
    }
}
