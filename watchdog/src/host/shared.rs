//! When proportional memory may be measured: it is dear, and grows dearer with the size of the process.
//!
//! Which processes are worth it is the engine's to say. Here is the budget: all measurements together take at most one
//! per cent of one CPU in the long run, and none is repeated within five seconds. What was not spent in the last minute
//! may be spent at once, so that a tree that has just forked is measured as a whole.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::engine::id::{BootTime, ProcessId};

/// A measurement is paid for by this many times its cost.
const PAUSE: u32 = 100;
/// How much time can have been saved up: enough for 600 ms of measurements.
const SAVED_MAX: Duration = Duration::from_secs(60);
/// The shortest time between two measurements of one process.
const REST: Duration = Duration::from_secs(5);
/// Most processes that wait; whoever comes later has to be asked for again.
const WAITING_MAX: usize = 1024;

/// Who waits for a measurement, and when the next may be made.
#[derive(Default)]
pub struct SharedSchedule {
    waiting: VecDeque<ProcessId>,
    /// Up to when measurements are paid for; none is made while that is in the future.
    paid: BootTime,
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
        if now < self.paid { None } else { self.waiting.pop_front() }
    }

    /// A measurement was made, and took this long.
    pub fn measured(&mut self, now: BootTime, process: ProcessId, cost: Duration) {
        let pause = cost.saturating_mul(PAUSE);
        let saved_since = now.minus(SAVED_MAX);
        self.paid = self.paid.max(saved_since).plus(pause);
        self.resting.insert(process, now.plus(pause.max(REST)));
    }

    /// When [`next`](Self::next) may have something: `None` when nobody waits.
    #[must_use]
    pub fn due(&self) -> Option<BootTime> {
        (!self.waiting.is_empty()).then_some(self.paid)
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
    fn what_was_saved_is_spent_at_once_and_then_every_measurement_waits_for_its_pay() {
        let mut schedule = SharedSchedule::default();
        let start = 100_000;
        for pid in 0..40 {
            assert!(schedule.request(at(start), process(pid)));
        }
        let mut made = 0;
        while let Some(process) = schedule.next(at(start)) {
            schedule.measured(at(start), process, Duration::from_millis(20));
            made += 1;
        }
        assert_eq!(made, 31, "a minute of one per cent is thirty times 20 ms, and the last may run over");
        assert_eq!(schedule.due(), Some(at(start + 2_000)));
        assert_eq!(schedule.next(at(start + 1_999)), None);
        assert!(schedule.next(at(start + 2_000)).is_some());
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
