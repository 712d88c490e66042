//! What the engine knows of one process.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::act::UserIds;
use super::classify;
use super::deaths::{Note, Trail};
use super::id::{BootTime, Bytes, Pid, ProcessId, SessionId, Uid};
use super::input::{ExitStatus, Image, Inspection, Limits, Memory};
use crate::api::ProcessKind;

/// A process of a session, alive or (for the sake of its children) dead.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) id: ProcessId,
    /// Who forked it; not today's parent.
    pub(super) forked_by: Option<ProcessId>,
    /// Where its lineage goes on in the table: the process that forked it, or, when events were lost and that one is
    /// not known, the session's root.
    pub(super) parent: Option<ProcessId>,
    /// Its parent when it was first seen: who forked it, as far as nobody saw that.
    pub(super) first_ppid: Pid,
    /// Today's parent.
    pub(super) ppid: Pid,
    /// Processes that it forked and that are still in the table.
    pub(super) children: Vec<ProcessId>,
    pub(super) session: SessionId,
    /// Forks below the session's root.
    pub(super) depth: u32,
    /// Its real user when it was forked, or executed its program.
    pub(super) uid: Uid,
    /// Its user ids when they were last read, since its last exec.
    pub(super) user_ids: Option<UserIds>,
    pub(super) comm: String,
    /// What it executed, or, before its first exec, what its parent had executed.
    pub(super) image: Arc<Image>,
    /// Has not executed a program since its fork.
    pub(super) forked: bool,
    /// When `image` was learned: a scan that began earlier cannot replace it.
    pub(super) executed: BootTime,
    pub(super) kind: ProcessKind,
    /// Went through nohup(1), setsid(1) or the like on its way to its program.
    pub(super) launched_by: Option<Launcher>,
    /// When the engine heard of it: a scan that began earlier cannot deny it.
    pub(super) seen: BootTime,
    pub(super) memory: Memory,
    pub(super) peak: Bytes,
    pub(super) shared: Shared,
    /// The ceilings of its memory, as far as they are known.
    pub(super) limits: Option<Box<Limits>>,
    /// When its program's ceilings were last asked for.
    pub(super) limits_asked: Option<BootTime>,
    /// Where its memory has been since its exec.
    pub(super) trail: Trail,
    /// Signals that it was sent lately and that end processes.
    pub(super) signals: Vec<Note>,
    pub(super) inspection: Option<Box<Inspection>>,
    /// A person said that it is meant to stay.
    pub(super) adopted: bool,
    /// What speaks for and against keeping it, as of its last exec or inspection.
    pub(super) verdict: Verdict,
    /// When what spoke for keeping it went away.
    pub(super) cleared: Option<BootTime>,
    pub(super) life: Life,
}

/// Whether a process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Alive,
    Dead {
        at: BootTime,
        /// `None` when nobody saw it happen.
        status: Option<ExitStatus>,
        /// Its parent has not waited for it.
        zombie: bool,
    },
}

/// What the evidence says about keeping a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing says that it should stay.
    #[default]
    Clear,
    /// The evidence does not decide: it is reported, and nothing is proposed.
    Unknown(String),
    /// It is meant to stay.
    Kept(String),
}

/// Commands whose use says that somebody wants the process to outlive its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Launcher {
    /// nohup(1).
    Nohup,
    /// setsid(1).
    Setsid,
    /// xdg-open(1) and its like: what they open is in front of a person.
    Desktop,
}

/// What is known of the pages that a process shares with others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shared {
    /// [`Memory::charged`] when the proportional memory was measured.
    charged: Bytes,
    /// The proportional memory.
    proportional: Option<Bytes>,
    /// When a measurement was last asked for.
    pub(super) asked: Option<BootTime>,
}

impl Verdict {
    pub(super) fn is_kept(&self) -> bool {
        matches!(self, Self::Kept(_))
    }
}

impl Launcher {
    /// The launcher that this image is.
    pub(super) fn of(image: &Image) -> Option<Self> {
        match image.path.rsplit('/').next() {
            Some("nohup") => Some(Self::Nohup),
            Some("setsid") => Some(Self::Setsid),
            Some(name) if classify::opens_for_desktop(name) => Some(Self::Desktop),
            _ => None,
        }
    }
}

impl Process {
    /// A living agent of which nothing else is known.
    pub(super) fn new(id: ProcessId, session: SessionId, uid: Uid, seen: BootTime) -> Self {
        Self {
            id,
            forked_by: None,
            parent: None,
            first_ppid: Pid(0),
            ppid: Pid(0),
            children: Vec::new(),
            session,
            depth: 0,
            uid,
            user_ids: None,
            comm: String::new(),
            image: Arc::default(),
            forked: false,
            executed: seen,
            kind: ProcessKind::Agent,
            launched_by: None,
            seen,
            memory: Memory::default(),
            peak: Bytes::default(),
            shared: Shared::default(),
            limits: None,
            limits_asked: None,
            trail: Trail::default(),
            signals: Vec::new(),
            inspection: None,
            adopted: false,
            verdict: Verdict::Clear,
            cleared: None,
            life: Life::Alive,
        }
    }

    pub(super) fn alive(&self) -> bool {
        self.life == Life::Alive
    }

    pub(super) fn zombie(&self) -> bool {
        matches!(self.life, Life::Dead { zombie: true, .. })
    }

    pub(super) fn died(&self) -> Option<(BootTime, Option<ExitStatus>)> {
        match self.life {
            Life::Alive => None,
            Life::Dead { at, status, .. } => Some((at, status)),
        }
    }

    /// An agent, or the agent program once more: what a helper below it belongs to.
    pub(super) fn is_agent(&self) -> bool {
        matches!(self.kind, ProcessKind::Agent | ProcessKind::Subagent)
    }

    /// What the process costs the host, shared pages divided among their users as they were when last measured.
    pub(super) fn cost(&self) -> Bytes {
        let charged = self.memory.charged();
        match self.shared.proportional {
            Some(part) if self.shared.charged.0 > 0 => {
                let scaled = u128::from(charged.0) * u128::from(part.0) / u128::from(self.shared.charged.0);
                Bytes(u64::try_from(scaled).unwrap_or(u64::MAX))
            }
            _ => charged,
        }
    }

    /// Takes a new sample of its memory; whether that says anything else than the one before.
    pub(super) fn remember(&mut self, memory: Memory) -> bool {
        let before = (self.memory, self.peak, self.cost());
        if let Some(part) = memory.proportional {
            self.shared.charged = memory.charged();
            self.shared.proportional = Some(part);
        }
        self.peak = self.peak.max(memory.peak).max(memory.rss());
        self.memory = Memory { proportional: None, ..memory };
        before != (self.memory, self.peak, self.cost())
    }

    /// By how much its memory moved since the shared part was last measured, in bytes.
    pub(super) fn drift(&self) -> u64 {
        self.memory.charged().0.abs_diff(self.shared.charged.0)
    }

    /// A short name for a person: the script or program, never the arguments.
    pub(super) fn label(&self) -> String {
        classify::label(&self.image, &self.comm)
    }
}
