//! The ceilings of a process, a role or a session, as the engine knows them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ceiling::{Ceilings, Limit};
use crate::engine::id::{BootTime, Bytes};
use crate::engine::process::Process;
use crate::engine::{Engine, Step};

/// V8's limit is on its old generation. A node process that reaches it holds a fiftieth and this much more: measured at
/// limits of 200 MiB and 4 GiB.
const BESIDES_HEAP: Bytes = Bytes::from_mib(20);
/// Beyond this many times of that, what grows is not the heap, and its limit ends nothing.
const NOT_THE_HEAP: f64 = 1.25;

/// A sum of what a cgroup holds stands for this long.
const SUM_AGAIN: Duration = Duration::from_secs(3);

/// What the processes of all sessions hold in each cgroup that limits any.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    sums: BTreeMap<String, Bytes>,
    summed: BootTime,
}

impl Step<'_> {
    /// Sums up the cgroups, unless that was done a moment ago. Page cache is a part of what they hold, and is given up
    /// before anybody is killed: it does not count, so the kernel's own sum is of no use.
    pub(super) fn sum_up_cgroups(&mut self) {
        let Engine { table, leaks, .. } = &mut *self.engine;
        if self.now.since(leaks.cgroups.summed) < SUM_AGAIN {
            return;
        }
        leaks.cgroups.summed = self.now;
        let mut sums = BTreeMap::new();
        for process in table.living() {
            if let Some(cgroup) = process.limits.as_deref().and_then(|limits| limits.cgroup.as_ref()) {
                match sums.get_mut(&cgroup.path) {
                    Some(sum) => *sum += process.cost(),
                    None => drop(sums.insert(cgroup.path.clone(), process.cost())),
                }
            }
        }
        leaks.cgroups.sums = sums;
    }

    pub(super) fn leak_ceilings(&self, process: &Process) -> Ceilings {
        let memory = process.memory.charged();
        let mut ceilings = self.host_ceiling();
        let config = &self.engine.config;
        let session = self.engine.sessions.get(process.session);
        let limiting = session.into_iter().flat_map(|of| of.limited_by(config));
        let configured = limiting.map(|profile| profile.max_process_memory).chain([config.leaks.limit]);
        let total = self.engine.close_watch.host.total;
        if let Some(limit) = configured.flatten().map(|limit| limit.on_host(total)).min() {
            ceilings.add(Limit::Configured, limit, left(limit, memory));
        }
        let limits = process.limits.as_deref();
        if let Some(cgroup) = limits.and_then(|limits| limits.cgroup.as_ref()) {
            let together = self.engine.leaks.cgroups.sums.get(&cgroup.path).copied().unwrap_or_default();
            ceilings.add(Limit::Cgroup, cgroup.max, left(cgroup.max, together.max(memory)));
        }
        if let Some(heap) = limits.and_then(|limits| limits.v8_heap) {
            let holds = Bytes(heap.0 + heap.0 / 50) + BESIDES_HEAP;
            if (memory.0 as f64) < holds.0 as f64 * NOT_THE_HEAP {
                ceilings.add(Limit::V8Heap, heap, left(holds, memory));
            }
        }
        ceilings
    }

    /// What the host has left for everybody.
    pub(super) fn host_ceiling(&self) -> Ceilings {
        let host = self.engine.close_watch.host;
        let mut ceilings = Ceilings::default();
        if host.total > Bytes(0) {
            let left = host.available + host.swap_free;
            ceilings.add(Limit::Host, left, left);
        }
        ceilings
    }
}

fn left(limit: Bytes, used: Bytes) -> Bytes {
    Bytes(limit.0.saturating_sub(used.0))
}
