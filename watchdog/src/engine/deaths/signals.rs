//! Signals that ask for an end, with who sent them: noted while they come, since at the death the sender may be gone.

use std::time::Duration;

use crate::api::{Relation, Sender};
use crate::engine::id::{BootTime, ProcessId, SessionId, Uid};
use crate::engine::input::Signal;
use crate::engine::process::Process;
use crate::engine::{Engine, Step};

/// How many are remembered of one process: who asks several times and then kills does it with the last.
const REMEMBERED: usize = 4;
/// A sender that was itself asked to end so shortly before passes that on.
const PASSES_ON_WITHIN: Duration = Duration::from_secs(2);

/// A signal, and who sent it.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::engine) struct Note {
    pub(super) at: BootTime,
    pub(super) signal: u8,
    pub(super) code: i32,
    pub(super) delivered: bool,
    pub(super) relation: Relation,
    sender: ProcessId,
    comm: String,
    uid: Uid,
    session: Option<SessionId>,
    name: Option<String>,
    by_its_death: bool,
    /// What the sender had been sent before.
    pub(super) origin: Option<Box<Note>>,
}

impl Note {
    /// What is told of the sender, when the target died at this moment.
    pub(super) fn sender(&self, died: BootTime) -> Sender {
        Sender {
            pid: self.sender.pid.0,
            start_time: self.sender.start_time.0,
            comm: self.comm.clone(),
            uid: self.uid.0,
            relation: self.relation,
            session: self.session.map(|session| session.0),
            name: self.name.clone(),
            by_its_death: self.by_its_death,
            signal: self.signal,
            code: self.code,
            before_seconds: died.since(self.at).as_secs_f64(),
            action: None,
        }
    }
}

impl Step<'_> {
    /// A signal that ends processes was sent to one of ours.
    pub(in crate::engine) fn note_signal(&mut self, signal: &Signal) {
        let Some(target) = self.engine.table.alive(signal.process) else { return };
        let note = self.engine.note(target, signal);
        if let Some(target) = self.engine.table.get_mut(signal.process) {
            if target.signals.len() == REMEMBERED {
                target.signals.remove(0);
            }
            target.signals.push(note);
        }
    }
}

impl Engine {
    fn note(&self, target: &Process, signal: &Signal) -> Note {
        let relation = self.relation(target, signal);
        let known = self.table.get(signal.sender);
        let by_process = !matches!(relation, Relation::Kernel | Relation::Itself);
        let asked = |sender: &Process| {
            let recent = |note: &&Note| note.delivered && signal.at.since(note.at) <= PASSES_ON_WITHIN;
            sender.signals.iter().rev().find(recent).map(|note| note.origin.clone().unwrap_or(Box::new(note.clone())))
        };
        Note {
            at: signal.at,
            signal: signal.signal,
            code: signal.code,
            delivered: signal.delivered,
            relation,
            sender: signal.sender,
            comm: signal.sender_comm.clone(),
            uid: signal.sender_uid,
            session: known.map(|sender| sender.session),
            name: known.map(Process::label),
            by_its_death: by_process && known.is_some_and(|sender| !sender.alive()),
            // A program may answer a signal by tidying up, and then send itself the same.
            origin: known.filter(|_| by_process || relation == Relation::Itself).and_then(asked),
        }
    }

    fn relation(&self, target: &Process, signal: &Signal) -> Relation {
        if signal.code > 0 {
            return Relation::Kernel;
        }
        if signal.sender == target.id {
            return Relation::Itself;
        }
        if self.deaths.watchdog == Some(signal.sender) {
            return Relation::Watchdog;
        }
        match self.table.get(signal.sender) {
            None => Relation::Stranger,
            Some(sender) if target.forked_by == Some(sender.id) => Relation::Parent,
            Some(sender) if self.outermost(sender.session) == self.outermost(target.session) => Relation::SameTree,
            Some(_) => Relation::OtherTree,
        }
    }

    /// The session around a session that no other is around.
    fn outermost(&self, session: SessionId) -> SessionId {
        let around = |id: &SessionId| self.sessions.get(*id).and_then(|session| session.parent);
        std::iter::successors(Some(session), around).last().unwrap_or(session)
    }
}
