//! Workers of one command that grow together: that is one burst, and no leak of each.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::detect::workers::Pool;
use crate::detect::{Conclusions, Facts};
use crate::finding::Key;
use crate::process::TrackedProcess;
use watchdog_api::FindingKind;
use watchdog_types::{BootTime, Bytes, ProcessId};

/// A worker's leak waits this long for those of the others, and until the youngest is this old.
const WAIT: Duration = Duration::from_secs(10);
/// The longest wait.
const WAIT_AT_MOST: Duration = Duration::from_secs(60);

/// The pools of workers are looked at this often: with each of a thousand growing workers, a look would cost 3 ms.
const EVERY: Duration = Duration::from_secs(1);

/// Pools with growing workers, by command.
#[derive(Debug, Default)]
pub(super) struct Crowds(BTreeMap<ProcessId, Crowd>);

/// A pool as it was a moment ago; without workers if there was none.
#[derive(Debug)]
struct Crowd {
    looked: BootTime,
    workers: BTreeSet<ProcessId>,
    youngest: BootTime,
    most_grow: bool,
    /// What a worker of an open burst may take to be like the others.
    alike: Option<Bytes>,
}

impl Crowds {
    /// Whether the growth of a process is, or may soon be, part of a burst of its command.
    pub(super) fn holds(&mut self, process: ProcessId, facts: &Facts<'_>, out: &mut Conclusions) -> bool {
        let Some(known) = facts.table.alive(process) else { return false };
        let since = facts.growing_workers.get(&process).copied();
        let crowd = facts.command_above(known).map(|command| self.crowd(command, facts));
        let Some(crowd) = crowd.filter(|crowd| crowd.workers.contains(&process)) else {
            if since.is_some() {
                out.worker_settled(process);
            }
            return false;
        };
        if since.is_none() {
            out.worker_grows(process);
        }
        let held = facts.now.since(since.unwrap_or(facts.now));
        let young = facts.now.since(crowd.youngest) < WAIT;
        let waits = held < WAIT || (young && held < WAIT_AT_MOST);
        crowd.most_grow || waits || crowd.alike.is_some_and(|most| known.cost() <= most)
    }

    fn crowd(&mut self, command: &TrackedProcess, facts: &Facts<'_>) -> &Crowd {
        let now = facts.now;
        self.0.retain(|_, crowd| now.since(crowd.looked) < EVERY);
        self.0.entry(command.id).or_insert_with(|| Crowd::of(command, facts))
    }
}

impl Crowd {
    fn of(command: &TrackedProcess, facts: &Facts<'_>) -> Self {
        let none =
            Self { looked: facts.now, workers: BTreeSet::new(), youngest: facts.now, most_grow: false, alike: None };
        let Some(pool) = facts.table.get(command.id).and_then(|command| facts.pool(command)) else { return none };
        Self {
            workers: pool.workers.iter().map(|worker| worker.id).collect(),
            youngest: pool.youngest(),
            most_grow: pool.most_grow(facts),
            alike: is_burst(&pool, facts).then(|| pool.most_alike()),
            ..none
        }
    }
}

impl Facts<'_> {
    /// The workers of bursts, and of commands that have just started theirs.
    pub(super) fn crowd(&self) -> BTreeSet<ProcessId> {
        let pools = self.commands().into_iter().filter_map(|command| self.pool(command));
        let crowded = pools.filter(|pool| {
            let young = self.now.since(pool.youngest()) < WAIT_AT_MOST;
            young || is_burst(pool, self)
        });
        crowded.flat_map(|pool| pool.workers).map(|worker| worker.id).collect()
    }
}

fn is_burst(pool: &Pool<'_>, facts: &Facts<'_>) -> bool {
    facts.findings.is_open(Key { kind: FindingKind::Fanout, about: pool.command.id })
}
