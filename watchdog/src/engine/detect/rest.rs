//! When a process is at rest: what a server does without a request, and an agent without a word.

use std::time::Duration;

use crate::engine::classify;
use crate::engine::id::{BootTime, Bytes};
use crate::engine::input::Activity;
use crate::engine::process::Process;

/// What a process may do between two looks and be at rest.
#[derive(Debug)]
pub(super) struct Rest {
    per_minute: Doing,
    /// Besides, however short the time: what is done now and then is done at once.
    at_once: Doing,
    /// By how much its memory may go up or down.
    memory: Bytes,
}

#[derive(Debug)]
struct Doing {
    cpu: Duration,
    runs: u64,
    /// Read and written; `None` for no bound.
    bytes: Option<u64>,
}

/// Of most programs. Measured over a minute: MCP servers of node or Python without a client's request take 1 ms and run 2
/// to 8 times, for 60 bytes of wake-ups; with a keep-alive every 15 s no more; with a timer every second 7 ms and 60 times.
/// One request every ten seconds takes 25 ms, 38 runs and 65 KB. CPU time is told in ticks of 10 ms.
const PROGRAM: Rest = Rest {
    per_minute: Doing { cpu: Duration::from_millis(30), runs: 65, bytes: Some(4_096) },
    at_once: Doing { cpu: Duration::from_millis(10), runs: 5, bytes: Some(256) },
    memory: Bytes::from_mib(1),
};
/// Of agents' own programs, which never rest: claude 2.1, waiting for its first word, runs 14 to 20 times a second, takes
/// 160 to 400 ms in a minute, most of it at once, and reads and writes its own files. A turn takes seconds.
const AGENT: Rest = Rest {
    per_minute: Doing { cpu: Duration::from_millis(500), runs: 2_400, bytes: None },
    at_once: Doing { cpu: Duration::from_millis(250), runs: 500, bytes: None },
    memory: Bytes::from_mib(16),
};

/// How long a process has been at rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quiet {
    pub(super) seen: Activity,
    memory: Bytes,
    pub(super) since: BootTime,
    /// When it was looked at closely, after it had been at rest for long enough.
    pub(super) inspected: Option<BootTime>,
}

impl Quiet {
    pub(super) fn first(seen: Activity, memory: Bytes) -> Self {
        Self { seen, memory, since: seen.at, inspected: None }
    }

    /// The process at the next look.
    pub(super) fn then(self, seen: Activity, memory: Bytes, rest: &Rest) -> Self {
        let span = seen.at.since(self.seen.at);
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let Rest { per_minute, at_once, memory: sway } = rest;
        let in_span = |per_minute: u64| per_minute.saturating_mul(millis) / 60_000;
        let cpu = at_once.cpu + per_minute.cpu.mul_f64(span.as_secs_f64() / 60.0);
        let runs = at_once.runs.saturating_add(in_span(per_minute.runs));
        let bytes = at_once.bytes.zip(per_minute.bytes).map(|(once, minute)| once.saturating_add(in_span(minute)));
        let moved = seen.bytes.zip(self.seen.bytes).map(|(now, before)| now.saturating_sub(before));
        // A thread that has ended takes its count with it, and had to run to end.
        let at_rest = seen.cpu.saturating_sub(self.seen.cpu) <= cpu
            && seen.runs.checked_sub(self.seen.runs).is_some_and(|more| more <= runs)
            && moved.zip(bytes).is_none_or(|(moved, bound)| moved <= bound)
            && memory.0.abs_diff(self.memory.0) <= sway.0;
        if at_rest { Self { seen, memory, ..self } } else { Self::first(seen, memory) }
    }
}

impl Rest {
    /// What is rest for this process.
    pub(super) fn of(process: &Process) -> &'static Self {
        let agents = process.is_agent() || classify::lends_tools(&process.image) || classify::serves(&process.image);
        if agents { &AGENT } else { &PROGRAM }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::engine::id::{Pid, ProcessId, Ticks};

    const PROCESS: ProcessId = ProcessId { pid: Pid(7), start_time: Ticks(1) };

    fn look(seconds: u64, cpu_ms: u64, runs: u64, bytes: Option<u64>) -> Activity {
        let at = BootTime(seconds * 1_000_000_000);
        Activity { at, process: PROCESS, cpu: Duration::from_millis(cpu_ms), runs, bytes }
    }

    /// Whether it was at rest for a minute in which it did this.
    fn rests(rest: &Rest, cpu_ms: u64, runs: u64, bytes: u64, mib: u64) -> bool {
        let before = Quiet::first(look(100, 500, 1_000, Some(9_000)), Bytes::from_mib(50));
        let seen = look(160, 500 + cpu_ms, 1_000 + runs, Some(9_000 + bytes));
        before.then(seen, Bytes::from_mib(50 + mib), rest).since == before.since
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
    fn a_server_rests_when_nobody_asks(
        #[case] cpu_ms: u64,
        #[case] runs: u64,
        #[case] bytes: u64,
        #[case] at_rest: bool,
    ) {
        assert_eq!(rests(&PROGRAM, cpu_ms, runs, bytes, 0), at_rest);
    }

    #[rstest]
    #[case::claude_mcp_serve(220, 1_214, 95_000, 2, true)]
    #[case::claude_without_a_prompt(400, 1_200, 400_000, 1, true)]
    #[case::a_turn(2_500, 4_000, 2_000_000, 30, false)]
    fn an_agent_rests_while_it_waits(
        #[case] cpu_ms: u64,
        #[case] runs: u64,
        #[case] bytes: u64,
        #[case] mib: u64,
        #[case] at_rest: bool,
    ) {
        assert_eq!(rests(&AGENT, cpu_ms, runs, bytes, mib), at_rest);
    }

    #[test]
    fn memory_that_moves_is_no_rest() {
        assert!(rests(&PROGRAM, 0, 0, 0, 1));
        assert!(!rests(&PROGRAM, 0, 0, 0, 2));
    }

    #[test]
    fn a_thread_that_ended_ran() {
        let before = Quiet::first(look(100, 500, 1_000, None), Bytes(0));
        assert_ne!(before.then(look(160, 500, 900, None), Bytes(0), &PROGRAM).since, before.since);
    }

    #[test]
    fn what_is_done_now_and_then_is_done_at_once() {
        let before = Quiet::first(look(100, 500, 1_000, Some(0)), Bytes(0));
        let rests = |seen, rest| before.then(seen, Bytes(0), rest).since == before.since;
        assert!(rests(look(101, 510, 1_004, Some(200)), &PROGRAM));
        assert!(rests(look(105, 700, 1_400, Some(50_000)), &AGENT));
        assert!(!rests(look(105, 700, 1_400, Some(50_000)), &PROGRAM));
    }
}
