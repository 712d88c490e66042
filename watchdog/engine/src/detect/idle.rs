//! When a process is idle: what a server does without a request, and an agent without a prompt.
//!
//! An idle process may do a limited amount per minute, part of it at once. An excess is carried to the next reading, so
//! that many short readings permit no more than a few long ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Conclusions, Facts};
use crate::effect::{Effect, ScanRequest};
use crate::process::TrackedProcess;
use watchdog_classify as classify;
use watchdog_types::{Activity, BootTime, Bytes, ProcessId};

/// Activity between two readings that still counts as idle.
#[derive(Debug)]
struct IdleLimits {
    per_minute: ActivityAmount,
    /// Besides, however short the time: what is done now and then is done at once.
    at_once: ActivityAmount,
    /// By how much its memory may go up or down.
    memory: Bytes,
}

#[derive(Debug)]
struct ActivityAmount {
    cpu: Duration,
    runs: u64,
    /// Read and written; `None` for no bound.
    bytes: Option<u64>,
}

/// Of most programs. Measured over a minute: MCP servers of node or Python without a client's request take 1 ms and run 2
/// to 8 times, for 60 bytes of wake-ups; with a keep-alive every 15 s no more; with a timer every second 7 ms and 60 times.
/// One request every ten seconds takes 25 ms, 38 runs and 65 KB. The kernel reports CPU time in ticks of 10 ms.
const PROGRAM: IdleLimits = IdleLimits {
    per_minute: ActivityAmount { cpu: Duration::from_millis(30), runs: 65, bytes: Some(4_096) },
    at_once: ActivityAmount { cpu: Duration::from_millis(10), runs: 5, bytes: Some(256) },
    memory: Bytes::from_mib(1),
};
/// Of agents' own programs, which are never still: claude 2.1, waiting for its first prompt, runs 14 to 20 times a second, takes
/// 160 to 400 ms in a minute, most of it at once, and reads and writes its own files. A turn takes seconds.
const AGENT: IdleLimits = IdleLimits {
    per_minute: ActivityAmount { cpu: Duration::from_millis(500), runs: 2_400, bytes: None },
    at_once: ActivityAmount { cpu: Duration::from_millis(250), runs: 500, bytes: None },
    memory: Bytes::from_mib(16),
};

/// How much longer the time between two readings of a steady process may be.
pub(crate) const STEADY_FACTOR: u32 = 5;

#[derive(Clone, Copy, Debug, Default)]
struct Excess {
    cpu: Duration,
    runs: u64,
    bytes: u64,
}

/// How long a process has been idle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleSince {
    pub(crate) seen: Activity,
    memory: Bytes,
    pub(crate) since: BootTime,
    /// What it did beyond the rate, at most [`IdleLimits::at_once`].
    excess: Excess,
    /// It does so little that after [`STEADY_FACTOR`] times as long it would still be idle, without more allowance.
    pub(crate) steady: bool,
    /// The time of its close inspection, after it was idle for long enough.
    pub(crate) inspected: Option<BootTime>,
}

impl IdleSince {
    fn first(seen: Activity, memory: Bytes) -> Self {
        Self { seen, memory, since: seen.at, excess: Excess::default(), steady: false, inspected: None }
    }

    /// Records a reading of a process among at most `most` others. A steady process that was not read for longer than `pace`
    /// may have done no more than in that time: else a longer time would hide what is done at once.
    pub(crate) fn record(
        all: &mut BTreeMap<ProcessId, Self>,
        most: usize,
        seen: Activity,
        process: &TrackedProcess,
        pace: Duration,
    ) {
        let memory = process.memory.charged();
        if let Some(before) = all.get_mut(&seen.process) {
            *before = before.then(seen, memory, IdleLimits::of(process), pace);
        } else if all.len() < most {
            all.insert(seen.process, Self::first(seen, memory));
        }
    }

    /// The state after the next reading.
    fn then(self, seen: Activity, memory: Bytes, limits: &IdleLimits, pace: Duration) -> Self {
        let span = seen.at.since(self.seen.at);
        let counted = if self.steady { span.min(pace) } else { span };
        let moved = memory.0.abs_diff(self.memory.0) > limits.memory.0;
        let Some(did) = self.did(&seen).filter(|_| !moved) else { return Self::first(seen, memory) };
        let excess = self.excess.after(&did, counted, limits);
        if !excess.is_within(&limits.at_once) {
            return Self::first(seen, memory);
        }
        let longer = if span > pace { did } else { did.times(STEADY_FACTOR) };
        let steady = Excess::default().after(&longer, span.min(pace), limits).is_within(&limits.at_once);
        Self { seen, memory, excess, steady, ..self }
    }

