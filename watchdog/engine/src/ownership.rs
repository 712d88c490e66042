//! The owner of a process: a living agent, a dead one, or none, by intent.
//!
//! Decided by lineage, never by today's parent: after an agent's death only the top of each chain below it is
//! re-parented, and to whichever subreaper stands there.

use super::process::TrackedProcess;
use super::session::{Sessions, TrackedSession};
use super::table::Table;
use watchdog_api::ProcessKind;
use watchdog_types::{ProcessId, SessionId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ownership {
    /// An agent above it lives, or it is an agent itself, or it was forked below a kept process.
    Owned,
    /// Its nearest agent or keeper is dead. `of` is the unit of that agent; where the agents above are dead too, of the
    /// outermost: one dead agent is one group. A keeper cuts lineage, so that its group is its own.
    Orphan {
        /// See [`agent_group`].
        of: ProcessId,
    },
    /// It should stay.
    Kept,
}

/// The process that names an agent: a launcher and the agent behind it are one agent, named by the session's root. A
/// subagent names itself.
pub(super) fn agent_group(sessions: &Sessions, agent: &TrackedProcess) -> ProcessId {
    match agent.kind {
        ProcessKind::Agent => sessions.get(agent.session).map_or(agent.id, |session| session.root),
        _ => agent.id,
    }
}

/// Where the process stands. Walks its lineage once: as many look-ups as there are forks above it.
pub(super) fn ownership(table: &Table, sessions: &Sessions, process: &TrackedProcess) -> Ownership {
    if process.verdict.is_kept() {
        return Ownership::Kept;
    }
    let mut dead = None;
    // The living agent that the walk came through last; its own launcher's death does not count against it.
    let mut living = process.is_agent().then_some(process);
    if living.is_some_and(|agent| is_top_level(sessions, agent)) {
        return Ownership::Owned;
    }
    for above in table.above(process.id) {
        // Adopting covers what is forked later too, even after an adopted agent's death.
        if above.adopted && dead.is_none() {
            return Ownership::Owned;
        }
        if above.is_agent() && above.alive() {
            if let Some(dead) = dead {
                return Ownership::Orphan { of: dead };
            }
            if is_top_level(sessions, above) {
                return Ownership::Owned;
            }
            living = Some(above);
        } else if above.is_agent() {
            if living.is_none_or(|living| agent_group(sessions, living) != agent_group(sessions, above)) {
                dead = Some(agent_group(sessions, above));
            }
        } else if above.verdict.is_kept() && dead.is_none() {
            return if above.alive() { Ownership::Owned } else { Ownership::Orphan { of: above.id } };
        }
        if above.verdict.is_kept() {
            break;
        }
    }
    dead.map_or(Ownership::Owned, |of| Ownership::Orphan { of })
}

/// The dead keeper to whose group a process belongs.
pub(super) fn dead_keeper<'a>(
    table: &'a Table,
    sessions: &Sessions,
    process: &TrackedProcess,
) -> Option<&'a TrackedProcess> {
    let Ownership::Orphan { of } = ownership(table, sessions, process) else { return None };
    table.get(of).filter(|of| !of.alive() && !of.is_agent() && of.verdict.is_kept())
}

/// The nearest agent above a process, dead or alive.
pub(super) fn nearest_agent(table: &Table, id: ProcessId) -> Option<&TrackedProcess> {
    table.above(id).take_while(|above| !above.verdict.is_kept() || above.is_agent()).find(|above| above.is_agent())
}

/// An agent that no other agent started: nothing above it can leave it behind.
fn is_top_level(sessions: &Sessions, agent: &TrackedProcess) -> bool {
    agent.kind == ProcessKind::Agent && sessions.get(agent.session).is_none_or(|session| session.parent.is_none())
}

/// The living agent of a session: the launcher, or the agent behind it once that has exited.
pub(super) fn agent_of<'a>(table: &'a Table, sessions: &Sessions, session: SessionId) -> Option<&'a TrackedProcess> {
    let session = sessions.get(session)?;
    let behind = || {
        let agents = living_of(table, session).filter(|process| process.kind == ProcessKind::Agent);
        agents.min_by_key(|agent| agent.id)
    };
    table.alive(session.root).or_else(behind)
}

/// The living processes of a session. Costs a walk below its root, not over the table.
pub(super) fn living_of<'a>(table: &'a Table, session: &TrackedSession) -> impl Iterator<Item = &'a TrackedProcess> {
    let id = session.id;
    let below = (session.members > 0).then(|| table.living_below(session.root));
    table
        .alive(session.root)
        .into_iter()
        .chain(below.into_iter().flatten())
        .filter(move |process| process.session == id)
}
