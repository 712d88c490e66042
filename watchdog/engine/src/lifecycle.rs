//! Fork, exec, exit, and what else the kernel reports about a process: the table as events change it.

use std::sync::Arc;
use std::time::Duration;

use super::Step;
use super::detect::TableEvent;
use super::effect::{BpfCommand, Effect, JournalEvent, PersistCommand};
use super::exits::MemoryTrail;
use super::gate::GateRecord;
use super::membership::Newcomer;
use super::memory_share::MemoryShare;
use super::process::{Launcher, TrackedProcess};
use watchdog_api::ProcessKind;
use watchdog_types::signals::SIGHUP;
use watchdog_types::{
    BootTime, Bytes, Exec, Exit, ExitStatus, Fork, Image, Inspection, Memory, Oom, Pid, ProcessId, Signal,
};

/// An agent that starts helpers is inspected at once this many times, and then at this interval: some start thousands.
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
            // A scan was quicker, and could only guess the parent.
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
                self.share_with_parent(process, at);
                self.journal(at, Some(process), JournalEvent::Fork { parent: lineage.parent });
                self.place(process);
                self.raise_helper_oom_score(process);
            }
            // Forked below a candidate that has turned out to be none.
            None => self.effect(Effect::Bpf(BpfCommand::Untrack(process))),
        }
    }

    pub(super) fn exec(&mut self, exec: Exec) {
        let Exec { at, process, lineage, uid, ppid, comm, image } = exec;
        if lineage.witness && self.engine.table.get(process).is_none() {
            return;
        }
        // An imported ring repeats events, and an exec is never later than its process's exit.
        let exit = self.engine.table.get(process).and_then(TrackedProcess::died);
        if exit.is_some_and(|(_, status)| status.is_some()) {
            return;
        }
        let image = Arc::new(image);
        if self.engine.table.alive(process).is_none() {
            if !self.admit(process, &lineage, uid, ppid, &comm, &image) {
                self.effect(Effect::Bpf(BpfCommand::Untrack(process)));
                return;
            }
        } else if let Some(known) = self.engine.table.get_mut(process) {
            known.uid = uid;
            known.comm.clone_from(&comm);
            self.replace_image(at, process, &image);
        }
        self.update_verdict(process);
        self.place(process);
        self.enforce_ungated_policy(process);
        self.inspect_agent_of(process);
        self.journal(at, Some(process), JournalEvent::Exec { comm, image: (*image).clone() });
        self.detect(TableEvent::Executed(process, at));
    }

    /// A living process runs another program since this time; its user and comm are up to date.
    pub(super) fn replace_image(&mut self, since: BootTime, process: ProcessId, image: &Arc<Image>) {
        self.leave_sharers(process, since);
        let Some(known) = self.engine.table.get_mut(process) else { return };
        known.image = Arc::clone(image);
        known.forked = false;
        known.executed = since;
        known.user_ids = None;
        known.share = MemoryShare::default();
        // The exec released the old program's memory; its peak was the old program's too.
        known.memory = Memory::default();
        known.peak = Bytes(0);
        known.trail = MemoryTrail::default();
        self.engine.reclaim.forget(process);
        let launcher = Launcher::of(image);
        launcher.into_iter().for_each(|launcher| self.launched(process, launcher));
        self.reclassify(process);
        self.limits_unknown(process);
    }

    /// A helper inherits what its agent does with SIGHUP, which may have changed since the agent began.
    fn inspect_agent_of(&mut self, process: ProcessId) {
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
            // After an exec of a smaller program, samples know what the kernel's mark cannot show.
            known.peak = peak.unwrap_or_default().max(known.peak);
        }
        self.gone(process, at, status);
    }

    /// A process is dead, seen by an event or missing from a scan.
    pub(super) fn gone(&mut self, process: ProcessId, at: BootTime, status: Option<ExitStatus>) {
        let missed = self.engine.remembered.exit(process).filter(|_| status.is_none());
        let (at, status, peak) = missed.map_or((at, status, None), |exit| (exit.at, exit.status, exit.peak));
        if let (Some(peak), Some(known)) = (peak, self.engine.table.get_mut(process)) {
            known.peak = known.peak.max(peak);
        }
        if !self.engine.table.mark_dead(process, at, status, self.now) {
            self.detect(TableEvent::WitnessExited(process, at));
            return;
        }
        let Some(dead) = self.engine.table.get(process) else { return };
        let (session, peak_bytes) = (dead.session, dead.peak.0);
        self.remember_children(process);
        self.died(process, at);
        self.leave_sharers(process, at);
        if let Some(dead) = self.engine.table.get_mut(process) {
            dead.memory = Memory::default();
        }
        self.journal(at, Some(process), JournalEvent::Exit { status, peak_bytes });
        if let Some(session) = self.engine.sessions.get_mut(session) {
            session.tally.include(Bytes(peak_bytes));
        }
        self.leave(session, 1, at);
        self.forget_growth(process);
        self.engine.reclaim.forget(process);
        self.hand_down(process);
        self.update_verdicts_of_peers(process);
        self.update_verdicts_below_keeper(process);
        self.detect(TableEvent::Exited(process, at));
        self.gate_process_exited(process);
        self.actions_process_exited(process, at);
    }

    pub(super) fn oom(&mut self, oom: Oom) {
        self.engine.oom_kills += 1;
        let process = oom.process.or_else(|| self.engine.process(oom.pid));
        self.record_oom(&oom, process);
        self.journal(oom.at, process, JournalEvent::Oom { comm: oom.comm });
    }

    pub(super) fn signal(&mut self, signal: Signal) {
        self.record_signal(&signal);
        let what = JournalEvent::Signal {
            signal: signal.signal,
            sender: signal.sender,
            sender_comm: signal.sender_comm,
            sender_uid: signal.sender_uid.0,
            delivered: signal.delivered,
        };
        self.journal(signal.at, Some(signal.process), what);
        if signal.signal == SIGHUP {
            self.detect(TableEvent::HungUp(signal.process));
        }
    }

    pub(super) fn adopt(&mut self, process: ProcessId) {
        if let Some(known) = self.engine.table.get_mut(process) {
            known.adopted = true;
            let session = known.session;
            self.effect(Effect::Persist(PersistCommand::Gate(GateRecord::Adopted(process))));
            self.update_verdict(process);
            self.update_ungated_finding(session);
            self.tick();
        }
    }

    /// Adopting covers what is forked below, and so does a start through nohup or setsid. Once the adopted or
    /// started process is dead, a later run of the daemon knows that from its children only.
    fn hand_down(&mut self, dead: ProcessId) {
        let table = &self.engine.table;
        let Some(known) = table.get(dead) else { return };
        let (adopted, launcher) = (known.adopted, known.launched_by.filter(|_| !known.is_agent()));
        if !adopted && launcher.is_none() {
            return;
        }
        for heir in table.surviving_children(dead, |between| !between.is_agent()) {
            if let Some(known) = self.engine.table.get_mut(heir).filter(|_| adopted) {
                known.adopted = true;
                self.effect(Effect::Persist(PersistCommand::Gate(GateRecord::Adopted(heir))));
            }
            launcher.into_iter().for_each(|launcher| self.launched(heir, launcher));
            self.update_verdict(heir);
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
                self.engine.detectors.changed();
            }
            known.comm.clone_from(&inspection.comm);
            known.user_ids = inspection.user_ids.or(known.user_ids);
            known.oom_score_adj = inspection.oom_score_adj.or(known.oom_score_adj);
            let is_first = known.inspection.replace(Box::new(inspection)).is_none();
            let was_kept = known.verdict.is_kept();
            self.update_verdict(process);
            let is_kept = self.engine.table.get(process).is_some_and(|known| known.verdict.is_kept());
            if was_kept && !is_kept {
                self.place(process);
            } else if is_first && is_kept && !was_kept {
                // The executable confirmed its name: it is no part of what started it.
                self.detect(TableEvent::Started(process, self.now));
            }
        }
        self.note_agent_of_session(process);
        self.detect(TableEvent::Inspected(process));
        self.actions_inspected(process);
    }

    /// Helpers inherit the SIGHUP disposition of the agent at the root of their session.
    fn note_agent_of_session(&mut self, process: ProcessId) {
        let Some(known) = self.engine.table.alive(process).filter(|known| known.is_agent()) else { return };
        let (id, Some(seen)) = (known.session, known.inspection.as_deref()) else { return };
        let ignores_hup = Some(seen.ignores_hup);
        if let Some(session) = self.engine.sessions.get_mut(id)
            && session.root == process
            && session.ignores_hup != ignores_hup
        {
            session.ignores_hup = ignores_hup;
            self.engine.members(id).into_iter().for_each(|member| self.update_verdict(member));
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
            self.gone(process, at, None);
        }
    }
}
