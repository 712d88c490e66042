//! From samples to watches: one for each process that has grown beyond what the smallest programs take.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::ceiling::Ceilings;
use super::group::Groups;
use super::limits::Cgroups;
use super::series::Demand;
use super::watch::{Change, Watch};
use crate::api::FindingKind;
use crate::config;
use crate::engine::Step;
use crate::engine::finding::Key;
use crate::engine::id::{BootTime, Bytes, ProcessId, SessionId};
use crate::engine::process::Process;

/// A process that never holds this much is not watched: a finding takes four times as much.
const WORTH_WATCHING: Bytes = Bytes::from_mib(8);
/// Open findings are brought up to date this often: how long memory has been flat, and what is left of it, change by
/// themselves.
const REFRESH: Duration = Duration::from_secs(3);
/// Ticks come at least every second: after so long without one the host slept, or nothing was sampled.
const ASLEEP: Duration = Duration::from_secs(10);
/// Until a growing helper is larger than its elders were, it is only judged by windows of this length.
const LIKE_ITS_ELDERS: Duration = Duration::from_secs(200);

/// All series, and what was found of them.
#[derive(Debug, Default)]
pub(in crate::engine) struct Leaks {
    pub(super) processes: BTreeMap<ProcessId, Watched>,
    pub(super) groups: Groups,
    pub(super) cgroups: Cgroups,
    refreshed: BootTime,
    ticked: BootTime,
    /// Since when ticks have come without a gap.
    awake: BootTime,
}

/// A process under watch.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) watch: Box<Watch>,
    pub(super) session: SessionId,
    /// What it runs: a role is the helpers of a session that run the same.
    pub(super) program: Arc<str>,
    pub(super) peak: Bytes,
}

impl Leaks {
    /// Growth of the open findings in bytes per second, by whom they are about.
    pub(in crate::engine) fn rates(&self) -> impl Iterator<Item = (SessionId, f64)> {
        let of_process = |watched: &Watched| Some((watched.session, watched.watch.found()?.growth.rate));
        self.processes.values().filter_map(of_process).chain(self.groups.rates())
    }
}

impl Step<'_> {
    /// A process's memory was looked at.
    pub(in crate::engine) fn leak_sample(&mut self, process: ProcessId, at: BootTime) {
        let Some(known) = self.engine.table.alive(process) else { return };
        let memory = known.memory.charged();
        if let Some(watched) = self.engine.leaks.processes.get(&process) {
            let (last, awake) = (watched.watch.series().last(), self.engine.leaks.awake);
            // Who is not sampled has not moved, until about the last time that everybody was looked at.
            let interval = self.engine.config.tracking.sample_interval;
            let quiet = at.minus(interval);
            let held = (last >= awake && quiet > last).then_some(quiet);
            self.judge_leak(process, |watch, ceilings, demand| {
                let before = held.and_then(|held| watch.hold(held, ceilings, demand));
                watch.push(at, memory, ceilings, demand).or(before)
            });
        } else if memory >= WORTH_WATCHING && !self.engine.config.leaks.ignores(&known.image) {
            let watched = Watched {
                watch: Box::new(Watch::new(at, memory)),
                session: known.session,
                program: known.label().into(),
                peak: memory,
            };
            self.join_role(&watched);
            self.engine.leaks.processes.insert(process, watched);
        }
    }

    /// A process is gone, or runs another program: its series is over.
    pub(in crate::engine) fn leak_over(&mut self, process: ProcessId, because: &'static str) {
        let Some(watched) = self.engine.leaks.processes.remove(&process) else { return };
        let status = self.engine.table.get(process).and_then(Process::died).and_then(|(_, status)| status);
        self.engine.leaks.groups.lost(&watched, status, self.now);
        if watched.watch.found().is_some() {
            self.close(leak_key(process), because);
        }
    }

    pub(in crate::engine) fn tick_leaks(&mut self) {
        let now = self.now;
        let leaks = &mut self.engine.leaks;
        if now.since(leaks.ticked) > ASLEEP {
            leaks.awake = now;
        }
        leaks.ticked = now;
        if now.since(leaks.refreshed) >= REFRESH {
            leaks.refreshed = now;
            let open = leaks.processes.iter().filter(|(_, watched)| watched.watch.found().is_some());
            let open: Vec<ProcessId> = open.map(|(process, _)| *process).collect();
            for process in open {
                self.judge_leak(process, |watch, ceilings, demand| {
                    let quiet = now.since(watch.series().last()) >= REFRESH;
                    let held = if quiet { watch.hold(now, ceilings, demand) } else { None };
                    held.or(Some(Change::Moved))
                });
            }
        }
        self.tick_leaks_of_groups();
    }

    /// Lets a watch take something, and says what it found.
    fn judge_leak(&mut self, process: ProcessId, take: impl FnOnce(&mut Watch, &Ceilings, Demand) -> Option<Change>) {
        let mut demand = self.leak_demand();
        let Some(known) = self.engine.table.alive(process) else { return };
        if known.limits.as_deref().is_some_and(|limits| limits.cgroup.is_some()) {
            self.sum_up_cgroups();
        }
        let Some(known) = self.engine.table.alive(process) else { return };
        let (session, memory) = (known.session, known.memory.charged());
        let ceilings = self.leak_ceilings(known);
        let elders =
            self.engine.leaks.processes.get(&process).and_then(|watched| self.engine.leaks.groups.elders(watched));
        if elders.is_some_and(|elders| elders.are_like(memory)) {
            demand.window = LIKE_ITS_ELDERS;
        }
        let Some(watched) = self.engine.leaks.processes.get_mut(&process) else { return };
        watched.peak = watched.peak.max(memory);
        watched.session = session;
        match take(&mut watched.watch, &ceilings, demand) {
            Some(Change::Opened | Change::Moved) => self.report_process_leak(process, &ceilings),
            Some(Change::Closed(because)) => self.close(leak_key(process), because),
            None => {}
        }
    }

    pub(super) fn leak_demand(&self) -> Demand {
        let factor = match self.engine.config.leaks.sensitivity {
            config::Sensitivity::Low => 2.0,
            config::Sensitivity::Normal => 1.0,
            config::Sensitivity::High => 0.6,
        };
        Demand { factor, ..Demand::default() }
    }
}

/// A leak's finding is about a process; of a role or a session, about its oldest.
pub(super) fn leak_key(about: ProcessId) -> Key {
    Key { kind: FindingKind::Leak, about }
}
