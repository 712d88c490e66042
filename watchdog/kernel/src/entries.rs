//! Entries of the map of tracked processes: insert, change and remove.

use std::collections::HashSet;

use aya::maps::MapError;
use procfs::ProcError;
use watchdog_common::{LineageFlags, Tracked, same_start};

use super::decode;
use super::error::KernelError;
use super::liveness::{Liveness, start_of, state_of};
use super::maps::{bytes_of, is_errno, is_missing, reading, update, writing};
use super::tracer::Tracer;
use watchdog_types::{Lineage, ProcessId};

/// A tracked process, as the kernel's map has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackedEntry {
    pub process: ProcessId,
    pub lineage: Lineage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackOutcome {
    /// In the map; its exit will be reported.
    Alive,
    /// Exiting, or a zombie: its exit may have happened before, and then none is reported.
    Exiting,
    /// There is no such process.
    NotFound,
}

impl Tracer {
    /// Inserts a process into the map, or changes the lineage of one that is there. What the kernel has recorded stays:
    /// its exact start, its peak before the last exec, and an exec that either side has seen. So does the
    /// [limited](Self::limit_session) session that counts it, unless its new root's session has a limit itself: an inner session
    /// is counted with the outer one, without interruption.
    ///
    /// # Errors
    /// When the map, or the user's share of it, is full, or cannot be read or written.
    pub fn track(&mut self, process: ProcessId, lineage: &Lineage) -> Result<TrackOutcome, KernelError> {
        if let Some(placed) = self.change_entry(process, lineage)? {
            return Ok(placed);
        }
        if state_of(process)?.is_none() {
            return Ok(TrackOutcome::NotFound);
        }
        let Some(uid) = self.user_of(process, lineage)? else { return Ok(TrackOutcome::NotFound) };
        if !self.users.admits(uid)? {
            return Err(KernelError::ShareFull(process));
        }
        let entry =
            Tracked { lineage: to_kernel(lineage), start: start_of(process), inherited_peak: 0, counted: 0, uid };
        match self.maps.tracked.insert(process.pid.0, bytes_of(&entry), update::NO_EXIST) {
            Ok(()) => self.users.charge(uid, 1)?,
            // The kernel was first: the process called exec as a possible agent.
            Err(error) if is_errno(&error, libc::EEXIST) => {
                if let Some(placed) = self.change_entry(process, lineage)? {
                    return Ok(placed);
                }
                // The present entry belongs to an earlier process with this pid.
                if let Some(earlier) = self.entry_at(process.pid.0)? {
                    self.remove(process.pid.0, &earlier)?;
                }
                self.maps.tracked.insert(process.pid.0, bytes_of(&entry), update::NO_EXIST).map_err(writing)?;
                self.users.charge(uid, 1)?;
            }
            Err(error) if is_errno(&error, libc::E2BIG) => return Err(KernelError::Full(process)),
            Err(error) => return Err(writing(error)),
        }
        let placed = self.check_alive(process)?;
        self.count_in_session(process, entry.counted, lineage)?;
        Ok(placed)
    }

    /// Removes a process from the map. An entry of another process with this pid stays.
    pub fn untrack(&mut self, process: ProcessId) -> Result<(), KernelError> {
        let Some(entry) = self.entry(process)? else { return Ok(()) };
        if entry.counted != 0 {
            // Moved into a new session that is counted nowhere, it leaves its earlier count.
            let alone =
                Lineage { root: process, parent: None, depth: 0, provisional: false, forked: false, witness: false };
            if self.rewrite(process, &alone)?.is_some() {
                self.count_nowhere(process)?;
            }
        }
        match self.entry(process)? {
            Some(entry) => self.remove(process.pid.0, &entry),
            None => Ok(()),
        }
    }

    /// Removes an entry and takes it off its counts.
    fn remove(&mut self, pid: u32, entry: &Tracked) -> Result<(), KernelError> {
        match self.maps.tracked.remove(&pid) {
            Ok(()) => {
                self.users.charge(entry.uid, -1)?;
                // No program will see the exit.
                if entry.counted == 0 { Ok(()) } else { self.correct_count(entry.counted) }
            }
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(writing(error)),
        }
    }

    /// All entries, in any order. Cost: some 2 µs each.
    pub fn entries(&self) -> Result<Vec<TrackedEntry>, KernelError> {
        Ok(self.contents()?.iter().map(TrackedEntry::from).collect())
    }

    /// Zombies: processes that were tracked until they exited, and that the kernel has not freed.
    pub fn zombies(&self) -> Result<Vec<ProcessId>, KernelError> {
        let of = |pair: Result<(u32, u64), MapError>| pair.map(|(tgid, start)| ProcessId::from_kernel(tgid, start));
        self.maps.dead.iter().map(|pair| of(pair).map_err(reading)).collect()
    }

