//! The process table: every process of every session, by identity, with the forks between them.
//!
//! The dead stay while something that they forked is in the table, since lineage runs through them, and for a moment
//! longer, since only then is it known whether their parent waits for them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use super::id::{BootTime, Pid, ProcessId};
use super::input::ExitStatus;
use super::process::{Life, Process};

/// How long the childless dead stay: longer than the sampler's interval, which is what finds zombies.
const LINGER: Duration = Duration::from_secs(3);
/// How many of them stay at most: a fork storm must not fill the daemon's memory.
const LINGER_MAX: usize = 2_048;

#[derive(Debug, Default)]
pub(super) struct Table {
    /// In an order that is the same each time: it reaches effects.
    processes: BTreeMap<ProcessId, Process>,
    /// The process that has this pid now, or had it last.
    by_pid: HashMap<Pid, ProcessId>,
    /// The dead that may go, oldest first.
    leaving: VecDeque<(BootTime, ProcessId)>,
    moves: u64,
}

impl Table {
    pub(super) fn get(&self, id: ProcessId) -> Option<&Process> {
        self.processes.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: ProcessId) -> Option<&mut Process> {
        self.processes.get_mut(&id)
    }

    pub(super) fn alive(&self, id: ProcessId) -> Option<&Process> {
        self.get(id).filter(|process| process.alive())
    }

    /// The living process that has this pid now.
    pub(super) fn by_pid(&self, pid: Pid) -> Option<&Process> {
        self.by_pid.get(&pid).and_then(|id| self.alive(*id))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Process> {
        self.processes.values()
    }

    pub(super) fn living(&self) -> impl Iterator<Item = &Process> {
        self.iter().filter(|process| process.alive())
    }

    /// Counts what may change a sum over the table: who is in it, what they run, and what they hold.
    pub(super) fn moves(&self) -> u64 {
        self.moves
    }

    /// Something about a process has changed that a sum over the table may show.
    pub(super) fn moved(&mut self) {
        self.moves += 1;
    }

    pub(super) fn insert(&mut self, mut process: Process) {
        self.moved();
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
    pub(super) fn bury(&mut self, id: ProcessId, at: BootTime, status: Option<ExitStatus>, now: BootTime) -> bool {
        let Some(process) = self.processes.get_mut(&id).filter(|process| process.alive()) else { return false };
        process.life = Life::Dead { at, status, zombie: false };
        process.inspection = None;
        self.moved();
        self.leaving.push_back((now, id));
        true
    }

    /// Marks exactly these of the dead as zombies.
    pub(super) fn set_zombies(&mut self, zombies: &[ProcessId], now: BootTime) {
        for process in self.processes.values_mut() {
            if let Life::Dead { zombie, .. } = &mut process.life {
                let is = zombies.contains(&process.id);
                if *zombie && !is {
                    self.leaving.push_back((now, process.id));
                }
                *zombie = is;
            }
        }
    }

    /// Lets go of the dead that nobody needs any more.
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
        // The dead parent of a living process is what a finding names.
        let named = process.children.iter().any(|child| self.alive(*child).is_some());
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
        if self.by_pid.get(&id.pid) == Some(&id) {
            self.by_pid.remove(&id.pid);
        }
        let parent = self.processes.get_mut(&process.parent?)?;
        parent.children.retain(|child| *child != id);
        (!parent.alive()).then_some(parent.id)
    }

    /// Everything forked below a process, dead or alive, parents before children; not below those that `enter` refuses.
    pub(super) fn below(&self, root: ProcessId, enter: impl Fn(&Process) -> bool) -> Vec<ProcessId> {
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
    pub(super) fn living_below(&self, root: ProcessId) -> impl Iterator<Item = &Process> {
        self.below(root, |_| true).into_iter().filter_map(|id| self.alive(id))
    }

    /// The processes above one, its parent first, up to where lineage ends.
    pub(super) fn above(&self, id: ProcessId) -> impl Iterator<Item = &Process> {
        std::iter::successors(self.get(id), |process| process.parent.and_then(|parent| self.get(parent))).skip(1)
    }

    /// Those of them that live, up to the first agent.
    pub(super) fn living_above(&self, id: ProcessId) -> impl Iterator<Item = &Process> {
        self.above(id).take_while(|above| !above.is_agent()).filter(|above| above.alive())
    }

    /// Of what was forked below a process the living of whom none lives in between; the dead are passed that `through` lets pass.
    pub(super) fn heirs(&self, of: ProcessId, through: impl Fn(&Process) -> bool) -> Vec<ProcessId> {
        let mut open = self.get(of).map(|of| of.children.clone()).unwrap_or_default();
        let mut heirs = Vec::new();
        while let Some(child) = open.pop().and_then(|child| self.get(child)) {
            if child.alive() {
                heirs.push(child.id);
            } else if through(child) {
                open.extend(child.children.iter().copied());
            }
        }
        heirs
    }
}
