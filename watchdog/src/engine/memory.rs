//! Memory of processes, and what a tree shares counted once.
//!
//! Counters are exact and cheap, but a page that two processes share is in both. So the processes that can share
//! (forked and not executed anything since, or holding shared memory) have their proportional memory measured now and
//! then, and their counters are scaled by what that showed.

use std::time::Duration;

use super::effect::{Effect, Happening};
use super::id::{Bytes, ProcessId};
use super::input::Sample;
use super::process::Process;
use super::{Engine, Step};

/// Less than this is not worth a measurement.
const WORTH_MEASURING: Bytes = Bytes::from_mib(4);
/// A measurement stands for this long while the process's own memory stays the same: the others may have changed.
const MEASURE_AGAIN: Duration = Duration::from_secs(30);
/// And for this long however much it moves.
const MEASURE_AT_MOST: Duration = Duration::from_secs(2);

impl Step<'_> {
    pub(super) fn sample(&mut self, sample: Sample) {
        if sample.zombie {
            self.missed(sample.process);
            return;
        }
        let Some(known) = self.engine.table.get_mut(sample.process).filter(|known| known.alive()) else { return };
        // A sample that was taken before an exec is of the program before it.
        let moved = known.remember(sample.memory);
        let cost = known.cost();
        known.trail.pass(sample.at, cost);
        if let Some(ppid) = sample.ppid {
            known.ppid = ppid;
        }
        let renamed = sample.comm.filter(|comm| *comm != known.comm);
        if let Some(comm) = renamed.clone() {
            known.comm = comm;
        }
        let hung_up = sample.tty == Some(false) && known.inspection.as_deref().is_some_and(|seen| seen.tty);
        let (id, executed) = (known.id, !known.forked);
        if moved {
            self.engine.table.moved();
        }
        self.grew(id, sample.at, cost);
        self.leak_sample(id, sample.at);
        if hung_up {
            self.terminal_may_be_gone(id);
        }
        if renamed.is_some() {
            // Names are no proof, but a profile may ask for one, and tmux's server has nothing else.
            if executed {
                self.reclassify(id);
            }
            self.judge(id);
        }
    }

    pub(super) fn memory_step(&mut self, sample: Sample) {
        let (at, process, memory_bytes) = (sample.at, sample.process, sample.memory.charged().0);
        self.sample(sample);
        self.journal(at, Some(process), Happening::MemoryStep { memory_bytes });
    }

    /// Asks for the proportional memory of those that share and have changed.
    pub(super) fn measure_shared(&mut self) {
        let now = self.now;
        let Engine { table, sharing, .. } = &mut *self.engine;
        if !sharing.is_due(table.moves(), now) {
            return;
        }
        let table = &*table;
        let mut due = Vec::new();
        for process in table.living() {
            if process.memory.charged() < WORTH_MEASURING || !shares(process, |id| table.alive(id)) {
                continue;
            }
            let moved = process.drift() > process.memory.charged().0 / 20;
            let pause = if moved { MEASURE_AT_MOST } else { MEASURE_AGAIN };
            match process.shared.asked.map(|asked| asked.plus(pause)) {
                Some(again) if again > now => sharing.at(again),
                _ => {
                    due.push(process.id);
                    sharing.at(now.plus(pause));
                }
            }
        }
        for id in due {
            if let Some(process) = self.engine.table.get_mut(id) {
                process.shared.asked = Some(now);
                self.effect(Effect::MeasureShared(id));
            }
        }
    }
}

/// Whether a process may share anonymous or shmem pages with another.
fn shares<'a>(process: &Process, alive: impl Fn(ProcessId) -> Option<&'a Process>) -> bool {
    let copy_on_write = |child: &ProcessId| alive(*child).is_some_and(|child| child.forked);
    process.memory.shmem >= WORTH_MEASURING || process.forked || process.children.iter().any(copy_on_write)
}
