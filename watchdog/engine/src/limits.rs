//! The ceilings of each process: its cgroup's, and that of its heap.
//!
//! Limits in argv are known at the exec. The rest takes some dozens of system calls on /proc. So agents and node programs
//! are inspected at once, and other processes after a moment, which most tools do not reach. Agents and large processes
//! are inspected again from time to time: a process may move to another cgroup, and a cgroup's limit may change.

use std::collections::VecDeque;
use std::time::Duration;

use super::detect::TableEvent;
use super::effect::Effect;
use super::{Engine, Step};
use watchdog_classify::Program;
use watchdog_classify::v8;
use watchdog_types::{BootTime, Bytes, Limits, ProcessId};

/// A process that lives this long is inspected.
const WORTH_A_LOOK: Duration = Duration::from_millis(500);
/// A process with this much memory is inspected as often as agents are.
const LARGE: Bytes = Bytes::from_mib(64);
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// A young process is inspected again when its age has doubled, but not before this: it may be moved to a cgroup.
const LOOK_AGAIN_YOUNG: Duration = Duration::from_secs(2);

/// The processes to inspect, and the known limits.
#[derive(Debug, Default)]
pub(super) struct ProgramCeilings {
    /// Processes that are new or run a new program, and since when; the oldest first.
    waiting: VecDeque<(BootTime, ProcessId)>,
}

impl Step<'_> {
    /// A process is new, or runs another program than before.
    pub(super) fn limits_unknown(&mut self, process: ProcessId) {
        let memory = self.engine.close_watch.host.total;
        let Some(known) = self.engine.table.get_mut(process) else { return };
        let v8_heap = if known.forked { None } else { v8::stated_in_argv(&known.image, memory) };
        let before = known.limits.take().map(|limits| *limits).unwrap_or_default();
        let Limits { cgroup, own_cgroup, .. } = before;
        let known_yet = v8_heap.is_some() || cgroup.is_some() || own_cgroup.is_some();
        known.limits = known_yet.then(|| Box::new(Limits { cgroup, own_cgroup, v8_heap, ..Limits::default() }));
        known.limits_asked = None;
        if !known.forked && (known.is_agent() || Program::of(&known.image).runs_on_node()) {
            self.find_limits(process);
        } else {
            self.engine.ceilings.waiting.push_back((self.now, process));
        }
    }

    /// The answer to [`Effect::ReadProcessLimits`].
    pub(super) fn limits(&mut self, process: ProcessId, found: Limits) {
        self.cgroup_limit_left(process, &found);
        let total = self.engine.close_watch.host.total;
        let Some(known) = self.engine.table.get_mut(process).filter(|known| known.alive()) else { return };
        let memory = found.cgroup.as_ref().map_or(total, |cgroup| cgroup.max.min(total));
        // node takes its arguments after its environment.
        let stated = if known.forked { None } else { v8::stated_in_argv(&known.image, memory) };
        let stated = stated.or(found.v8_heap);
        let of_node = !known.forked && Program::of(&known.image).runs_on_node();
        let default = if of_node { v8::default_heap(found.node_major, memory) } else { None };
        let v8_default = stated.is_none() && default.is_some();
        known.oom_score_adj = found.oom_score_adj.or(known.oom_score_adj);
        known.limits = Some(Box::new(Limits { v8_heap: stated.or(default), v8_default, ..found }));
        self.detect(TableEvent::LimitsRead(process));
    }

    /// Requests the limits of processes that have lived for a moment, and again those of large ones.
    pub(super) fn tick_limits(&mut self) {
        let now = self.now;
        let mut due = Vec::new();
        while let Some((since, process)) = self.engine.ceilings.waiting.front().copied() {
            if now.since(since) < WORTH_A_LOOK {
                break;
            }
            self.engine.ceilings.waiting.pop_front();
            if self.engine.table.alive(process).is_some_and(|known| known.limits_asked.is_none()) {
                due.push(process);
            }
        }
        let Engine { table, large, .. } = &mut *self.engine;
        if large.is_due(table.generation(), now) {
            for process in table.living().filter(|process| process.is_agent() || process.cost() >= LARGE) {
                let Some(asked) = process.limits_asked else { continue };
                let age = now.since(BootTime::from(process.id.start_time));
                let again = asked.plus((age / 2).clamp(LOOK_AGAIN_YOUNG, LOOK_AGAIN));
                if again <= now {
                    due.push(process.id);
                }
                large.at(if again <= now { now.plus(LOOK_AGAIN_YOUNG) } else { again });
            }
        }
        // One that forked and then executed something waits twice.
        due.sort_unstable();
        due.dedup();
        due.into_iter().for_each(|process| self.find_limits(process));
    }

    fn find_limits(&mut self, process: ProcessId) {
        if let Some(known) = self.engine.table.get_mut(process) {
            known.limits_asked = Some(self.now);
            self.effect(Effect::ReadProcessLimits(process));
        }
    }
}
