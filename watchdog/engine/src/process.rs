//! A process in the engine's table.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::exits::{MemoryTrail, SignalNote};
use super::memory_share::MemoryShare;
use watchdog_api::{PROTECTED_SCORE, ProcessKind};
use watchdog_classify as classify;
use watchdog_types::{
    BootTime, Bytes, ExitStatus, Image, Inspection, Limits, Memory, Pid, ProcessId, SessionId, Uid, UserIds,
};

/// A process of a session, alive or (for the sake of its children) dead.
#[derive(Clone, Debug)]
pub(super) struct TrackedProcess {
    pub(super) id: ProcessId,
    /// The process that forked it, which need not be its current parent.
    pub(super) forked_by: Option<ProcessId>,
    /// Where its lineage continues in the table: the process that forked it, or, when events were lost and that one is
    /// not known, the session's root.
    pub(super) parent: Option<ProcessId>,
    /// Its parent when it was first seen, which stands in for the unknown parent that forked it.
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
    /// The image that it executed or, before its first exec, that of its parent.
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
    pub(super) share: MemoryShare,
    /// The ceilings of its memory, as far as they are known.
    pub(super) limits: Option<Box<Limits>>,
    /// Since when its cgroup is known to be limited.
    pub(super) limited_since: Option<BootTime>,
    /// When its program's ceilings were last asked for.
    pub(super) limits_asked: Option<BootTime>,
    /// As last read. An exec keeps it.
    pub(super) oom_score_adj: Option<i32>,
    /// Where its memory has been since its exec.
    pub(super) trail: MemoryTrail,
    /// Signals that it was sent lately and that end processes.
    pub(super) signals: Vec<SignalNote>,
    pub(super) inspection: Option<Box<Inspection>>,
    /// A person adopted it.
    pub(super) adopted: bool,
    /// Evidence for and against keeping it, as of its last exec or inspection.
    pub(super) verdict: Verdict,
    /// When the evidence for keeping it ended.
    pub(super) cleared: Option<BootTime>,
    pub(super) life: Life,
}

/// Whether a process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Alive,
    Dead {
        at: BootTime,
        /// `None` when the exit was not observed.
        status: Option<ExitStatus>,
        /// Its parent has not waited for it.
        zombie: bool,
    },
}

/// The result of the evidence about keeping a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing says that it should stay.
    #[default]
    Clear,
    /// The evidence does not decide: it is reported, and nothing is proposed.
    Unknown(String),
    /// It should stay.
    Kept(String),
}

/// Commands whose use shows that the process should outlive its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Launcher {
    Nohup,
    Setsid,
    /// daemonize(1), start-stop-daemon(8).
    Daemonize,
    /// xdg-open(1) and its like: what they open is in front of a person.
    Desktop,
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
            Some("daemonize" | "start-stop-daemon") => Some(Self::Daemonize),
            Some(name) if classify::opens_for_desktop(name) => Some(Self::Desktop),
            _ => None,
        }
    }
}

impl TrackedProcess {
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
            share: MemoryShare::default(),
            limits: None,
            limited_since: None,
            limits_asked: None,
            oom_score_adj: None,
            trail: MemoryTrail::default(),
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

    /// The other dead are only remembered for their children.
    pub(super) fn is_shown(&self) -> bool {
        self.alive() || self.zombie()
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

    /// The OOM killer spares it.
    pub(super) fn is_protected(&self) -> bool {
        self.oom_score_adj.is_some_and(|score| score <= PROTECTED_SCORE)
    }

    /// It executed nothing since its fork, or only set another program apart.
    pub(super) fn acts_for_parent(&self) -> bool {
        self.forked || classify::sets_apart(&self.image)
    }

    /// The process's cost to the host, with shared pages divided among their users.
    pub(super) fn cost(&self) -> Bytes {
        self.share.cost(&self.memory)
    }

    /// Takes a new sample of its memory; whether that says anything else than the one before.
    pub(super) fn remember(&mut self, memory: Memory) -> bool {
        let before = (self.memory, self.peak, self.cost());
        if let Some(part) = memory.proportional {
            self.share.measured(memory, part, Bytes(0));
        }
        self.peak = self.peak.max(memory.peak).max(memory.rss());
        self.memory = Memory { proportional: None, ..memory };
        before != (self.memory, self.peak, self.cost())
    }

    /// A short name for a person: the script or program, never the arguments.
    pub(super) fn label(&self) -> String {
        classify::label(&self.image, &self.comm)
    }
}
