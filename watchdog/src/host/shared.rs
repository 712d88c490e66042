//! When proportional memory may be measured: it is dear, and grows dearer with the size of the process.
//!
//! Which processes are worth it is the engine's to say. Here is the budget: all measurements together take at most one
//! per cent of one CPU, and none is repeated within five seconds.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::engine::id::{BootTime, ProcessId};

/// A measurement is followed by a pause of this many times its cost.
const PAUSE: u32 = 100;
/// The shortest time between two measurements of one process.
const REST: Duration = Duration::from_secs(5);
/// Most processes that wait; whoever comes later has to be asked for again.
const WAITING_MAX: usize = 1024;

/// Who waits for a measurement, and when the next may be made.
#[derive(Default)]
pub struct SharedSchedule {
    waiting: VecDeque<ProcessId>,
    /// No measurement before this.
    next: BootTime,
    /// Processes that were measured, and when each may be measured again.
    resting: HashMap<ProcessId, BootTime>,
}

impl SharedSchedule {
    /// Asks for a measurement. False when it will not be made: the process waits already, was measured a short while ago,
    /// or too many wait.
    pub fn request(&mut self, now: BootTime, process: ProcessId) -> bool {
        self.resting.retain(|_, until| *until > now);
        if self.waiting.len() >= WAITING_MAX || self.resting.contains_key(&process) || self.waiting.contains(&process) {
            return false;
        }
        self.waiting.push_back(process);
        true
    }

    /// The process to be measured now, if it is time for one. Its measurement is to be reported with
    /// [`measured`](Self::measured), at no cost when the process was gone.
    pub fn next(&mut self, now: BootTime) -> Option<ProcessId> {
        if now < self.next { None } else { self.waiting.pop_front() }
    }

    /// A measurement was made, and took this long.
    pub fn measured(&mut self, now: BootTime, process: ProcessId, cost: Duration) {
        let pause = cost.saturating_mul(PAUSE);
        self.next = now.plus(pause);
        self.resting.insert(process, now.plus(pause.max(REST)));
    }

    /// When [`next`](Self::next) may have something: `None` when nobody waits.
    #[must_use]
    pub fn due(&self) -> Option<BootTime> {
        (!self.waiting.is_empty()).then_some(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::id::{Pid, Ticks};

    fn process(pid: u32) -> ProcessId {
        ProcessId { pid: Pid(pid), start_time: Ticks(1) }
    }

    fn at(millis: u64) -> BootTime {
        BootTime(millis * 1_000_000)
    }

    #[test]
    fn measurements_are_made_in_turn_with_a_pause_of_a_hundred_times_their_cost() {
        let mut schedule = SharedSchedule::default();
        assert!(schedule.request(at(0), process(1)));
        assert!(schedule.request(at(0), process(2)));
        assert_eq!(schedule.next(at(0)), Some(process(1)));
        schedule.measured(at(20), process(1), Duration::from_millis(20));
        assert_eq!(schedule.due(), Some(at(2020)));
        assert_eq!(schedule.next(at(2019)), None);
        assert_eq!(schedule.next(at(2020)), Some(process(2)));
        assert_eq!(schedule.due(), None);
    }

    #[test]
    fn a_process_rests_five_seconds_or_a_hundred_times_its_cost() {
        let mut schedule = SharedSchedule::default();
        schedule.measured(at(0), process(1), Duration::from_millis(1));
        schedule.measured(at(0), process(2), Duration::from_millis(80));
        assert!(!schedule.request(at(4_999), process(1)));
        assert!(schedule.request(at(5_000), process(1)));
        assert!(!schedule.request(at(7_999), process(2)));
        assert!(schedule.request(at(8_000), process(2)));
    }

    #[test]
    fn who_waits_does_not_wait_twice_and_the_queue_is_bounded() {
        let mut schedule = SharedSchedule::default();
        assert!(schedule.request(at(0), process(0)));
        assert!(!schedule.request(at(0), process(0)));
        let taken = (1..3_000).filter(|pid| schedule.request(at(0), process(*pid))).count();
        assert_eq!(taken, WAITING_MAX - 1);
    }

    #[test]
    fn what_was_measured_long_ago_is_forgotten() {
        let mut schedule = SharedSchedule::default();
        for pid in 0..100 {
            schedule.measured(at(0), process(pid), Duration::ZERO);
        }
        assert!(schedule.request(at(6_000), process(1)));
        assert!(schedule.resting.is_empty());
    }
}
