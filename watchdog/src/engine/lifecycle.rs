//! Fork, exec, exit, and what else the kernel tells of a process: the table as events move it.

use std::sync::Arc;
use std::time::Duration;

use super::Step;
use super::deaths::Trail;
use super::effect::{Effect, Happening};
use super::gate::GateRecord;
use super::id::{BootTime, Bytes, Pid, ProcessId};
use super::input::{Exec, Exit, ExitStatus, Fork, Image, Inspection, Memory, Oom, Signal};
use super::membership::Newcomer;
use super::process::{Launcher, Process, Shared};
use crate::api::ProcessKind;
use crate::signals::SIGHUP;

/// An agent that starts a helper is looked at this many times at once, and then this often: some start thousands.
const FIRST_LOOKS: u32 = 8;
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The event of an exit is in the ring by the time that /proc shows it, and is read at once.
const EXIT_WITHIN: Duration = Duration::from_millis(200);

impl Step<'_> {
    pub(super) fn fork(&mut self, fork: Fork) {
        let Fork { at, process, lineage, uid, comm } = fork;
        if lineage.witness {
            return;
        }
        if self.engine.table.get(process).is_some() {
            // A scan was quicker, and could only guess who forked it.
            if let Some(parent) = lineage.parent {
                self.learn_parent(process, parent);
            }
            return;
        }
        let image = lineage.parent.and_then(|parent| self.engine.table.get(parent)).map(|parent| &parent.image);
        let image = image.cloned().unwrap_or_default();
        let ppid = lineage.parent.map_or(Pid(0), |parent| parent.pid);
        let newcomer = Newcomer { process, forked_by: lineage.parent, ppid, uid, comm, image, forked: true };
        match self.session_of(&lineage) {
            Some(session) => {
                self.enter(newcomer, session, &lineage, ProcessKind::Other);
                self.journal(at, Some(process), Happening::Fork { parent: lineage.parent });
                self.may_be_orphan(process);
                self.expose_helper(process);
            }
            // Forked below a candidate that has turned out to be none.
            None => self.effect(Effect::Untrack(process)),
        }
    }

    pub(super) fn exec(&mut self, exec: Exec) {
        let Exec { at, process, lineage, uid, ppid, comm, image } = exec;
        if lineage.witness && self.engine.table.get(process).is_none() {
            return;
        }
        // An imported ring repeats events, and an exec is never later than its process's exit.
        let exit = self.engine.table.get(process).and_then(Process::died);
        if exit.is_some_and(|(_, status)| status.is_some()) {
            return;
        }
        let image = Arc::new(image);
        if self.engine.table.alive(process).is_none() {
            if !self.admit(process, &lineage, uid, ppid, &comm, &image) {
                self.effect(Effect::Untrack(process));
                return;
            }
        } else if let Some(known) = self.engine.table.get_mut(process) {
            known.uid = uid;
            known.comm.clone_from(&comm);
            self.replace_image(at, process, &image);
        }
        self.judge(process);
        self.may_be_orphan(process);
        self.deny_ungated(process);
        self.look_at_agent_of(process);
        self.journal(at, Some(process), Happening::Exec { comm, image: (*image).clone() });
        self.external_exec(at, process);
        self.fanout_exec(at, process);
        self.leak_over(process, "runs another program");
    }

    /// A living process runs another program since this time; its user and comm are up to date.
    pub(super) fn replace_image(&mut self, since: BootTime, process: ProcessId, image: &Arc<Image>) {
        let Some(known) = self.engine.table.get_mut(process) else { return };
        known.image = Arc::clone(image);
        known.forked = false;
        known.executed = since;
        known.user_ids = None;
        known.shared = Shared::default();
        // The exec released the old program's memory; its peak was the old program's too.
        known.memory = Memory::default();
        known.peak = Bytes(0);
        known.trail = Trail::default();
        let launcher = Launcher::of(image);
        launcher.into_iter().for_each(|launcher| self.launched(process, launcher));
        self.reclassify(process);
        self.limits_unknown(process);
    }

    /// A helper inherits what its agent does with SIGHUP, which may have changed since the agent began.
    fn look_at_agent_of(&mut self, process: ProcessId) {
        let now = self.now;
        let table = &self.engine.table;
        let Some(agent) = table.get(process).and_then(|known| table.alive(known.parent?)) else { return };
        let agent = agent.id;
        let Some(session) = table.get(process).and_then(|known| self.engine.sessions.get_mut(known.session)) else {
            return;
        };
        let (last, looks) = session.looked;
        let due = looks < FIRST_LOOKS || now.since(last) >= LOOK_AGAIN;
        if agent == session.root && session.ignores_hup != Some(true) && due {
            session.looked = (now, looks + 1);
            self.effect(Effect::Inspect(agent));
        }
    }

    pub(super) fn exit(&mut self, exit: &Exit) {
        let Exit { at, process, status, peak } = *exit;
        if let Some(known) = self.engine.table.get_mut(process) {
            // Samples know what the kernel's mark cannot tell after an exec of something smaller.
            known.peak = peak.unwrap_or_default().max(known.peak);
        }
        let at = self.gone(process, at, status);
        self.abandoned_by(process, at);
    }

    /// A process is dead, seen by an event or missing from a scan. Gives the time of its exit as far as it is known, else `at`.
    pub(super) fn gone(&mut self, process: ProcessId, at: BootTime, status: Option<ExitStatus>) -> BootTime {
        let missed = self.engine.remembered.exit(process).filter(|_| status.is_none());
        let (at, status, peak) = missed.map_or((at, status, None), |exit| (exit.at, exit.status, exit.peak));
        if let (Some(peak), Some(known)) = (peak, self.engine.table.get_mut(process)) {
            known.peak = known.peak.max(peak);
        }
        if !self.engine.table.bury(process, at, status, self.now) {
            return at;
        }
        let Some(dead) = self.engine.table.get(process) else { return at };
        let (session, peak_bytes) = (dead.session, dead.peak.0);
        self.remember_children(process);
        self.died(process, at);
        if let Some(dead) = self.engine.table.get_mut(process) {
            dead.memory = Memory::default();
        }
        self.journal(at, Some(process), Happening::Exit { status, peak_bytes });
        if let Some(session) = self.engine.sessions.get_mut(session) {
            session.tally.ended(Bytes(peak_bytes));
        }
        self.leave(session, 1, at);
        self.forget_growth(process);
        self.leak_over(process, "gone");
        self.hand_down(process);
        self.orphaned_by(process, at);
        self.detached_by(process, at);
        self.external_exit(at, process);
        self.survey_gone(process);
        self.fanout_gone(process);
        self.gate_gone(process);
        self.act_gone(process, at);
        at
    }

    pub(super) fn oom(&mut self, oom: Oom) {
        self.engine.oom_kills += 1;
        let process = oom.process.or_else(|| self.engine.process(oom.pid));
        self.note_oom(&oom, process);
        self.journal(oom.at, process, Happening::Oom { comm: oom.comm });
    }

    pub(super) fn signal(&mut self, signal: Signal) {
        self.note_signal(&signal);
        let what = Happening::Signal {
            signal: signal.signal,
            sender: signal.sender,
            sender_comm: signal.sender_comm,
            sender_uid: signal.sender_uid.0,
            delivered: signal.delivered,
        };
        self.journal(signal.at, Some(signal.process), what);
        if signal.signal == SIGHUP {
            self.terminal_may_be_gone(signal.process);
        }
    }

    pub(super) fn adopt(&mut self, process: ProcessId) {
        if let Some(known) = self.engine.table.get_mut(process) {
            known.adopted = true;
            let session = known.session;
            self.effect(Effect::Remember(GateRecord::Adopted(process)));
            self.judge(process);
            self.gated_or_not(session);
            self.tick();
        }
    }

    /// Adopting covers what is forked below, and so does a start through nohup or setsid. Once the one that it was said of is
    /// dead, nobody but its children can tell a later run of the daemon.
    fn hand_down(&mut self, dead: ProcessId) {
        let table = &self.engine.table;
        let Some(known) = table.get(dead) else { return };
        let (adopted, launcher) = (known.adopted, known.launched_by.filter(|_| !known.is_agent()));
        if !adopted && launcher.is_none() {
            return;
        }
        for heir in table.heirs(dead, |between| !between.is_agent()) {
            if let Some(known) = self.engine.table.get_mut(heir).filter(|_| adopted) {
                known.adopted = true;
                self.effect(Effect::Remember(GateRecord::Adopted(heir)));
            }
            launcher.into_iter().for_each(|launcher| self.launched(heir, launcher));
            self.judge(heir);
        }
    }

    pub(super) fn inspected(&mut self, process: ProcessId, inspection: Option<Inspection>) {
        if inspection.is_none() {
            self.missed(process);
        }
        if let Some(inspection) = inspection
            && let Some(known) = self.engine.table.get_mut(process).filter(|known| known.alive())
        {
            if known.ppid.0 != inspection.ppid {
                known.ppid = Pid(inspection.ppid);
                self.engine.orphans.changed();
            }
            known.comm.clone_from(&inspection.comm);
            known.user_ids = inspection.user_ids.or(known.user_ids);
            let is_first = known.inspection.replace(Box::new(inspection)).is_none();
            let was_kept = known.verdict.is_kept();
            self.judge(process);
            let is_kept = self.engine.table.get(process).is_some_and(|known| known.verdict.is_kept());
            if was_kept && !is_kept {
                self.may_be_orphan(process);
            } else if is_first && is_kept && !was_kept {
                // The executable confirmed its name: it is no part of what started it.
                self.fanout_exec(self.now, process);
            }
        }
        self.orphan_inspected(process);
        self.agent_inspected(process);
        self.act_inspected(process);
    }

    /// The kernel tells of an exit before it gives the dead one's children another parent: who was looked at that quickly is
    /// looked at again.
    pub(super) fn look_for_new_parent(&mut self, process: ProcessId) {
        let table = &self.engine.table;
        let Some(known) = table.alive(process) else { return };
        let Some(seen) = known.inspection.as_deref() else { return };
        let dead = |parent: &ProcessId| parent.pid.0 == seen.ppid && table.alive(*parent).is_none();
        if known.forked_by.as_ref().is_some_and(dead) {
            self.effect(Effect::Inspect(process));
        }
    }

    /// A process is not where the table says that it lives. Most often its exit is on the way; where it happened before
    /// the kernel tracked the process, none will come.
    pub(super) fn missed(&mut self, process: ProcessId) {
        if self.engine.table.alive(process).is_some() {
            self.engine.missed.push((self.now, process));
        }
    }

    /// Gives up those whose exit has had the time to come.
    pub(super) fn tick_missed(&mut self) {
        let now = self.now;
        let missed = std::mem::take(&mut self.engine.missed);
        let (due, waiting): (Vec<_>, Vec<_>) = missed.into_iter().partition(|(at, _)| now.since(*at) >= EXIT_WITHIN);
        self.engine.missed = waiting;
        for (at, process) in due {
            let at = self.gone(process, at, None);
            self.abandoned_by(process, at);
        }
    }
}