    /// What it did since the last reading. `None` if a thread has ended: that takes its count with it, and had to run to end.
    fn did(&self, seen: &Activity) -> Option<Excess> {
        let bytes = seen.bytes.zip(self.seen.bytes).map_or(0, |(now, before)| now.saturating_sub(before));
        Some(Excess {
            cpu: seen.cpu.saturating_sub(self.seen.cpu),
            runs: seen.runs.checked_sub(self.seen.runs)?,
            bytes,
        })
    }
}

impl Excess {
    fn is_within(&self, at_once: &ActivityAmount) -> bool {
        self.cpu <= at_once.cpu && self.runs <= at_once.runs && at_once.bytes.is_none_or(|most| self.bytes <= most)
    }

    fn times(self, factor: u32) -> Self {
        let times = |count: u64| count.saturating_mul(u64::from(factor));
        Self { cpu: self.cpu.saturating_mul(factor), runs: times(self.runs), bytes: times(self.bytes) }
    }

    /// What exceeds the rate after a time in which the process did this.
    fn after(self, did: &Self, span: Duration, limits: &IdleLimits) -> Self {
        let ActivityAmount { cpu, runs, bytes } = &limits.per_minute;
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let in_span = |per_minute: u64| per_minute.saturating_mul(millis) / 60_000;
        let beyond = |before: u64, more: u64, rate: u64| before.saturating_add(more).saturating_sub(in_span(rate));
        Self {
            cpu: (self.cpu + did.cpu).saturating_sub(cpu.mul_f64(span.as_secs_f64() / 60.0)),
            runs: beyond(self.runs, did.runs, *runs),
            bytes: bytes.map_or(0, |rate| beyond(self.bytes, did.bytes, rate)),
        }
    }
}

/// How many processes are read in one survey; the others wait for the next. At 40 µs each, and 10 µs for each further
/// thread, this many node processes cost 0.3 ms of CPU per second; sleepers of one thread 0.1 ms.
const MAX_READINGS: usize = 128;
/// How many processes are remembered at most.
const REMEMBERED: usize = 4_096;

/// How long some processes have been idle.
#[derive(Debug, Default)]
pub(super) struct IdleTracker {
    idle: BTreeMap<ProcessId, IdleSince>,
}

impl IdleTracker {
    /// Requests readings of these, those first that were read longest ago; forgets all others.
    pub(super) fn ask(&mut self, wanted: BTreeSet<ProcessId>, out: &mut Conclusions) {
        let idle = &mut self.idle;
        idle.retain(|process, _| wanted.contains(process));
        let mut order: Vec<(Option<BootTime>, ProcessId)> =
            wanted.into_iter().map(|process| (idle.get(&process).map(|idle| idle.seen.at), process)).collect();
        order.sort_unstable();
        let readings: Vec<ProcessId> = order.into_iter().take(MAX_READINGS).map(|(_, process)| process).collect();
        if !readings.is_empty() {
            out.ask(Effect::Scan(ScanRequest::Activity(readings)));
        }
    }

    /// Takes what processes did that `wants` accepts.
    pub(super) fn read(&mut self, activities: &[Activity], facts: &Facts<'_>, wants: impl Fn(&TrackedProcess) -> bool) {
        for seen in activities.iter().copied() {
            let Some(process) = facts.table.alive(seen.process).filter(|process| wants(process)) else { continue };
            IdleSince::record(&mut self.idle, REMEMBERED, seen, process, Duration::MAX);
        }
    }

    pub(super) fn get(&self, process: ProcessId) -> Option<IdleSince> {
        self.idle.get(&process).copied()
    }

    pub(super) fn contains(&self, process: ProcessId) -> bool {
        self.idle.contains_key(&process)
    }

    pub(super) fn set_inspected(&mut self, process: ProcessId, at: BootTime) {
        if let Some(idle) = self.idle.get_mut(&process) {
            idle.inspected = Some(at);
        }
    }

    pub(super) fn forget(&mut self, process: ProcessId) {
        self.idle.remove(&process);
    }
}

impl IdleLimits {
    /// The activity that counts as idle for this process.
    fn of(process: &TrackedProcess) -> &'static Self {
        let agents = process.is_agent() || classify::lends_tools(&process.image) || classify::serves(&process.image);
        if agents { &AGENT } else { &PROGRAM }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use watchdog_types::{Pid, ProcessId, Ticks};

