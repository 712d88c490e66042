//! The ceilings of each process: its cgroup's, and that of its heap.
//!
//! What stands in argv is known at the exec. For the rest somebody has to look at /proc, in some dozens of system calls: so only
//! at processes that have lived for a moment (most tools have not), at agents and node programs at once, and at agents and
//! large processes again now and then, since a process may be moved to another cgroup, and a cgroup's limit may be changed.

use std::collections::VecDeque;
use std::time::Duration;

use super::classify::Program;
use super::effect::Effect;
use super::id::{BootTime, Bytes, ProcessId};
use super::input::Limits;
use super::{Engine, Step, v8};

/// A process that lives this long is worth a look.
const WORTH_A_LOOK: Duration = Duration::from_millis(500);
/// One that costs this much is looked at again as often as agents are.
const LARGE: Bytes = Bytes::from_mib(64);
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Who is to be looked at, and what is known of that.
#[derive(Debug, Default)]
pub(super) struct Ceilings {
    /// Who is new, or runs something new, and since when; the oldest first.
    waiting: VecDeque<(BootTime, ProcessId)>,
}

impl Step<'_> {
    /// A process is new, or runs another program than before.
    pub(super) fn limits_unknown(&mut self, process: ProcessId) {
        let memory = self.engine.close_watch.host.total;
        let Some(known) = self.engine.table.get_mut(process) else { return };
        let v8_heap = if known.forked { None } else { v8::stated_in_argv(&known.image, memory) };
        let cgroup = known.limits.take().and_then(|limits| limits.cgroup);
        known.limits = (v8_heap.is_some() || cgroup.is_some()).then(|| Box::new(Limits { cgroup, v8_heap }));
        known.limits_asked = None;
        if !known.forked && (known.is_agent() || Program::of(&known.image).runs_on_node()) {
            self.find_limits(process);
        } else {
            self.engine.ceilings.waiting.push_back((self.now, process));
        }
    }

    /// The answer to [`Effect::FindLimits`].
    pub(super) fn limits(&mut self, process: ProcessId, found: Limits) {
        let total = self.engine.close_watch.host.total;
        let Some(known) = self.engine.table.get_mut(process).filter(|known| known.alive()) else { return };
        let memory = found.cgroup.as_ref().map_or(total, |cgroup| cgroup.max.min(total));
        // node takes its arguments after its environment.
        let stated = if known.forked { None } else { v8::stated_in_argv(&known.image, memory) };
        known.limits = Some(Box::new(Limits { v8_heap: stated.or(found.v8_heap), ..found }));
    }

    /// Asks for the limits of those who have lived for a moment, and once more for those that are large.
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
        if large.is_due(table.moves(), now) {
            for process in table.living().filter(|process| process.is_agent() || process.cost() >= LARGE) {
                let Some(asked) = process.limits_asked else { continue };
                let again = asked.plus(LOOK_AGAIN);
                if again <= now {
                    due.push(process.id);
                }
                large.at(if again <= now { now.plus(LOOK_AGAIN) } else { again });
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
            self.effect(Effect::FindLimits(process));
        }
    }
}
