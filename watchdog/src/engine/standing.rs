//! Where a process stands: with a living agent, left behind by a dead one, or on its own by intent.
//!
//! Decided by who forked whom, never by today's parent: after an agent's death only the top of each chain below it is
//! re-parented, and to whichever subreaper stands there.

use super::id::ProcessId;
use super::process::Process;
use super::session::Sessions;
use super::table::Table;
use crate::api::ProcessKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// An agent above it lives, or it is an agent itself, or it was forked below something that is meant to stay.
    InOrder,
    /// Its nearest agent is dead. `of` is the unit of that agent; where the agents above are dead too, of the
    /// outermost: one dead agent is one group.
    Orphan {
        /// See [`unit`].
        of: ProcessId,
    },
    /// It is meant to stay.
    Kept,
}

/// What an agent's process stands for: a launcher and the agent behind it are one agent, named by the session's root;
/// a subagent is one of its own.
pub(super) fn unit(sessions: &Sessions, agent: &Process) -> ProcessId {
    match agent.kind {
        ProcessKind::Agent => sessions.get(agent.session).map_or(agent.id, |session| session.root),
        _ => agent.id,
    }
}

/// Where the process stands. Walks its lineage once: as many look-ups as there are forks above it.
pub(super) fn standing(table: &Table, sessions: &Sessions, process: &Process) -> Standing {
    if process.verdict.is_kept() {
        return Standing::Kept;
    }
    let mut dead = None;
    // The living agent that the walk came through last; its own launcher's death does not count against it.
    let mut living = process.is_agent().then_some(process);
    if living.is_some_and(|agent| stands_alone(sessions, agent)) {
        return Standing::InOrder;
    }
    for above in table.above(process.id) {
        // Adopting covers what is forked later too, even after an adopted agent's death.
        if above.adopted && dead.is_none() {
            return Standing::InOrder;
        }
        if above.is_agent() && above.alive() {
            if let Some(dead) = dead {
                return Standing::Orphan { of: dead };
            }
            if stands_alone(sessions, above) {
                return Standing::InOrder;
            }
            living = Some(above);
        } else if above.is_agent() {
            if living.is_none_or(|living| unit(sessions, living) != unit(sessions, above)) {
                dead = Some(unit(sessions, above));
            }
        } else if above.verdict.is_kept() && dead.is_none() {
            return Standing::InOrder;
        }
        if above.verdict.is_kept() {
            break;
        }
    }
    dead.map_or(Standing::InOrder, |of| Standing::Orphan { of })
}

/// The nearest agent above a process, dead or alive.
pub(super) fn nearest_agent(table: &Table, id: ProcessId) -> Option<&Process> {
    table.above(id).take_while(|above| !above.verdict.is_kept() || above.is_agent()).find(|above| above.is_agent())
}

/// An agent that no other agent started: nothing above it can leave it behind.
fn stands_alone(sessions: &Sessions, agent: &Process) -> bool {
    agent.kind == ProcessKind::Agent && sessions.get(agent.session).is_none_or(|session| session.parent.is_none())
}