    const PROCESS: ProcessId = ProcessId { pid: Pid(7), start_time: Ticks(1) };

    fn reading(seconds: u64, cpu_ms: u64, runs: u64, bytes: Option<u64>) -> Activity {
        let at = BootTime(seconds * 1_000_000_000);
        Activity { at, process: PROCESS, cpu: Duration::from_millis(cpu_ms), runs, bytes }
    }

    /// Whether it was idle for a minute in which it did this.
    fn stays_idle(limits: &IdleLimits, cpu_ms: u64, runs: u64, bytes: u64, mib: u64) -> bool {
        let before = IdleSince::first(reading(100, 500, 1_000, Some(9_000)), Bytes::from_mib(50));
        let seen = reading(160, 500 + cpu_ms, 1_000 + runs, Some(9_000 + bytes));
        before.then(seen, Bytes::from_mib(50 + mib), limits, Duration::MAX).since == before.since
    }

    /// As measured over a minute.
    #[rstest]
    #[case::asleep(0, 0, 0, true)]
    #[case::node_server(0, 8, 64, true)]
    #[case::keep_alive_every_fifteen_seconds(10, 4, 400, true)]
    #[case::timer_every_second(10, 61, 0, true)]
    #[case::asked_every_ten_seconds(30, 38, 65_000, false)]
    #[case::asked_once(10, 10, 11_000, false)]
    #[case::garbage_collected(50, 61, 64, false)]
    #[case::busy(60_000, 100, 0, false)]
    fn server_without_requests_is_idle(
        #[case] cpu_ms: u64,
        #[case] runs: u64,
        #[case] bytes: u64,
        #[case] idle_expected: bool,
    ) {
        assert_eq!(stays_idle(&PROGRAM, cpu_ms, runs, bytes, 0), idle_expected);
    }

    #[rstest]
    #[case::claude_mcp_serve(220, 1_214, 95_000, 2, true)]
    #[case::claude_without_a_prompt(400, 1_200, 400_000, 1, true)]
    #[case::a_turn(2_500, 4_000, 2_000_000, 30, false)]
    fn waiting_agent_is_idle(
        #[case] cpu_ms: u64,
        #[case] runs: u64,
        #[case] bytes: u64,
        #[case] mib: u64,
        #[case] idle_expected: bool,
    ) {
        assert_eq!(stays_idle(&AGENT, cpu_ms, runs, bytes, mib), idle_expected);
    }

    /// Readings every second permit no more than readings every minute.
    #[rstest]
    #[case::agent_waits(&AGENT, 5, 20, true)]
    #[case::agent_works(&AGENT, 200, 20, false)]
    #[case::agent_wakes_often(&AGENT, 5, 400, false)]
    #[case::server_with_timer(&PROGRAM, 0, 1, true)]
    #[case::server_asked_every_second(&PROGRAM, 0, 4, false)]
    fn short_readings_permit_no_more(
        #[case] limits: &IdleLimits,
        #[case] cpu_ms: u64,
        #[case] runs: u64,
        #[case] idle_expected: bool,
    ) {
        let first = IdleSince::first(reading(100, 0, 0, None), Bytes(0));
        let after = (1..=120).fold(first, |idle, second| {
            idle.then(reading(100 + second, cpu_ms * second, runs * second, None), Bytes(0), limits, Duration::MAX)
        });
        assert_eq!(after.since == first.since, idle_expected);
    }

    #[test]
    fn changing_memory_is_not_idle() {
        assert!(stays_idle(&PROGRAM, 0, 0, 0, 1));
        assert!(!stays_idle(&PROGRAM, 0, 0, 0, 2));
    }

    #[test]
    fn exited_thread_counts_as_activity() {
        let before = IdleSince::first(reading(100, 500, 1_000, None), Bytes(0));
        assert_ne!(before.then(reading(160, 500, 900, None), Bytes(0), &PROGRAM, Duration::MAX).since, before.since);
    }

    #[test]
    fn agents_tolerate_more_background_activity() {
        let before = IdleSince::first(reading(100, 500, 1_000, Some(0)), Bytes(0));
        let stays_idle = |seen, limits| before.then(seen, Bytes(0), limits, Duration::MAX).since == before.since;
        assert!(stays_idle(reading(101, 510, 1_004, Some(200)), &PROGRAM));
        assert!(stays_idle(reading(105, 700, 1_400, Some(50_000)), &AGENT));
        assert!(!stays_idle(reading(105, 700, 1_400, Some(50_000)), &PROGRAM));
    }
}
