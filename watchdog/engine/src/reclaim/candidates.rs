//! Sessions and processes that may be paged out, and their order.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::Engine;
use crate::process::{TrackedProcess, Verdict};
use crate::session::TrackedSession;
use watchdog_classify as classify;
use watchdog_config::ReclaimMode;
use watchdog_types::{BootTime, Bytes, PageOutExclusion, ProcessId, SessionId, Uid};

/// Processes that would release less than this are not paged out.
pub(super) const MIN_GAIN: Bytes = Bytes::from_mib(4);
/// While memory is short, a session counts as idle after this fraction of the configured time.
const SHORTER: u32 = 5;

/// The sessions to page out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionChoice {
    /// Idle sessions, of this user if any.
    Idle {
        user: Option<Uid>,
        /// Memory is short.
        short: bool,
        /// Only those with `mode = "proactive"`.
        proactive: bool,
    },
    /// This one, idle or not.
    Named(SessionId),
}

impl SessionChoice {
    /// The named session.
    pub(super) const fn session(self) -> Option<SessionId> {
        match self {
            Self::Named(session) => Some(session),
            Self::Idle { .. } => None,
        }
    }
}

/// A session that may be paged out.
#[derive(Debug)]
pub(super) struct ReclaimableSession {
    pub(super) session: SessionId,
    pub(super) uid: Uid,
    /// Zero for a named session that is not idle.
    pub(super) idle: Duration,
    /// Helpers before agents, the largest first. Not empty.
    pub(super) processes: Vec<ReclaimableProcess>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ReclaimableProcess {
    pub(super) id: ProcessId,
    is_agent: bool,
    /// Resident memory that may be paged out.
    pub(super) resident: Bytes,
    /// The part of it that becomes free memory of the host.
    pub(super) gain: Bytes,
}

/// Why a process is never paged out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PageOutExemption {
    Kept(String),
    OtherUser,
    /// The daemon, or a process that it was started from.
    OwnLineage,
    /// Found when the worker inspected it.
    Found(PageOutExclusion),
}

impl fmt::Display for PageOutExemption {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept(because) => write!(out, "kept: {because}"),
            Self::OtherUser | Self::Found(PageOutExclusion::OtherUser) => {
                out.write_str("it runs as another user than its session")
            }
            Self::OwnLineage => out.write_str("it is the daemon or an ancestor of it"),
            Self::Found(PageOutExclusion::RealTime) => out.write_str("it has a real-time scheduling policy"),
            Self::Found(PageOutExclusion::Locked) => out.write_str("it locks memory"),
            Self::Found(PageOutExclusion::SecretMemory) => out.write_str("it has memory of memfd_secret"),
            Self::Found(PageOutExclusion::KeyHolder) => out.write_str("it holds keys"),
            Self::Found(PageOutExclusion::KernelThread) => out.write_str("it is a kernel thread"),
        }
    }
}

impl ReclaimableSession {
    pub(super) fn resident(&self) -> Bytes {
        self.processes.iter().map(|process| process.resident).sum()
    }

    pub(super) fn gain(&self) -> Bytes {
        self.processes.iter().map(|process| process.gain).sum()
    }

    /// The largest and longest idle first.
    fn rank(&self) -> (Reverse<u128>, SessionId) {
        let seconds = u128::from(self.idle.as_secs().max(1));
        (Reverse(u128::from(self.gain().0).saturating_mul(seconds)), self.session)
    }
}

impl Engine {
    /// Why the process of this session is never paged out.
    pub(super) fn page_out_exemption(
        &self,
        process: &TrackedProcess,
        session: &TrackedSession,
    ) -> Option<PageOutExemption> {
        if process.uid != session.uid {
            return Some(PageOutExemption::OtherUser);
        }
        if self.actions.is_protected(process.id) || self.exits.own_process == Some(process.id) {
            return Some(PageOutExemption::OwnLineage);
        }
        if classify::user_daemon(&process.image).is_some() {
            return Some(PageOutExemption::Found(PageOutExclusion::KeyHolder));
        }
        if let Verdict::Kept(because) = &process.verdict
            && !self.config.reclaim.includes(&process.image)
        {
            return Some(PageOutExemption::Kept(because.clone()));
        }
        self.reclaim.records.get(&process.id)?.excluded.map(PageOutExemption::Found)
    }

