//! Memory of processes, and what a tree shares counted once.
//!
//! Counters are exact and cheap, but a page that two processes share is in both. Processes can share pages if they forked
//! and executed nothing since, or hold shared memory. The parts of such processes are measured together: from time to time,
//! and whenever one of them forks, executes or exits. Until then the parts are estimated: a fork takes no memory, and what
//! a process shared stays with the others when it leaves. Parts of different moments are never added.

use std::collections::BTreeMap;
use std::time::Duration;

use super::detect::TableEvent;
use super::effect::{Effect, JournalEvent, ScanRequest};
use super::process::TrackedProcess;
use super::table::Table;
use super::{Engine, Step};
use watchdog_types::{BootTime, Bytes, Memory, ProcessId, Sample, SessionId, Share, SharesSeen};

/// Less than this is not worth a measurement.
const WORTH_MEASURING: Bytes = Bytes::from_mib(4);
/// The time between two measurements of an unchanged group, per hundred processes: pages that are written to are no longer
/// shared, which no event reports. At 60 µs per process this is 0.2 ms of CPU per second.
const MEASURE_AGAIN: Duration = Duration::from_secs(30);
const MEASURED_TOGETHER: usize = 100;
/// The shortest time between two measurements of a group that changes.
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
        known.trail.record(sample.at, cost);
        let reparented = sample.ppid.is_some_and(|ppid| ppid != known.ppid);
        known.ppid = sample.ppid.unwrap_or(known.ppid);
        let renamed = sample.comm.filter(|comm| *comm != known.comm);
        if let Some(comm) = renamed.clone() {
            known.comm = comm;
        }
        let hung_up = sample.tty == Some(false) && known.inspection.as_deref().is_some_and(|seen| seen.tty);
        let (id, executed, resident) = (known.id, !known.forked, known.memory.rss());
        if moved {
            self.engine.table.bump_generation();
        }
        self.reclaim_sampled(id, sample.at, resident);
        self.grew(id, sample.at, cost);
        self.detect(TableEvent::Sampled(id, sample.at));
        if hung_up {
            self.detect(TableEvent::HungUp(id));
        }
        if reparented {
            self.detect(TableEvent::Reparented(id));
        }
        if renamed.is_some() {
            // Names are no proof, but a profile may ask for one, and tmux's server has nothing else.
            if executed {
                self.reclassify(id);
            }
            self.update_verdict(id);
        }
    }

    pub(super) fn memory_step(&mut self, sample: Sample) {
        let (at, process, memory_bytes) = (sample.at, sample.process, sample.memory.charged().0);
        self.sample(sample);
        self.journal(at, Some(process), JournalEvent::MemoryStep { memory_bytes });
    }

    /// A fork takes no memory: the child has half of its parent's part.
    pub(super) fn share_with_parent(&mut self, child: ProcessId, at: BootTime) {
        let table = &mut self.engine.table;
        let Some(parent) = table.get(child).and_then(|child| table.alive(child.forked_by?)) else { return };
        let (parent, cost) = (parent.id, parent.cost());
        let memory = Memory { peak: Bytes(0), ..parent_memory(table, parent) };
        let half = Bytes(cost.0 / 2);
        if let Some(parent) = table.get_mut(parent) {
            parent.share.estimate(memory, Bytes(cost.0 - half.0), Bytes(0), at);
        }
        if let Some(child) = table.get_mut(child) {
            child.memory = memory;
            child.share.estimate(memory, half, Bytes(0), at);
        }
    }

    /// A process executes or exits: what it shared stays with its parent, or with what was forked beside and below it.
    pub(super) fn leave_sharers(&mut self, process: ProcessId, at: BootTime) {
        let table = &mut self.engine.table;
        let Some(leaving) = table.get(process) else { return };
        let left = leaving.share.left_to_others();
        let shares_memory = leaving.memory.shmem >= WORTH_MEASURING;
        let heirs = match heirs(table, leaving) {
            // Shared memory is mapped by processes that executed something, too.
            none if none.is_empty() && shares_memory => mapping(table, leaving),
            heirs => heirs,
        };
        for heir in &heirs {
            let Some(known) = table.get_mut(*heir) else { continue };
            let part = Bytes(known.cost().0 + left.0 / heirs.len() as u64);
            // What it shared with this process alone is its own now, which only a measurement shows.
            let private = known.share.private();
            known.share.estimate(known.memory, part.min(known.memory.charged()), private, at);
        }
    }

    /// The answer to [`ScanRequest::SharedMemory`]. Void when one of them has forked, executed or exited since it began, or
    /// was about to: the kernel unmaps the old memory before it reports either.
    pub(super) fn shares(&mut self, seen: &SharesSeen) {
        let table = &mut self.engine.table;
        let is_void = |share: &Share| {
            table.alive(share.process).is_none_or(|known| {
                let halved = share.memory.charged().0 < known.memory.charged().0 / 2;
                known.share.is_void(seen.began) || (known.forked && halved)
            })
        };
        if seen.shares.iter().any(is_void) {
            return;
        }
        let mut moved = false;
        for share in &seen.shares {
            let Some(known) = table.get_mut(share.process) else { continue };
            let before = known.cost();
            known.share.measured(share.memory, share.proportional, share.private);
            let changed = known.remember(share.memory);
            moved |= changed || known.cost() != before;
        }
        if moved {
            table.bump_generation();
        }
    }

    /// Requests the parts of those that share and have changed.
    pub(super) fn measure_shared(&mut self) {
        let now = self.now;
        let Engine { table, sharing, .. } = &mut *self.engine;
        if !sharing.is_due(table.generation(), now) {
            return;
        }
        let mut due = Vec::new();
        for group in sharers(table) {
            let known = || group.iter().filter_map(|id| table.alive(*id));
            let charged: Bytes = known().map(|process| process.memory.charged()).sum();
            let moved: u64 = known().map(|process| process.share.error(&process.memory)).sum();
            let changed = moved > charged.0 / 20 || known().any(|process| process.share.estimated);
            let hundreds = u32::try_from(group.len().div_ceil(MEASURED_TOGETHER)).unwrap_or(u32::MAX);
            let pause = if changed { MEASURE_AT_MOST } else { MEASURE_AGAIN.saturating_mul(hundreds) };
            let asked = known().map(|process| process.share.asked).min().flatten();
            match asked.map(|asked| asked.plus(pause)) {
                Some(again) if again > now => sharing.at(again),
                _ => {
                    sharing.at(now.plus(pause));
                    due.push(group);
                }
            }
        }
        for group in due {
            for id in &group {
                if let Some(process) = self.engine.table.get_mut(*id) {
                    process.share.asked = Some(now);
                }
            }
            self.effect(Effect::Scan(ScanRequest::SharedMemory(group)));
        }
    }
}

