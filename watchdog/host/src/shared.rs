//! Budget for measurements of proportional memory, whose cost grows with the size of the process.
//!
//! The engine selects groups of processes that may share pages; each group is measured in one go. All measurements together take
//! at most 1 % of one CPU in the long run, and none is repeated within 5 s. What was not spent in the last minute may be spent at
//! once, so that a tree that has just forked is measured as a whole.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use watchdog_types::{BootTime, ProcessId};

/// A measurement is followed by a pause of this many times its cost.
const PAUSE: u32 = 100;
/// Unused time that is saved: enough for 600 ms of measurements.
const SAVED_MAX: Duration = Duration::from_secs(60);
/// Shortest time between two measurements of one process.
const REST: Duration = Duration::from_secs(5);
/// Queued groups; further requests are rejected.
const WAITING_MAX: usize = 1024;

/// Queue of measurements, and the time of the next.
#[derive(Default)]
pub struct SharedSchedule {
    waiting: VecDeque<Vec<ProcessId>>,
    /// End of the pause after the last measurement.
    paid: BootTime,
    /// When each measured process may be measured again.
    resting: HashMap<ProcessId, BootTime>,
}

impl SharedSchedule {
    /// Requests a measurement. False when it is rejected: a process of the group is queued already or was measured recently, or
    /// the queue is full.
    pub fn request(&mut self, now: BootTime, group: Vec<ProcessId>) -> bool {
        self.resting.retain(|_, until| *until > now);
        let is_queued = |process: &ProcessId| self.waiting.iter().any(|group| group.contains(process));
        let rests = |process: &ProcessId| self.resting.contains_key(process);
        if self.waiting.len() >= WAITING_MAX || group.iter().any(|process| rests(process) || is_queued(process)) {
            return false;
        }
        self.waiting.push_back(group);
        true
    }

    /// The group to measure now, if one is due. Report the measurement with [`measured`](Self::measured), with zero cost if all
    /// have exited.
    pub fn next(&mut self, now: BootTime) -> Option<Vec<ProcessId>> {
        if now < self.paid { None } else { self.waiting.pop_front() }
    }

    /// Reports a measurement and its cost.
    pub fn measured(&mut self, now: BootTime, group: &[ProcessId], cost: Duration) {
        let pause = cost.saturating_mul(PAUSE);
        let saved_since = now.minus(SAVED_MAX);
        self.paid = self.paid.max(saved_since).plus(pause);
        let until = now.plus(pause.max(REST));
        self.resting.extend(group.iter().map(|process| (*process, until)));
    }

    /// When [`next`](Self::next) may return a process; `None` when the queue is empty.
    #[must_use]
    pub fn due(&self) -> Option<BootTime> {
        (!self.waiting.is_empty()).then_some(self.paid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use watchdog_types::{Pid, Ticks};

    fn process(pid: u32) -> ProcessId {
        ProcessId { pid: Pid(pid), start_time: Ticks(1) }
    }

    fn at(millis: u64) -> BootTime {
        BootTime(millis * 1_000_000)
    }

    #[test]
    fn saved_budget_allows_burst() {
        let mut schedule = SharedSchedule::default();
        let start = 100_000;
        for pid in 0..40 {
            assert!(schedule.request(at(start), vec![process(pid)]));
        }
        let mut made = 0;
        while let Some(group) = schedule.next(at(start)) {
            schedule.measured(at(start), &group, Duration::from_millis(20));
            made += 1;
        }
        assert_eq!(made, 31, "1 % of a minute is thirty times 20 ms, and the last may exceed it");
        assert_eq!(schedule.due(), Some(at(start + 2_000)));
        assert_eq!(schedule.next(at(start + 1_999)), None);
        assert!(schedule.next(at(start + 2_000)).is_some());
    }

    #[test]
    fn measured_process_rests() {
        let mut schedule = SharedSchedule::default();
        schedule.measured(at(0), &[process(1)], Duration::from_millis(1));
        schedule.measured(at(0), &[process(2)], Duration::from_millis(80));
        assert!(!schedule.request(at(4_999), vec![process(1)]));
        assert!(schedule.request(at(5_000), vec![process(1)]));
        assert!(!schedule.request(at(7_999), vec![process(2)]));
        assert!(schedule.request(at(8_000), vec![process(2)]));
    }

    #[test]
    fn queue_is_unique_and_bounded() {
        let mut schedule = SharedSchedule::default();
        assert!(schedule.request(at(0), vec![process(0)]));
        assert!(!schedule.request(at(0), vec![process(0)]));
        let taken = (1..3_000).filter(|pid| schedule.request(at(0), vec![process(*pid)])).count();
        assert_eq!(taken, WAITING_MAX - 1);
    }

    #[test]
    fn group_rests_with_each_member() {
        let mut schedule = SharedSchedule::default();
        schedule.measured(at(0), &[process(1), process(2)], Duration::from_millis(1));
        assert!(!schedule.request(at(100), vec![process(2), process(3)]));
        assert!(schedule.request(at(100), vec![process(3), process(4)]));
        assert!(!schedule.request(at(100), vec![process(4)]), "queued");
    }

    #[test]
    fn old_measurements_are_forgotten() {
        let mut schedule = SharedSchedule::default();
        for pid in 0..100 {
            schedule.measured(at(0), &[process(pid)], Duration::ZERO);
        }
        assert!(schedule.request(at(6_000), vec![process(1)]));
        assert!(schedule.resting.is_empty());
    }
}
