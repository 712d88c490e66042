//! The exits that are kept, and the OOM killer's recent choices.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::death_series::DeathsByRole;
use super::memory_snapshot::MemorySnapshot;
use super::oom_choice::OomChoice;
use super::record::ExitedProcess;
use super::signal_note::SignalNote;
use watchdog_types::{BootTime, ProcessId, SessionId, Uid};

/// Recent exits of any kind that are kept.
const MAX_RECENT: usize = 1_000;
/// Older notable exits that are kept. The user with the most loses the first one, those of running sessions last.
const MAX_KEPT: usize = 2_000;
/// Exits before and after one that are searched for its companions. Bounds the cost when thousands exit at once.
const NEIGHBOURS: usize = 500;
/// Killers inspected in a second: one killer of a whole cgroup serves all its victims.
const LOOKS: u32 = 32;
const LOOKS_INTERVAL: Duration = Duration::from_secs(1);

/// About 400 bytes for each exit.
#[derive(Debug, Default)]
pub(crate) struct ExitTracker {
    /// The daemon itself.
    pub(crate) own_process: Option<ProcessId>,
    /// In the order of the reports.
    pub(super) recent: VecDeque<ExitedProcess>,
    /// The number of recent exits that are reported already: the first ones.
    pub(super) explained: usize,
    pub(super) kept: VecDeque<ExitedProcess>,
    pub(super) choices: VecDeque<OomChoice>,
    pub(super) series: DeathsByRole,
    pub(super) last_snapshot: Option<(BootTime, Arc<MemorySnapshot>)>,
    /// Looks at killers in the current second, and when that began.
    looks: (BootTime, u32),
}

impl ExitTracker {
    pub(super) fn push(&mut self, dead: ExitedProcess) {
        self.recent.push_back(dead);
    }

    /// Sets the name of a victim that the kernel reported without one.
    pub(super) fn set_victim_name(&mut self, choice: u64, comm: &str) {
        let nameless = |dead: &&mut ExitedProcess| dead.oom == Some(choice) && dead.comm.is_empty();
        if let Some(dead) = self.recent.iter_mut().rev().find(nameless) {
            comm.clone_into(&mut dead.comm);
        }
    }

    /// Whether a killer may be inspected now. A flood of kills must not keep the daemon busy.
    pub(super) fn may_look(&mut self, now: BootTime) -> bool {
        let (since, looks) = &mut self.looks;
        if now.since(*since) >= LOOKS_INTERVAL {
            (*since, *looks) = (now, 0);
        }
        *looks += 1;
        *looks <= LOOKS
    }

    /// The signals of a recent exit.
    pub(super) fn signals_of(&mut self, process: ProcessId) -> Option<&mut Vec<SignalNote>> {
        let recent = self.recent.iter_mut().rev().take(NEIGHBOURS);
        recent.into_iter().find(|dead| dead.id == process).map(|dead| &mut dead.signals)
    }

    /// Latest first.
    pub(super) fn all(&self) -> impl Iterator<Item = &ExitedProcess> {
        self.recent.iter().rev().chain(self.kept.iter().rev())
    }

    /// Exits around this one; of an older one, all that are kept.
    pub(super) fn around(&self, dead: &ExitedProcess) -> Box<dyn Iterator<Item = &ExitedProcess> + '_> {
        if self.recent.front().is_none_or(|oldest| dead.heard < oldest.heard) {
            return Box::new(self.all());
        }
        let middle = self.recent.partition_point(|other| other.heard < dead.heard);
        let end = (middle + NEIGHBOURS).min(self.recent.len());
        Box::new(self.recent.range(middle.saturating_sub(NEIGHBOURS)..end))
    }

    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.recent.len() + self.kept.len()
    }

    /// Enforces the limits. `is_open` tells whether a session has running processes.
    pub(super) fn trim(&mut self, is_open: impl Fn(SessionId) -> bool) {
        while self.explained > MAX_RECENT {
            let Some(dead) = self.recent.pop_front() else { break };
            self.explained -= 1;
            if dead.is_notable() {
                self.kept.push_back(dead);
            }
        }
        // After a burst of exits.
        if self.recent.len() < self.recent.capacity() / 4 {
            self.recent.shrink_to(2 * self.recent.len());
        }
        while self.kept.len() > MAX_KEPT {
            let mut held: BTreeMap<Option<Uid>, usize> = BTreeMap::new();
            for dead in &self.kept {
                *held.entry(dead.uid).or_default() += 1;
            }
            let most = held.into_iter().max_by_key(|(_, exits)| *exits).and_then(|(user, _)| user);
            let of_most = |dead: &ExitedProcess| dead.uid == most;
            let of_ended = |dead: &ExitedProcess| of_most(dead) && !dead.session.is_some_and(&is_open);
            let oldest = self.kept.iter().position(of_ended).or_else(|| self.kept.iter().position(of_most));
            self.kept.remove(oldest.unwrap_or(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use watchdog_types::{HostMemory, Pid, Ticks};

    #[test]
    fn flood_displaces_own_exits_only() {
        let mut exits = ExitTracker::default();
        for number in 0..5_000 {
            let uid = Some(Uid(if number < 10 { 1 } else { 2 }));
            let (process, at) = (ProcessId { pid: Pid(number), start_time: Ticks(1) }, BootTime(number.into()));
            exits.push(ExitedProcess::outside_sessions(process, uid, String::new(), at, at, HostMemory::default()));
            exits.explained += 1;
            exits.trim(|_| false);
        }
        let of = |uid| exits.kept.iter().filter(|dead| dead.uid == Some(Uid(uid))).count();
        assert_eq!((of(1), of(2)), (10, MAX_KEPT - 10));
    }
}
