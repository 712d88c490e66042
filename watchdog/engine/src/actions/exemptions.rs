//! The exemptions: which processes no action may touch. Requests, policy and emergencies all obey them.

use super::action::Justification;
use super::authority::Authority;
use crate::Engine;
use crate::ownership::Ownership;
use crate::process::{TrackedProcess, Verdict};
use watchdog_api::ProcessKind;
use watchdog_types::{Pid, ProcessId, SessionId, Stdin, Uid};

impl Engine {
    /// Why this process is exempt; `None` when it may be touched with this justification.
    pub(super) fn exemption_reason(&self, id: ProcessId, justification: Justification) -> Option<String> {
        let Some(process) = self.table.get(id) else { return Some("not in any session".into()) };
        if process.zombie() {
            let parent = self.table.by_pid(process.ppid).map(TrackedProcess::label);
            let parent =
                parent.map_or_else(|| format!("pid {}", process.ppid), |name| format!("{name} (pid {})", process.ppid));
            return Some(format!("zombie: {parent} has not reaped it"));
        }
        if !process.alive() {
            return Some("already exited".into());
        }
        if id.pid <= Pid(1) || self.actions.permissions.protected.contains(&id) {
            return Some("agent-watchdog or one of its ancestors".into());
        }
        if !matches!(justification, Justification::IncludingKept(_))
            && let Some(kept) = self.kept_reason(process)
        {
            return Some(kept);
        }
        match justification {
            Justification::WholeSession(session) | Justification::IncludingKept(session) => {
                (!self.is_within(process.session, session)).then(|| "in another session".into())
            }
            Justification::Orphaned => match self.ownership(process) {
                Ownership::Orphan { .. } => self.attended_agent(process).or_else(|| self.kept_below(process)),
                Ownership::Owned | Ownership::Kept => Some("its agent is running".into()),
            },
            Justification::Helper => {
                if self.ownership(process) != Ownership::Owned {
                    return Some("its agent is dead; the orphan finding covers it".into());
                }
                self.agent_or_parent_of_agent(process).or_else(|| self.kept_below(process))
            }
        }
    }

    /// Why a process cannot be frozen: a later release would resume what another process has stopped.
    pub(super) fn already_stopped(&self, id: ProcessId) -> Option<String> {
        let seen = self.table.get(id)?.inspection.as_deref()?;
        seen.stopped.then(|| "already stopped by another process".into())
    }

    pub(super) fn may_signal(&self, id: ProcessId, uid: Uid) -> bool {
        let permitted = |process: &TrackedProcess| match process.user_ids {
            Some(ids) => Authority::User(uid).refusal(id.pid, ids).is_none(),
            None => process.uid == uid,
        };
        uid == Uid::ROOT || self.table.get(id).is_some_and(permitted)
    }

    /// Whether a session is another one, or nested in it.
    pub(super) fn is_within(&self, inner: SessionId, outer: SessionId) -> bool {
        std::iter::successors(Some(inner), |id| self.sessions.get(*id)?.parent).any(|id| id == outer)
    }

    /// Why the process is kept: by its own verdict, or by that of an ancestor below its agent.
    fn kept_reason(&self, process: &TrackedProcess) -> Option<String> {
        if let Verdict::Kept(because) = &process.verdict {
            return Some(format!("kept: {because}"));
        }
        // Adoption covers later forks too, down to the next dead agent.
        let mut above =
            self.table.above(process.id).take_while(|above| above.alive() || !above.is_agent() || above.adopted);
        if let Some(adopted) = above.find(|above| above.adopted) {
            return Some(format!("descendant of {} (pid {}), which is adopted", adopted.label(), adopted.id.pid));
        }
        let mut above = self.table.above(process.id).take_while(|above| !above.is_agent());
        let kept = above.find(|above| above.alive() && above.verdict.is_kept())?;
        Some(format!("descendant of {} (pid {}), which is kept", kept.label(), kept.id.pid))
    }

    /// A descendant is kept, or a relative is uncertain.
    fn kept_below(&self, process: &TrackedProcess) -> Option<String> {
        self.uncertain_relative(process).or_else(|| {
            // A daemon that leads its own session survives the shell that started it.
            let leads =
                |kept: &TrackedProcess| kept.inspection.as_deref().is_some_and(|seen| seen.sid == kept.id.pid.0);
            let mut below = self.table.living_below(process.id);
            below
                .find(|below| below.verdict.is_kept() && !leads(below))
                .map(|kept| format!("its descendant {} (pid {}) is kept", kept.label(), kept.id.pid))
        })
    }

    /// An orphaned agent may still be in use at a terminal.
    fn attended_agent(&self, process: &TrackedProcess) -> Option<String> {
        let watched = |process: &TrackedProcess| match (process.kind, process.inspection.as_deref()) {
            (ProcessKind::Agent, seen) => seen.is_none_or(|seen| seen.tty),
            // A wrapper may have been taken for the agent, which is then classified as a subagent. Real subagents use a pipe as stdin.
            (ProcessKind::Subagent, Some(seen)) => seen.tty && seen.stdin == Stdin::Terminal,
            _ => false,
        };
        let around = self.table.above(process.id).take_while(|above| above.alive());
        let mut all = std::iter::once(process).chain(around).chain(self.table.living_below(process.id));
        let agent = all.find(|process| watched(process))?;
        Some(format!("agent {} (pid {}) has a terminal", agent.label(), agent.id.pid))
    }

    /// Agents of living agents are exempt, and so are their ancestors.
    fn agent_or_parent_of_agent(&self, process: &TrackedProcess) -> Option<String> {
        if process.is_agent() {
            return Some("it is an agent".into());
        }
        let agent = self.table.living_below(process.id).find(|below| below.is_agent())?;
        Some(format!("its descendant {} (pid {}) is an agent", agent.label(), agent.id.pid))
    }

    /// The process, an ancestor or a descendant is uncertain.
    fn uncertain_relative(&self, process: &TrackedProcess) -> Option<String> {
        if let Verdict::Unknown(because) = &process.verdict {
            return Some(format!("uncertain: {because}"));
        }
        let mut above = Vec::new();
        for other in self.table.above(process.id).take_while(|above| above.alive()) {
            // Helpers of an orphaned agent are exempt too while it is uncertain.
            if !other.is_agent() || matches!(self.ownership(other), Ownership::Orphan { .. }) {
                above.push(other);
            }
            if other.is_agent() {
                break;
            }
        }
        let doubtful = above
            .into_iter()
            .chain(self.table.living_below(process.id))
            .find(|other| matches!(other.verdict, Verdict::Unknown(_)))?;
        Some(format!("related to {} (pid {}), which is uncertain", doubtful.label(), doubtful.id.pid))
    }
}
