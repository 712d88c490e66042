//! The one rule about who may be touched. Whatever names a candidate, and however sure of itself it is, this has the last word.

use super::{Authority, Grounds};
use crate::api::ProcessKind;
use crate::engine::Engine;
use crate::engine::id::{Pid, ProcessId, SessionId, Uid};
use crate::engine::input::Stdin;
use crate::engine::process::{Process, Verdict};
use crate::engine::standing::Standing;

impl Engine {
    /// Why this process must be left alone; `None` when it may be touched on these grounds.
    pub(super) fn spare(&self, id: ProcessId, grounds: Grounds) -> Option<String> {
        let Some(process) = self.table.get(id) else { return Some("it is in no session".into()) };
        if process.zombie() {
            let parent = self.table.by_pid(process.ppid).map(Process::label);
            let parent =
                parent.map_or_else(|| format!("pid {}", process.ppid), |name| format!("{name} (pid {})", process.ppid));
            return Some(format!("it is dead already: {parent} does not wait for it, and nothing else can remove it"));
        }
        if !process.alive() {
            return Some("it is gone".into());
        }
        if id.pid <= Pid(1) || self.acts.rights.guarded.contains(&id) {
            return Some("it is the watchdog, or stands above it".into());
        }
        if !matches!(grounds, Grounds::Kept(_))
            && let Some(kept) = self.kept(process)
        {
            return Some(kept);
        }
        match grounds {
            Grounds::WholeSession(session) | Grounds::Kept(session) => {
                (!self.is_part_of(process.session, session)).then(|| "it is in another session".into())
            }
            Grounds::LeftBehind => match self.standing(process) {
                Standing::Orphan { .. } => self.at_a_terminal(process).or_else(|| self.around(process)),
                Standing::InOrder | Standing::Kept => Some("its agent lives".into()),
            },
            Grounds::Helper => {
                if self.standing(process) != Standing::InOrder {
                    return Some("its agent is dead: that is another finding's".into());
                }
                self.agent_around(process).or_else(|| self.around(process))
            }
        }
    }

    /// Who is stopped already by somebody else is not ours to stop: he would go on when we let go.
    pub(super) fn stopped(&self, id: ProcessId) -> Option<String> {
        let seen = self.table.get(id)?.inspection.as_deref()?;
        seen.stopped.then(|| "somebody has stopped it already".into())
    }

    /// Whether a user may decide about a process.
    pub(super) fn is_of(&self, id: ProcessId, uid: Uid) -> bool {
        let permitted = |process: &Process| match process.user_ids {
            Some(ids) => Authority::Person(uid).refusal(id.pid, ids).is_none(),
            None => process.uid == uid,
        };
        uid == Uid::ROOT || self.table.get(id).is_some_and(permitted)
    }

    /// A session is another, or was begun inside it.
    pub(super) fn is_part_of(&self, inner: SessionId, outer: SessionId) -> bool {
        std::iter::successors(Some(inner), |id| self.sessions.get(*id)?.parent).any(|id| id == outer)
    }

    /// It is meant to stay, or was started below something that is and that no agent is above any more.
    fn kept(&self, process: &Process) -> Option<String> {
        if let Verdict::Kept(because) = &process.verdict {
            return Some(format!("it is meant to stay: {because}"));
        }
        // As for orphans: adopting covers what is forked later too, until an agent in between is dead.
        let mut above =
            self.table.above(process.id).take_while(|above| above.alive() || !above.is_agent() || above.adopted);
        if let Some(adopted) = above.find(|above| above.adopted) {
            return Some(format!(
                "it was forked below {} (pid {}), which was adopted",
                adopted.label(),
                adopted.id.pid
            ));
        }
        let mut above = self.table.above(process.id).take_while(|above| !above.is_agent());
        let kept = above.find(|above| above.alive() && above.verdict.is_kept())?;
        Some(format!("it runs below {} (pid {}), which is meant to stay", kept.label(), kept.id.pid))
    }

    /// What it would take with it, or is a part of, is meant to stay or in doubt.
    fn around(&self, process: &Process) -> Option<String> {
        self.doubt(process).or_else(|| {
            // A daemon in a session of its own does not care what becomes of the shell that started it.
            let leads = |kept: &Process| kept.inspection.as_deref().is_some_and(|seen| seen.sid == kept.id.pid.0);
            let mut below = self.table.living_below(process.id);
            below
                .find(|below| below.verdict.is_kept() && !leads(below))
                .map(|kept| format!("{} (pid {}) runs below it, and is meant to stay", kept.label(), kept.id.pid))
        })
    }

    /// An agent that was left behind by another may have a person in front of it.
    fn at_a_terminal(&self, process: &Process) -> Option<String> {
        let watched = |process: &Process| match (process.kind, process.inspection.as_deref()) {
            (ProcessKind::Agent, seen) => seen.is_none_or(|seen| seen.tty),
            // Behind a wrapper that was taken for the agent stands the agent itself; a subagent is talked to through a pipe.
            (ProcessKind::Subagent, Some(seen)) => seen.tty && seen.stdin == Stdin::Terminal,
            _ => false,
        };
        let around = self.table.above(process.id).take_while(|above| above.alive());
        let mut all = std::iter::once(process).chain(around).chain(self.table.living_below(process.id));
        let agent = all.find(|process| watched(process))?;
        Some(format!("{} (pid {}) is an agent, and has a terminal", agent.label(), agent.id.pid))
    }

    /// No agent whose own agent lives is touched, nor what an agent runs below.
    fn agent_around(&self, process: &Process) -> Option<String> {
        if process.is_agent() {
            return Some("it is an agent".into());
        }
        let agent = self.table.living_below(process.id).find(|below| below.is_agent())?;
        Some(format!("the agent {} (pid {}) runs below it", agent.label(), agent.id.pid))
    }

    /// The evidence does not decide about it, about what it is a part of, or about what is a part of it.
    fn doubt(&self, process: &Process) -> Option<String> {
        if let Verdict::Unknown(because) = &process.verdict {
            return Some(format!("it is in doubt: {because}"));
        }
        let mut above = Vec::new();
        for other in self.table.above(process.id).take_while(|above| above.alive()) {
            // Of an agent that was left behind itself, and is in doubt, nothing is ended either.
            if !other.is_agent() || matches!(self.standing(other), Standing::Orphan { .. }) {
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
        Some(format!("with {} (pid {}), which is in doubt", doubtful.label(), doubtful.id.pid))
    }
}
