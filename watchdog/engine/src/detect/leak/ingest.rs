//! From samples to watches: one for each process that has grown beyond what the smallest programs take.

use std::time::Duration;

use super::ceiling::Ceilings;
use super::demand::Demand;
use super::group::Watched;
use super::state::{Leaks, leak_key, usual_demand};
use super::watch::{Change, Watch};
use crate::detect::{Conclusions, Detector, Facts};
use crate::process::TrackedProcess;
use watchdog_types::{BootTime, Bytes, ProcessId};

/// A process that never holds this much is not watched: a finding takes four times as much.
const WORTH_WATCHING: Bytes = Bytes::from_mib(8);
/// Open findings are brought up to date this often: how long memory has been flat, and what is left of it, change by
/// themselves.
const REFRESH: Duration = Duration::from_secs(3);
/// Ticks come at least every second: after so long without one the host slept, or nothing was sampled.
const ASLEEP: Duration = Duration::from_secs(10);
/// Until a growing helper is larger than its elders were, it is only judged by windows of this length.
const LIKE_ITS_ELDERS: Duration = Duration::from_secs(200);

impl Detector for Leaks {
    fn executed(&mut self, process: ProcessId, _at: BootTime, facts: &Facts<'_>, out: &mut Conclusions) {
        self.finish(process, "runs another program", facts, out);
    }

    fn exited(&mut self, process: ProcessId, _at: BootTime, facts: &Facts<'_>, out: &mut Conclusions) {
        self.finish(process, "gone", facts, out);
    }

    fn sampled(&mut self, process: ProcessId, at: BootTime, facts: &Facts<'_>, out: &mut Conclusions) {
        let Some(known) = facts.table.alive(process) else { return };
        let memory = self.shared.judged(known);
        if let Some(watched) = self.processes.get(&process) {
            let (last, awake) = (watched.watch.series().last(), self.awake);
            // A process without a sample has not changed, until about the last time that all processes were sampled.
            let interval = facts.config.tracking.sample_interval;
            let quiet = at.minus(interval);
            let held = (last >= awake && quiet > last).then_some(quiet);
            self.judge(process, memory, facts, out, |watch, ceilings, demand| {
                watch.skip(awake);
                let before = held.and_then(|held| watch.hold(held, ceilings, demand));
                watch.push(at, memory, ceilings, demand).or(before)
            });
        } else if memory >= WORTH_WATCHING && !facts.config.leaks.ignores(&known.image) {
            let watched = Watched {
                watch: Box::new(Watch::new(at, memory)),
                session: known.session,
                program: known.label().into(),
                peak: memory,
            };
            self.groups.join(&watched);
            self.processes.insert(process, watched);
        }
    }

    fn tick(&mut self, facts: &Facts<'_>, out: &mut Conclusions) {
        let now = facts.now;
        if now.since(self.ticked) > ASLEEP {
            self.awake = now;
        }
        self.ticked = now;
        let awake = self.awake;
        if now.since(self.refreshed) >= REFRESH {
            self.refreshed = now;
            let open = self.processes.iter().filter(|(_, watched)| watched.watch.found().is_some());
            let open: Vec<(ProcessId, Bytes)> =
                open.map(|(process, watched)| (*process, watched.watch.series().memory())).collect();
            for (process, memory) in open {
                self.judge(process, memory, facts, out, |watch, ceilings, demand| {
                    watch.skip(awake);
                    let quiet = now.since(watch.series().last()) >= REFRESH;
                    let held = if quiet { watch.hold(now, ceilings, demand) } else { None };
                    held.or(Some(Change::Moved))
                });
            }
        }
        self.tick_groups(facts, out);
    }
}

impl Leaks {
    /// The series of a process is over.
    fn finish(&mut self, process: ProcessId, because: &'static str, facts: &Facts<'_>, out: &mut Conclusions) {
        if let Some(known) = facts.table.get(process) {
            self.shared.forget(known.session, process);
        }
        let Some(watched) = self.processes.remove(&process) else { return };
        let status = facts.table.get(process).and_then(TrackedProcess::died).and_then(|(_, status)| status);
        self.groups.lost(&watched, status, facts.now);
        if watched.watch.found().is_some() {
            out.worker_settled(process);
            out.close(leak_key(process), because);
        }
    }

    /// Lets a watch take something, and reports what it found.
    fn judge(
        &mut self,
        process: ProcessId,
        memory: Bytes,
        facts: &Facts<'_>,
        out: &mut Conclusions,
        take: impl FnOnce(&mut Watch, &Ceilings, Demand) -> Option<Change>,
    ) {
        let mut demand = usual_demand(facts);
        let Some(known) = facts.table.alive(process) else { return };
        if known.limits.as_deref().is_some_and(|limits| limits.cgroup.is_some()) {
            self.cgroups.sum_up(facts);
        }
        let session = known.session;
        let ceilings = self.cgroups.ceilings_of(known, facts);
        let elders = self.processes.get(&process).and_then(|watched| self.groups.elders(watched));
        if elders.is_some_and(|elders| elders.are_like(memory)) {
            demand.window = LIKE_ITS_ELDERS;
        }
        let Some(watched) = self.processes.get_mut(&process) else { return };
        watched.peak = watched.peak.max(memory);
        watched.session = session;
        match take(&mut watched.watch, &ceilings, demand) {
            Some(Change::Opened | Change::Moved) => self.report_process(process, &ceilings, facts, out),
            Some(Change::Closed(because)) => {
                out.worker_settled(process);
                out.close(leak_key(process), because);
            }
            None => {}
        }
    }
}
