//! A signal that a process received, and its sender.

use std::sync::Arc;

use super::killers;
use super::memory_snapshot::MemorySnapshot;
use crate::unit;
use watchdog_api::{KillerRole, Relation, Sender};
use watchdog_types::{BootTime, KillSeen, ProcessId, SessionId, Uid};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SignalNote {
    pub(super) at: BootTime,
    pub(super) signal: u8,
    pub(super) code: i32,
    pub(super) delivered: bool,
    pub(super) relation: Relation,
    pub(super) sender: ProcessId,
    pub(super) comm: String,
    pub(super) uid: Uid,
    pub(super) session: Option<SessionId>,
    pub(super) name: Option<String>,
    pub(super) by_its_death: bool,
    pub(super) by_thread_exit: bool,
    /// The thread of a stranger that sent it was exiting, as `PR_SET_PDEATHSIG` does.
    pub(super) stranger_exits: bool,
    /// The kernel sent it when the sender, the first process of the target's pid namespace, exited.
    pub(super) by_namespace_end: bool,
    /// A signal that the sender had received shortly before.
    pub(super) origin: Option<Box<SignalNote>>,
    /// The memory of all sessions at that time.
    pub(super) memory: Option<Arc<MemorySnapshot>>,
    /// Memory was short then: on the host, or in the target's cgroup.
    pub(super) short: bool,
    /// The inspection of a sender outside every session.
    pub(super) look: Option<Arc<KillSeen>>,
}

impl SignalNote {
    pub(super) fn role(&self) -> Option<KillerRole> {
        match self.relation {
            Relation::Stranger => killers::role_of(&self.comm, self.look.as_deref()),
            // Started by an agent, or by a person in its terminal.
            Relation::Parent | Relation::SameTree | Relation::OtherTree => {
                let names = [Some(self.comm.as_str()), self.name.as_deref()];
                names.into_iter().flatten().any(killers::is_oom_killer).then_some(KillerRole::OomKiller)
            }
            Relation::Itself | Relation::Watchdog | Relation::Kernel => None,
        }
    }

    /// Whether it was sent to free memory, or forwards a signal that was.
    pub(super) fn is_for_memory(&self) -> bool {
        let by_origin = self.origin.as_deref().is_some_and(Self::is_for_memory);
        self.short || self.role() == Some(KillerRole::OomKiller) || by_origin
    }

    /// The memory of all sessions when it was sent, or when the signal was sent that it passes on.
    pub(super) fn memory_then(&self) -> Option<&MemorySnapshot> {
        self.memory.as_deref().or_else(|| self.origin.as_deref()?.memory_then())
    }

    /// The inspection of the first sender.
    pub(super) fn look_then(&self) -> Option<&KillSeen> {
        self.look.as_deref().or_else(|| self.origin.as_deref()?.look_then())
    }

    /// The program of a sender that was looked at, if it was the one that sent the signal.
    fn program(&self) -> Option<&str> {
        self.look.as_deref().filter(|look| killers::is_same_program(&self.comm, look))?.program.as_deref()
    }

    /// Whether a stranger that was looked at ran on.
    fn stranger_runs(&self) -> Option<bool> {
        self.look.as_ref().filter(|_| self.stranger_exits).map(|look| look.program.is_some())
    }

    /// `died` is when the target exited.
    pub(super) fn sender(&self, died: BootTime) -> Sender {
        Sender {
            pid: self.sender.pid.0,
            start_time: self.sender.start_time.0,
            comm: self.comm.clone(),
            uid: self.uid.0,
            relation: self.relation,
            session: self.session.map(|session| session.0),
            name: self.name.clone().or_else(|| self.program().filter(|name| *name != self.comm).map(str::to_owned)),
            unit: self
                .look
                .as_ref()
                .and_then(|look| unit::innermost(look.killer_cgroup.as_deref()?))
                .map(str::to_owned),
            role: self.role(),
            by_its_death: self.by_its_death || self.stranger_runs() == Some(false),
            by_thread_exit: self.by_thread_exit || self.stranger_runs() == Some(true),
            signal: self.signal,
            code: self.code,
            before_seconds: died.since(self.at).as_secs_f64(),
            action: None,
        }
    }
}