    /// The sessions of this choice with memory to page out, the largest and longest idle first.
    pub(super) fn reclaimable(&self, now: BootTime, choice: SessionChoice) -> Vec<ReclaimableSession> {
        if self.reclaim.obstacle.is_some() {
            return Vec::new();
        }
        let mut members: BTreeMap<SessionId, Vec<&TrackedProcess>> = BTreeMap::new();
        for process in self.table.living() {
            members.entry(process.session).or_default().push(process);
        }
        let chosen = members.iter().filter_map(|(id, members)| {
            let session = self.sessions.get(*id)?;
            let (idle, allowed_after) = self.chosen_idle(now, choice, session, members)?;
            self.reclaimable_session(now, session, members, idle, allowed_after)
        });
        let mut chosen: Vec<ReclaimableSession> = chosen.collect();
        chosen.sort_by_key(ReclaimableSession::rank);
        chosen
    }

    /// How long the session has been idle, and the pause between two page-outs of a process. `None` if it is not chosen.
    fn chosen_idle(
        &self,
        now: BootTime,
        choice: SessionChoice,
        session: &TrackedSession,
        members: &[&TrackedProcess],
    ) -> Option<(Duration, Option<Duration>)> {
        let (mode, configured) = self.config.reclaim_of(&session.profile);
        let rest = || self.session_rest(now, members.iter().copied());
        match choice {
            SessionChoice::Named(named) if named == session.id => {
                Some((rest().map_or(Duration::ZERO, |(since, _)| now.since(since)), None))
            }
            SessionChoice::Named(_) => None,
            SessionChoice::Idle { user, short, proactive } => {
                let wanted = match mode {
                    ReclaimMode::Off => false,
                    ReclaimMode::Pressure => !proactive,
                    ReclaimMode::Proactive => true,
                };
                let needed = if short { configured / SHORTER } else { configured };
                if !wanted || user.is_some_and(|user| user != session.uid) {
                    return None;
                }
                let (since, _) = rest().filter(|(_, seen)| *seen >= needed)?;
                Some((now.since(since), Some(configured)))
            }
        }
    }

    /// Since when all processes of a session are idle, kept ones aside, and the shortest observed idle time of them.
    pub(crate) fn session_rest<'p>(
        &self,
        now: BootTime,
        members: impl Iterator<Item = &'p TrackedProcess>,
    ) -> Option<(BootTime, Duration)> {
        let own = members.filter(|process| process.alive() && !process.verdict.is_kept());
        let mut rests = own.map(|process| self.reclaim.idle.rest(process.id, now));
        // One that is unknown decides.
        rests.try_fold(None, |all: Option<(BootTime, Duration)>, one| {
            let (since, seen) = one?;
            Some(Some(all.map_or((since, seen), |all| (all.0.max(since), all.1.min(seen)))))
        })?
    }

    fn reclaimable_session(
        &self,
        now: BootTime,
        session: &TrackedSession,
        members: &[&TrackedProcess],
        idle: Duration,
        pause: Option<Duration>,
    ) -> Option<ReclaimableSession> {
        let swaps = self.close_watch.host.swap_total > Bytes(0);
        let rested = |id: &ProcessId| {
            let record = self.reclaim.records.get(id);
            record.zip(pause).is_none_or(|(record, pause)| record.allowed_at(pause) <= now)
        };
        let candidates = members.iter().filter(|process| rested(&process.id)).filter_map(|process| {
            let memory = &process.memory;
            let gain = if swaps { memory.anon } else { memory.file };
            let resident = if swaps { memory.anon + memory.file } else { memory.file };
            (gain >= MIN_GAIN && self.page_out_exemption(process, session).is_none()).then(|| ReclaimableProcess {
                id: process.id,
                is_agent: process.is_agent(),
                resident,
                gain,
            })
        });
        let mut processes: Vec<ReclaimableProcess> = candidates.collect();
        processes.sort_by_key(|process| (process.is_agent, Reverse(process.gain), process.id));
        (!processes.is_empty()).then_some(ReclaimableSession { session: session.id, uid: session.uid, idle, processes })
    }

    /// Memory that idle sessions are expected to release, by earlier page-outs of their profiles.
    #[must_use]
    pub fn expected_reclaim(&self, now: BootTime) -> Bytes {
        let choice = SessionChoice::Idle { user: None, short: false, proactive: false };
        let expected = self.reclaimable(now, choice).into_iter().filter_map(|idle| {
            let session = self.sessions.get(idle.session)?;
            Some(self.reclaim.learned.expected(&session.profile, idle.gain()))
        });
        expected.sum::<Bytes>().min(self.swap_room())
    }

    /// Free swap above the reserve.
    pub(super) fn swap_room(&self) -> Bytes {
        let host = &self.close_watch.host;
        let reserve = self.swap_reserve();
        Bytes(host.swap_free.0.saturating_sub(reserve.0))
    }

    pub(super) fn swap_reserve(&self) -> Bytes {
        self.config.reclaim.reserve.on_host(self.close_watch.host.swap_total)
    }
}
