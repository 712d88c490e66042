//! Workers: processes of one program within one command, such as those of `pytest -n 16`, or the different programs that it
//! runs side by side, such as those of `go test ./...`. A command is one helper; this is about what it consists of.

use std::collections::BTreeMap;

use super::Facts;
use super::survey::{HelperRole, median};
use crate::process::TrackedProcess;
use watchdog_api::ProcessKind;
use watchdog_types::{BootTime, Bytes, ProcessId};

/// With fewer processes a command has no workers. Test runners start one for each processor but one.
pub(super) const MIN_WORKERS: usize = 4;
/// Children of one process with different programs are the workers if they take this many times what equal ones take.
const OUTWEIGH: u64 = 2;
/// A worker that takes this many times the median of its pool is not like the others.
const LIKE_THE_OTHERS: u64 = 2;

/// The living below a command, by program.
#[derive(Debug)]
pub(super) struct Pool<'a> {
    pub(super) command: &'a TrackedProcess,
    /// What the workers run; `None` if they run different programs.
    pub(super) role: Option<HelperRole>,
    /// The oldest first.
    pub(super) workers: Vec<&'a TrackedProcess>,
    /// All that the command started, by program: how many, and what they take.
    pub(super) parts: BTreeMap<HelperRole, (usize, Bytes)>,
    /// What all of that takes.
    pub(super) memory: Bytes,
}

impl<'a> Pool<'a> {
    /// What a worker takes, in the middle.
    pub(super) fn typical(&self) -> Bytes {
        median(self.workers.iter().map(|worker| worker.cost()).collect()).unwrap_or_default()
    }

    /// What the older half of the workers take, in the middle.
    pub(super) fn of_elders(&self) -> Bytes {
        let half = self.workers.len().div_ceil(2);
        median(self.workers.iter().take(half).map(|worker| worker.cost()).collect()).unwrap_or_default()
    }

    /// The most that a worker takes which is like the others.
    pub(super) fn most_alike(&self) -> Bytes {
        Bytes(self.typical().0.saturating_mul(LIKE_THE_OTHERS))
    }

    /// When the youngest worker was started.
    pub(super) fn youngest(&self) -> BootTime {
        self.workers.last().map_or(BootTime(0), |worker| worker.id.start_time.into())
    }

    /// At least half of the workers grow.
    pub(super) fn most_grow(&self, facts: &Facts<'_>) -> bool {
        let grow = self.workers.iter().filter(|worker| facts.growing_workers.contains_key(&worker.id)).count();
        grow * 2 >= self.workers.len()
    }
}

impl<'a> Facts<'a> {
    /// Commands that may have workers: each the topmost of its helper. A look at each living process's number of children.
    pub(super) fn commands(&self) -> Vec<&'a TrackedProcess> {
        let table = self.table;
        let many = table.living().filter(|process| process.children.len() >= MIN_WORKERS && self.is_command(process));
        let topmost = |process: &&TrackedProcess| self.command_above(process).is_none();
        many.filter(topmost).collect()
    }

    /// It starts what is a part of it. An agent starts helpers instead, and a browser's processes are the browser.
    fn is_command(&self, process: &TrackedProcess) -> bool {
        !process.is_agent() && process.kind != ProcessKind::Browser && !self.stands_apart(process)
    }

    /// The topmost command of which a process is a part.
    pub(super) fn command_above(&self, process: &TrackedProcess) -> Option<&'a TrackedProcess> {
        let mut found = None;
        let mut below = self.table.get(process.id)?;
        while !self.is_top(below) {
            let Some(above) = below.parent.and_then(|parent| self.table.get(parent)) else { break };
            if !self.is_command(above) {
                break;
            }
            if above.alive() && above.children.len() >= MIN_WORKERS {
                found = Some(above);
            }
            below = above;
        }
        found
    }

    /// The living that a command started and that are a part of it.
    pub(super) fn below_command(&self, command: &TrackedProcess) -> Vec<&'a TrackedProcess> {
        let part = |process: &TrackedProcess| self.is_command(process) && !self.is_top(process);
        let below = self.table.below(command.id, part);
        below.into_iter().filter_map(|id| self.table.alive(id)).collect()
    }

    /// The workers of a command, if it has any: the program that takes the most memory, with its processes. 3 µs for each
    /// process.
    pub(super) fn pool(&self, command: &'a TrackedProcess) -> Option<Pool<'a>> {
        let mut groups: BTreeMap<HelperRole, WorkerGroup<'a>> = BTreeMap::new();
        let mut siblings: BTreeMap<ProcessId, WorkerGroup<'a>> = BTreeMap::new();
        for process in self.below_command(command) {
            groups.entry(self.role(process).0).or_default().add(process);
            if let Some(parent) = process.forked_by {
                siblings.entry(parent).or_default().add(process);
            }
        }
        let parts: BTreeMap<HelperRole, (usize, Bytes)> =
            groups.iter().map(|(role, group)| (role.clone(), (group.processes.len(), group.memory))).collect();
        let memory = parts.values().map(|(_, memory)| *memory).sum();
        let equal = groups.into_iter().filter(|(_, group)| group.has_workers()).max_by_key(|(_, group)| group.weight());
        let mixed = siblings.into_values().filter(WorkerGroup::has_workers).max_by_key(WorkerGroup::weight);
        let outweighed = |equal: &WorkerGroup<'_>| {
            mixed.as_ref().is_some_and(|mixed| mixed.memory.0 > equal.memory.0.saturating_mul(OUTWEIGH))
        };
        let (role, group) = match equal {
            Some((role, equal)) if !outweighed(&equal) => (Some(role), equal),
            _ => (None, mixed?),
        };
        let mut workers = group.processes;
        workers.sort_unstable_by_key(|worker| (worker.id.start_time, worker.id.pid));
        Some(Pool { command, role, workers, parts, memory })
    }
}

/// Processes that may be workers, and what they take.
#[derive(Debug, Default)]
struct WorkerGroup<'a> {
    processes: Vec<&'a TrackedProcess>,
    memory: Bytes,
}

impl<'a> WorkerGroup<'a> {
    fn add(&mut self, process: &'a TrackedProcess) {
        self.processes.push(process);
        self.memory += process.cost();
    }

    fn has_workers(&self) -> bool {
        self.processes.len() >= MIN_WORKERS
    }

    fn weight(&self) -> (Bytes, usize) {
        (self.memory, self.processes.len())
    }
}