    pub(super) fn contents(&self) -> Result<Vec<(u32, Tracked)>, KernelError> {
        let mut seen = HashSet::new();
        let mut entries = Vec::new();
        for pair in self.maps.tracked.iter() {
            let (tgid, value) = pair.map_err(reading)?;
            // The kernel starts over when the current key is removed meanwhile.
            if !seen.insert(tgid) {
                continue;
            }
            entries.push((tgid, zerocopy::transmute!(value)));
        }
        Ok(entries)
    }

    /// The number under which a process is counted; 0 for none, and when it is not in the map.
    pub(super) fn counted_under(&self, process: ProcessId) -> Result<u32, KernelError> {
        Ok(self.entry(process)?.map_or(0, |entry| entry.counted))
    }

    /// The user to charge for a new entry; `None` when there is no such process.
    fn user_of(&self, process: ProcessId, lineage: &Lineage) -> Result<Option<u32>, KernelError> {
        if process != lineage.root
            && let Some(root) = self.entry(lineage.root)?
        {
            return Ok(Some(root.uid));
        }
        match procfs::process::Process::new(process.pid.0.cast_signed()).and_then(|found| found.status()) {
            Ok(status) => Ok(Some(status.ruid)),
            Err(ProcError::NotFound(_)) => Ok(None),
            Err(source) => Err(KernelError::State(process, source)),
        }
    }

    pub(super) fn entry(&self, process: ProcessId) -> Result<Option<Tracked>, KernelError> {
        Ok(self.entry_at(process.pid.0)?.filter(|entry| same_start(entry.start, start_of(process))))
    }

    /// The entry of any process with this pid.
    fn entry_at(&self, pid: u32) -> Result<Option<Tracked>, KernelError> {
        match self.maps.tracked.get(&pid, 0) {
            Ok(value) => Ok(Some(zerocopy::transmute!(value))),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(reading(error)),
        }
    }

    /// Changes the entry of a process; `None` when it has none.
    pub(super) fn change_entry(
        &mut self,
        process: ProcessId,
        lineage: &Lineage,
    ) -> Result<Option<TrackOutcome>, KernelError> {
        let Some(counted) = self.rewrite(process, lineage)? else { return Ok(None) };
        let placed = self.check_alive(process)?;
        self.count_in_session(process, counted, lineage)?;
        Ok(Some(placed))
    }

    /// Writes another lineage into the entry of a process, and returns the number under which it is counted; `None`
    /// when it has no entry.
    fn rewrite(&mut self, process: ProcessId, lineage: &Lineage) -> Result<Option<u32>, KernelError> {
        let Some(mut entry) = self.entry(process)? else { return Ok(None) };
        let recorded = entry.lineage;
        entry.lineage = to_kernel(lineage);
        // An exec that either side has seen stays seen: the kernel may have skipped its program.
        entry.lineage.flags &= recorded.flags | !LineageFlags::FORKED;
        // Starts that the kernel knows to the nanosecond stay so.
        if recorded.parent == entry.lineage.parent && same_start(recorded.parent_start, entry.lineage.parent_start) {
            entry.lineage.parent_start = recorded.parent_start;
        }
        match self.maps.tracked.insert(process.pid.0, bytes_of(&entry), update::EXIST) {
            Ok(()) => Ok(Some(entry.counted)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(writing(error)),
        }
    }

    /// Checks a process after its entry was written: it may have exited meanwhile.
    pub(super) fn check_alive(&mut self, process: ProcessId) -> Result<TrackOutcome, KernelError> {
        match state_of(process)? {
            None => self.untrack(process).map(|()| TrackOutcome::NotFound),
            Some(Liveness::Alive) => Ok(TrackOutcome::Alive),
            Some(Liveness::Exiting) => Ok(TrackOutcome::Exiting),
            Some(Liveness::Zombie) => {
                // No program will record it as a zombie.
                if let Some(entry) = self.entry(process)?
                    && entry.lineage.flags & LineageFlags::WITNESS == 0
                {
                    self.maps.dead.insert(process.pid.0, entry.start, 0).map_err(writing)?;
                }
                self.untrack(process).map(|()| TrackOutcome::Exiting)
            }
        }
    }
}

impl From<&(u32, Tracked)> for TrackedEntry {
    fn from((tgid, tracked): &(u32, Tracked)) -> Self {
        Self { process: ProcessId::from_kernel(*tgid, tracked.start), lineage: decode::lineage(&tracked.lineage) }
    }
}

fn to_kernel(lineage: &Lineage) -> watchdog_common::RawLineage {
    let Lineage { root, parent, depth, provisional, forked, witness } = *lineage;
    let flag = |on: bool, bit| if on { bit } else { 0 };
    watchdog_common::RawLineage {
        root_start: start_of(root),
        parent_start: parent.map_or(0, start_of),
        root: root.pid.0,
        parent: parent.map_or(0, |parent| parent.pid.0),
        depth,
        flags: flag(provisional, LineageFlags::PROVISIONAL)
            | flag(forked, LineageFlags::FORKED)
            | flag(witness, LineageFlags::WITNESS),
    }
}
