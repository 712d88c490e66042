//! OOM kills: where memory ran out, and what used it at that moment.
//!
//! The kernel reports the victim and the process whose allocation failed. Neither need be the cause, so the memory of every
//! session is recorded. The counters of the cgroups above the victim tell where memory ran out. If a cgroup is already gone (a
//! scope disappears with its last process), its known limit and the host's memory decide.

use crate::effect::{Effect, ScanRequest};
use crate::process::TrackedProcess;
use crate::{Engine, Step};
use watchdog_types::{Oom, OomSeen, ProcessId, Ticks};

use super::oom_choice::OomChoice;
use super::record::ExitedProcess;

const MAX_REMEMBERED: usize = 128;

impl Step<'_> {
    /// `process` is the victim if it is tracked.
    pub(crate) fn record_oom(&mut self, oom: &Oom, process: Option<ProcessId>) {
        let number = self.engine.oom_kills;
        let choice = self.engine.choice(number, oom, process);
        let others = choice.memory.large_pids().collect();
        let cgroup = choice.limit.as_ref().map(|limit| limit.path.clone());
        if choice.process.is_none() {
            let id = oom.process.unwrap_or(ProcessId { pid: oom.pid, start_time: Ticks(0) });
            let mut dead =
                ExitedProcess::outside_sessions(id, oom.uid, oom.comm.clone(), oom.at, self.now, choice.host);
            dead.oom = Some(number);
            self.engine.exits.push(dead);
        }
        let choices = &mut self.engine.exits.choices;
        if choices.len() == MAX_REMEMBERED {
            choices.pop_front();
        }
        choices.push_back(choice);
        self.effect(Effect::Scan(ScanRequest::Oom { number, victim: oom.pid, cgroup, others }));
    }

    pub(crate) fn oom_seen(&mut self, seen: OomSeen) {
        if let Some(comm) = seen.comm.clone() {
            self.engine.exits.set_victim_name(seen.number, &comm);
        }
        if let Some(choice) = self.engine.exits.choices.iter_mut().find(|choice| choice.number == seen.number) {
            choice.seen = Some(seen);
        }
    }
}

impl Engine {
    fn choice(&self, number: u64, oom: &Oom, process: Option<ProcessId>) -> OomChoice {
        let victim = process.and_then(|process| self.table.get(process));
        let trigger = self.table.by_pid(oom.trigger);
        OomChoice {
            number,
            at: oom.at,
            pid: oom.pid,
            process: victim.map(|victim| victim.id),
            trigger: oom.trigger,
            trigger_comm: trigger.map(|trigger| trigger.comm.clone()),
            host: self.close_watch.host,
            limit: victim.and_then(|victim| self.limit_of(victim)).cloned(),
            victim: (victim.map(|victim| victim.session), victim.map(TrackedProcess::cost).unwrap_or_default()),
            memory: self.memory_snapshot(),
            seen: None,
        }
    }
}
