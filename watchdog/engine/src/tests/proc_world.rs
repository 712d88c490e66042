//! /proc of a test's host: what scans, inspections and readings of activity show.

use std::time::Duration;

use super::world::{World, image};
use crate::input::Input;
use watchdog_types::{Activity, Inspection, Lineage, Memory, ProcessId, Scan, ScannedProcess};

impl World {
    /// Changes what /proc shows of a process from now on.
    pub(super) fn shows(&mut self, process: ProcessId, change: impl FnOnce(&mut Inspection)) {
        let mut facts = self.inspection(process);
        change(&mut facts);
        self.facts.insert(process, facts);
    }

    pub(super) fn inspection(&self, process: ProcessId) -> Inspection {
        if let Some(facts) = self.facts.get(&process) {
            return facts.clone();
        }
        let ppid = self.living.get(&process).map_or(0, |(ppid, _)| ppid.0);
        Inspection { ppid, ..self.ordinary.clone() }
    }

    /// From now on the process does this much in a minute.
    pub(super) fn does(&mut self, process: ProcessId, cpu: Duration, runs: u64, bytes: u64) {
        self.habits.insert(process, (self.now, cpu, runs, bytes));
    }

    pub(super) fn activity(&self, process: ProcessId) -> Activity {
        let (since, cpu, runs, bytes) = self.habits.get(&process).copied().unwrap_or_default();
        let minutes = self.now.since(since).as_secs_f64() / 60.0;
        // CPU time is reported in ticks.
        let ticks = (cpu.mul_f64(minutes).as_millis() / 10) as u64;
        let runs = 50 + (runs as f64 * minutes) as u64;
        let bytes = Some((bytes as f64 * minutes) as u64);
        Activity { at: self.now, process, cpu: Duration::from_millis(100 + ticks * 10), runs, bytes }
    }

    /// A scan of /proc as it would come out now, without the kernel's map when `tracked` is false.
    pub(super) fn scan(&self, tracked: bool) -> Input {
        let processes = self
            .living
            .iter()
            .map(|(process, (ppid, image))| ScannedProcess {
                process: *process,
                ppid: *ppid,
                uid: self.user_of(*process),
                comm: "comm".into(),
                image: image.clone(),
                titled: false,
                zombie: false,
                lineage: self.tracked.get(process).copied().filter(|_| tracked),
                memory: Memory::default(),
            })
            .collect();
        Input::Scan(Scan { began: self.now, processes })
    }

    /// Puts a process into /proc without an event.
    pub(super) fn unseen(&mut self, parent: ProcessId, path: &str) -> ProcessId {
        let process = self.fresh();
        self.living.insert(process, (parent.pid, image(path, &[path])));
        if let Some(above) = self.tracked.get(&parent).copied() {
            self.tracked.insert(process, Lineage { parent: Some(parent), depth: above.depth + 1, ..above });
        }
        process
    }

    /// Changes what /proc shows of a process, with no event.
    pub(super) fn runs(&mut self, process: ProcessId, argv: &[&str]) {
        if let Some((_, known)) = self.living.get_mut(&process) {
            *known = image(argv[0], argv);
        }
    }

    /// Takes a process out of /proc without an event.
    pub(super) fn vanish(&mut self, process: ProcessId) {
        self.living.remove(&process);
        self.tracked.remove(&process);
    }
}
