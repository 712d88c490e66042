//! Records terminating signals when they are sent: at the exit the sender may be gone.

use std::sync::Arc;
use std::time::Duration;

use super::memory_snapshot::MemorySnapshot;
use super::signal_note::SignalNote;
use crate::effect::{Effect, ScanRequest};
use crate::process::TrackedProcess;
use crate::{Engine, Step};
use watchdog_api::Relation;
use watchdog_types::signals::{SIGKILL, SIGTERM};
use watchdog_types::{BootTime, Kill, KillSeen, SessionId, Signal};

/// Per process. Repeated requests end with the fatal one.
const MAX_REMEMBERED: usize = 4;
/// A sender that received a terminating signal within this time forwards it.
const FORWARD_WINDOW: Duration = Duration::from_secs(2);

/// Signals within this time share a snapshot of memory.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);
/// From this pressure on, all tasks of the host wait for memory so often that it is short.
const SHORT_FULL_AVG10: f64 = 20.0;
/// A cgroup that holds this share of its limit is short of memory, in per cent.
const CGROUP_SHORT_PERCENT: u64 = 90;

impl Step<'_> {
    pub(crate) fn record_signal(&mut self, signal: &Signal) {
        let Some(target) = self.engine.table.alive(signal.process) else { return };
        let mut note = self.engine.note(target, signal);
        note.short = self.engine.is_short_for(target);
        let cgroup = target.limits.as_deref().and_then(|limits| limits.own_cgroup.clone());
        let kills = matches!(note.signal, SIGTERM | SIGKILL);
        let by_process = !matches!(note.relation, Relation::Kernel | Relation::Itself);
        if kills && by_process && (note.is_for_memory() || note.relation == Relation::Stranger) {
            note.memory = Some(self.current_memory(signal.at));
        }
        if kills && note.relation == Relation::Stranger && self.engine.exits.may_look(signal.at) {
            let kill = Kill { killer: signal.sender, target: signal.process };
            self.effect(Effect::Scan(ScanRequest::Kill { kill, cgroup }));
        }
        if let Some(target) = self.engine.table.get_mut(signal.process) {
            if target.signals.len() == MAX_REMEMBERED {
                target.signals.remove(0);
            }
            target.signals.push(note);
        }
    }

    /// The answer to [`ScanRequest::Kill`]: the target may have exited meanwhile.
    pub(crate) fn kill_seen(&mut self, kill: Kill, seen: KillSeen) {
        let seen = Arc::new(seen);
        let living = self.engine.table.get_mut(kill.target).map(|known| &mut known.signals);
        let dead = self.engine.exits.signals_of(kill.target);
        for note in living.into_iter().chain(dead).flatten().filter(|note| note.sender == kill.killer) {
            note.look = Some(Arc::clone(&seen));
        }
    }

    fn current_memory(&mut self, at: BootTime) -> Arc<MemorySnapshot> {
        match &self.engine.exits.last_snapshot {
            Some((taken, snapshot)) if at.since(*taken) < SNAPSHOT_INTERVAL => Arc::clone(snapshot),
            _ => {
                let snapshot = Arc::new(self.engine.memory_snapshot());
                self.engine.exits.last_snapshot = Some((at, Arc::clone(&snapshot)));
                snapshot
            }
        }
    }
}

impl Engine {
    /// Whether the host or the cgroup of a process is short of memory.
    fn is_short_for(&self, process: &TrackedProcess) -> bool {
        let host = &self.close_watch.host;
        let in_cgroup = self.limit_of(process).is_some_and(|limit| {
            let held = limit.held().max(process.cost());
            limit.max.0 > 0 && held >= limit.max.percent(CGROUP_SHORT_PERCENT)
        });
        host.is_short() || host.pressure_full_avg10.is_some_and(|full| full >= SHORT_FULL_AVG10) || in_cgroup
    }

    fn note(&self, target: &TrackedProcess, signal: &Signal) -> SignalNote {
        let relation = self.relation(target, signal);
        let known = self.table.get(signal.sender);
        let by_process = !matches!(relation, Relation::Kernel | Relation::Itself);
        let asked = |sender: &TrackedProcess| {
            let recent = |note: &&SignalNote| note.delivered && signal.at.since(note.at) <= FORWARD_WINDOW;
            sender.signals.iter().rev().find(recent).map(|note| note.origin.clone().unwrap_or(Box::new(note.clone())))
        };
        SignalNote {
            at: signal.at,
            signal: signal.signal,
            code: signal.code,
            delivered: signal.delivered,
            relation,
            sender: signal.sender,
            comm: signal.sender_comm.clone(),
            uid: signal.sender_uid,
            session: known.map(|sender| sender.session),
            name: known.map(TrackedProcess::label),
            by_its_death: by_process && known.is_some_and(|sender| !sender.alive()),
            by_namespace_end: relation == Relation::Kernel
                && signal.signal == SIGKILL
                && signal.sender != target.id
                && known.is_some_and(|sender| !sender.alive()),
            by_thread_exit: signal.sender_thread_exits && known.is_some_and(TrackedProcess::alive),
            stranger_exits: signal.sender_thread_exits && relation == Relation::Stranger,
            // A handler may clean up, then send itself the same signal.
            origin: known.filter(|_| by_process || relation == Relation::Itself).and_then(asked),
            memory: None,
            short: false,
            look: None,
        }
    }

    fn relation(&self, target: &TrackedProcess, signal: &Signal) -> Relation {
        if signal.code > 0 {
            return Relation::Kernel;
        }
        if signal.sender == target.id {
            return Relation::Itself;
        }
        if self.exits.own_process == Some(signal.sender) {
            return Relation::Watchdog;
        }
        match self.table.get(signal.sender) {
            None => Relation::Stranger,
            Some(sender) if target.forked_by == Some(sender.id) => Relation::Parent,
            Some(sender) if self.outermost(sender.session) == self.outermost(target.session) => Relation::SameTree,
            Some(_) => Relation::OtherTree,
        }
    }

    /// The outermost session around a session.
    fn outermost(&self, session: SessionId) -> SessionId {
        let around = |id: &SessionId| self.sessions.get(*id).and_then(|session| session.parent);
        std::iter::successors(Some(session), around).last().unwrap_or(session)
    }
}