fn parent_memory(table: &Table, parent: ProcessId) -> Memory {
    table.get(parent).map(|parent| parent.memory).unwrap_or_default()
}

/// Living processes that share anonymous memory with this one, the nearest first found.
fn heirs(table: &Table, leaving: &TrackedProcess) -> Vec<ProcessId> {
    let forked = |id: &&ProcessId| table.alive(**id).is_some_and(|child| child.forked && child.id != leaving.id);
    let children = leaving.children.iter().filter(forked).copied();
    let parent = leaving.forked_by.filter(|_| leaving.forked).and_then(|parent| table.get(parent));
    match parent {
        Some(parent) if parent.alive() => children.chain([parent.id]).collect(),
        Some(parent) => children.chain(parent.children.iter().filter(forked).copied()).collect(),
        None => children.collect(),
    }
}

/// Other processes of its session with shared memory.
fn mapping(table: &Table, leaving: &TrackedProcess) -> Vec<ProcessId> {
    let others = table.living().filter(|process| process.session == leaving.session && process.id != leaving.id);
    others.filter(|process| process.memory.shmem >= WORTH_MEASURING).map(|process| process.id).collect()
}

/// The groups of living processes that may share pages: forks of one process that have not executed anything since, and all of a
/// session that hold shared memory.
fn sharers(table: &Table) -> Vec<Vec<ProcessId>> {
    let mut groups: BTreeMap<ProcessId, Vec<ProcessId>> = BTreeMap::new();
    let mut shared: BTreeMap<SessionId, Vec<ProcessId>> = BTreeMap::new();
    let forked = |id: &ProcessId| table.alive(*id).is_some_and(|child| child.forked);
    for process in table.living().filter(|process| may_share(process) || process.children.iter().any(forked)) {
        let origin = origin(table, process);
        groups.entry(origin).or_default().push(process.id);
        if process.memory.shmem >= WORTH_MEASURING {
            shared.entry(process.session).or_default().push(origin);
        }
    }
    // A group with shared memory takes in the others of its session.
    for origins in shared.into_values() {
        let mut origins = origins.into_iter();
        let Some(first) = origins.next() else { continue };
        for other in origins.filter(|other| *other != first) {
            let members = groups.remove(&other).unwrap_or_default();
            groups.entry(first).or_default().extend(members);
        }
    }
    let charged = |group: &[ProcessId]| -> Bytes {
        group.iter().filter_map(|id| table.alive(*id)).map(|process| process.memory.charged()).sum()
    };
    groups.into_values().filter(|group| charged(group) >= WORTH_MEASURING).collect()
}

/// The process whose memory this one began with.
fn origin(table: &Table, process: &TrackedProcess) -> ProcessId {
    let mut origin = process;
    while let Some(parent) = origin.forked_by.filter(|_| origin.forked) {
        match table.get(parent) {
            // An exec since then makes no difference to the others.
            Some(above) => origin = above,
            None => return parent,
        }
    }
    origin.id
}

/// Whether a process may share anonymous or shmem pages with processes that are not in the table, or has an estimated part since
/// the last of them left.
fn may_share(process: &TrackedProcess) -> bool {
    process.memory.shmem >= WORTH_MEASURING || process.forked || process.share.estimated
}
