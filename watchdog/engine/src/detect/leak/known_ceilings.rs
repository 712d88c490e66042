//! The ceilings of a process, a role or a session, as the engine knows them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ceiling::Ceilings;
use crate::detect::Facts;
use crate::process::TrackedProcess;
use watchdog_api::evidence::LeakLimit;
use watchdog_types::{BootTime, Bytes};

/// V8's limit is on its old generation. A node process that reaches it holds a fiftieth and this much more: measured at
/// limits of 200 MiB and 4 GiB.
const BESIDES_HEAP: Bytes = Bytes::from_mib(20);
/// A process that holds this many times its heap limit grows outside the heap.
const NOT_THE_HEAP: f64 = 1.25;

/// How long the sum of a cgroup's memory stays valid.
const SUM_AGAIN: Duration = Duration::from_secs(3);

/// What the processes of all sessions hold in each cgroup that limits any.
#[derive(Debug, Default)]
pub(super) struct CgroupSums {
    sums: BTreeMap<String, Bytes>,
    summed: BootTime,
}

impl CgroupSums {
    /// Sums up the cgroups, unless that was done a moment ago. Page cache is a part of what they hold, and is dropped
    /// before any process is killed: it does not count, so the kernel's own sum is of no use.
    pub(super) fn sum_up(&mut self, facts: &Facts<'_>) {
        if facts.now.since(self.summed) < SUM_AGAIN {
            return;
        }
        self.summed = facts.now;
        self.sums.clear();
        for process in facts.table.living() {
            if let Some(cgroup) = process.limits.as_deref().and_then(|limits| limits.cgroup.as_ref()) {
                match self.sums.get_mut(&cgroup.path) {
                    Some(sum) => *sum += process.cost(),
                    None => drop(self.sums.insert(cgroup.path.clone(), process.cost())),
                }
            }
        }
    }

    pub(super) fn ceilings_of(&self, process: &TrackedProcess, facts: &Facts<'_>) -> Ceilings {
        let memory = process.memory.charged();
        let mut ceilings = host_ceiling(facts);
        let config = facts.config;
        let session = facts.sessions.get(process.session);
        let limiting = session.into_iter().flat_map(|of| of.limited_by(config));
        let configured = limiting.map(|profile| profile.max_process_memory).chain([config.leaks.limit]);
        let total = facts.host.total;
        if let Some(limit) = configured.flatten().map(|limit| limit.on_host(total)).min() {
            ceilings.add(LeakLimit::Configured, limit, left(limit, memory));
        }
        let limits = process.limits.as_deref();
        if let Some(cgroup) = limits.and_then(|limits| limits.cgroup.as_ref()) {
            let together = self.sums.get(&cgroup.path).copied().unwrap_or_default();
            ceilings.add(LeakLimit::Cgroup, cgroup.max, left(cgroup.max, together.max(memory)));
        }
        if let Some(heap) = limits.and_then(|limits| limits.v8_heap) {
            let holds = Bytes(heap.0 + heap.0 / 50) + BESIDES_HEAP;
            if (memory.0 as f64) < holds.0 as f64 * NOT_THE_HEAP {
                ceilings.add(LeakLimit::V8Heap, heap, left(holds, memory));
            }
        }
        ceilings
    }
}

/// Memory that is left on the host.
pub(super) fn host_ceiling(facts: &Facts<'_>) -> Ceilings {
    let host = facts.host;
    let mut ceilings = Ceilings::default();
    if host.total > Bytes(0) {
        let left = host.available + host.swap_free;
        ceilings.add(LeakLimit::Host, left, left);
    }
    ceilings
}

fn left(limit: Bytes, used: Bytes) -> Bytes {
    Bytes(limit.0.saturating_sub(used.0))
}
