//! Detached: a helper's own parent exited while its agent lives. Shells background work on purpose, and a daemon's double
//! fork looks the same. So one finding per agent lists what has stayed for a while and uses much memory. An agent
//! whose launcher died is more urgent: the user who killed the launcher meant to kill the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::survey::Part;
use super::{Conclusions, Detector, Facts, HOLD_OFF, SOON};
use crate::finding::{Detection, Key, Proposal};
use crate::ownership::{Ownership, nearest_agent};
use crate::process::TrackedProcess;
use watchdog_api::evidence::{DetachedEvidence, DetachedMember};
use watchdog_api::{Evidence, FindingKind, ProcessKind, Severity};
use watchdog_classify as classify;
use watchdog_config::Config;
use watchdog_types::{BootTime, Bytes, ProcessId, SessionId};

/// How often the groups are reviewed, for their members and memory.
const REVIEW: Duration = Duration::from_secs(1);
/// How many members the evidence lists, the largest first; the rest is counted.
const LISTED: usize = 50;
/// An open finding closes below this share of the memory at which it opened.
const CLEAR_PERCENT: u64 = 50;

/// Processes whose parent exited.
#[derive(Debug, Default)]
pub(crate) struct Detached {
    losses: BTreeMap<ProcessId, Loss>,
    groups: BTreeMap<SessionId, DetachedGroup>,
    reviewed: BootTime,
    /// An agent exited: the groups are reviewed at the next tick.
    urgent: bool,
}

#[derive(Clone, Copy, Debug)]
struct Loss {
    at: BootTime,
    /// The parent was the launcher of this agent.
    of_launcher: bool,
    /// The session of the living agent above, once the loss has lasted; `None` while there is no such agent.
    session: Option<SessionId>,
}

/// Background processes that the commands of one agent left.
#[derive(Debug, Default)]
struct DetachedGroup {
    /// The root of the session, while the finding is open.
    open: Option<ProcessId>,
    /// Processes that exited before they were old enough to be listed.
    brief: u64,
}

/// The reason why a group has no members left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Left {
    orphaned: bool,
    kept: bool,
}

impl Detached {
    /// The process lost its parent and belongs to a living agent.
    pub(crate) fn contains(&self, process: ProcessId) -> bool {
        self.losses.get(&process).is_some_and(|loss| !loss.of_launcher && loss.session.is_some())
    }
}

impl Detector for Detached {
    /// What a dead process started has another parent from now on. A fork that executed nothing started nothing, and neither
    /// did setsid: what they leave is left by the process above them, once that is dead too.
    fn exited(&mut self, dead: ProcessId, at: BootTime, facts: &Facts<'_>, out: &mut Conclusions) {
        if let Some(loss) = self.losses.remove(&dead) {
            self.forget(dead, loss, at, facts, out);
        }
        let Some(parent) = facts.table.get(dead) else { return };
        // What loses an agent is an orphan, but for the agent that its launcher leaves behind.
        let (of_agent, session) = (parent.is_agent(), parent.session);
        self.urgent |= of_agent;
        let concerns =
            |child: &TrackedProcess| !of_agent || child.kind == ProcessKind::Agent && child.session == session;
        let starter = if parent.acts_for_parent() { facts.table.starter(dead) } else { None };
        if starter.is_some_and(TrackedProcess::alive) {
            return;
        }
        for child in facts.table.started(dead) {
            if facts.table.alive(child).is_some_and(concerns) {
                let loss = Loss { at, of_launcher: of_agent, session: None };
                let before = self.losses.insert(child, loss);
                if before.is_some_and(|before| before.of_launcher && !of_agent) {
                    out.close(launcher_key(child), "has lost another parent since");
                }
                out.inspect(child);
            }
        }
    }

    fn tick(&mut self, facts: &Facts<'_>, out: &mut Conclusions) {
        let launched: Vec<ProcessId> =
            self.losses.iter().filter(|(_, loss)| loss.of_launcher).map(|(process, _)| *process).collect();
        launched.into_iter().for_each(|process| self.review_launched(process, facts, out));
        if self.urgent || facts.now.since(self.reviewed) >= REVIEW {
            self.urgent = false;
            self.reviewed = facts.now;
            self.review_groups(facts, out);
        }
    }

    fn due(&self, now: BootTime, _config: &Config) -> Option<Duration> {
        let launched = |loss: &Loss| loss.of_launcher && now.since(loss.at) < HOLD_OFF * 2;
        (self.urgent && !self.losses.is_empty() || self.losses.values().any(launched)).then_some(SOON)
    }
}

impl Detached {
    /// Counts a process that exited before it was listed.
    fn forget(&mut self, process: ProcessId, loss: Loss, at: BootTime, facts: &Facts<'_>, out: &mut Conclusions) {
        if loss.of_launcher {
            out.close(launcher_key(process), "gone");
            return;
        }
        if at.since(loss.at) < facts.config.orphans.detached_after {
            let agent = nearest_agent(facts.table, process).filter(|agent| agent.alive());
            if let Some(session) = loss.session.or(agent.map(|agent| agent.session)) {
                self.groups.entry(session).or_default().brief += 1;
            }
        }
    }

    /// Reviews an agent whose launcher exited.
    fn review_launched(&mut self, id: ProcessId, facts: &Facts<'_>, out: &mut Conclusions) {
        let Some(loss) = self.losses.get(&id).copied() else { return };
        let Some(process) = facts.table.alive(id) else {
            self.losses.remove(&id);
            out.close(launcher_key(id), "gone");
            return;
        };
        match facts.ownership(process) {
            Ownership::Kept => out.close(launcher_key(id), "kept"),
            Ownership::Orphan { .. } => out.close(launcher_key(id), "became an orphan"),
            Ownership::Owned if facts.now.since(loss.at) < HOLD_OFF => {}
            Ownership::Owned => {
                if let Some(seen) = without_launcher(process, loss.at, facts) {
                    out.report(seen);
                }
                out.inspect_for_new_parent(id, facts);
            }
        }
    }

    fn review_groups(&mut self, facts: &Facts<'_>, out: &mut Conclusions) {
        let mut left: BTreeMap<SessionId, Left> = BTreeMap::new();
        let mut members: BTreeMap<SessionId, Vec<&TrackedProcess>> = BTreeMap::new();
        self.losses.retain(|id, _| facts.table.alive(*id).is_some());
        for (id, loss) in self.losses.iter_mut().filter(|(_, loss)| !loss.of_launcher) {
            let Some(process) = facts.table.alive(*id) else { continue };
            let lasted = facts.now.since(loss.at);
            let ownership = facts.ownership(process);
            let before = loss.session;
            // Below what is kept (a person's panes below a tmux server) no agent is concerned.
            let agent = nearest_agent(facts.table, *id).filter(|agent| agent.alive());
            let hold_off = if classify::ends_by_itself(&process.image) { facts.config.orphans.grace } else { HOLD_OFF };
            loss.session = match (ownership, agent) {
                (Ownership::Owned, Some(agent)) if lasted >= hold_off => Some(agent.session),
                _ => None,
            };
            if loss.session.is_some() {
                out.inspect_for_new_parent(*id, facts);
            }
            match loss.session {
                Some(session) if lasted >= facts.config.orphans.detached_after => {
                    members.entry(session).or_default().push(process);
                }
                Some(_) => {}
                None => {
                    let Some(before) = before else { continue };
                    let left = left.entry(before).or_default();
                    left.orphaned |= matches!(ownership, Ownership::Orphan { .. });
                    left.kept |= !left.orphaned;
                }
            }
        }
        let open = self.groups.iter().filter(|(_, group)| group.open.is_some()).map(|(session, _)| *session);
        let sessions: BTreeSet<SessionId> = open.chain(members.keys().copied()).collect();
        for session in sessions {
            let members = members.get(&session).map_or(&[][..], Vec::as_slice);
            self.review_group(session, members, left.get(&session).copied().unwrap_or_default(), facts, out);
        }
        self.groups.retain(|session, group| {
            group.open.is_some() || facts.sessions.get(*session).is_some_and(|session| session.ended.is_none())
        });
    }

    /// Opens, updates or closes the finding of one session.
    fn review_group(
        &mut self,
        session: SessionId,
        members: &[&TrackedProcess],
        left: Left,
        facts: &Facts<'_>,
        out: &mut Conclusions,
    ) {
        let group = self.groups.entry(session).or_default();
        let parts = facts.parts(members);
        let memory: Bytes = parts.iter().map(|part| part.memory).sum();
        let minimum = facts.config.orphans.detached_memory.on_host(facts.host.total);
        let enough = if group.open.is_some() { minimum.percent(CLEAR_PERCENT) } else { minimum };
        let seen = (memory >= enough).then(|| observation(session, parts, memory, group.brief, facts)).flatten();
        match (seen, group.open) {
            (Some(seen), _) => {
                group.open = Some(seen.key.about);
                out.report(seen);
            }
            (None, Some(about)) => {
                group.open = None;
                let because = match left {
                    _ if !members.is_empty() => "below [orphans] detached_memory",
                    Left { orphaned: true, .. } => "became an orphan",
                    Left { kept: true, .. } => "kept",
                    Left { .. } => "gone",
                };
                out.close(Key { kind: FindingKind::Detached, about }, because);
            }
            (None, None) => {}
        }
    }
}

fn launcher_key(about: ProcessId) -> Key {
    Key { kind: FindingKind::Orphan, about }
}

/// The finding of a session's detached processes, or none without a member.
fn observation(
    session: SessionId,
    mut parts: Vec<Part<'_>>,
    memory: Bytes,
    brief: u64,
    facts: &Facts<'_>,
) -> Option<Detection> {
    let known = facts.sessions.get(session)?;
    let oldest = parts.iter().map(|part| part.helper).min_by_key(|process| (process.id.start_time, process.id.pid))?;
    let mut evidence = evidence(oldest, false, facts);
    (evidence.brief, evidence.count, evidence.memory_bytes) = (brief, parts.len(), memory);
    parts.sort_by_key(|part| (std::cmp::Reverse(part.memory), part.helper.id));
    let members: Vec<ProcessId> = parts.iter().map(|part| part.helper.id).collect();
    let listed = parts.into_iter().take(LISTED).map(|Part { helper, memory, .. }| DetachedMember {
        memory_bytes: memory,
        name: helper.label(),
        pid: helper.id.pid,
        start_time: helper.id.start_time,
    });
    evidence.processes = listed.collect();
    let evidence = Evidence::Detached(Box::new(evidence));
    Some(Detection {
        key: Key { kind: FindingKind::Detached, about: known.root },
        severity: Severity::Info,
        session: Some(session),
        subject: oldest.id,
        members,
        uid: known.uid,
        // The processes have been old and large enough since now.
        cause: facts.now,
        summary: evidence.to_string(),
        evidence,
        proposal: Proposal::Report,
    })
}

/// The finding of an agent whose launcher exited.
fn without_launcher(process: &TrackedProcess, at: BootTime, facts: &Facts<'_>) -> Option<Detection> {
    let session = facts.sessions.get(process.session)?;
    let evidence = Evidence::Detached(Box::new(evidence(process, true, facts)));
    Some(Detection {
        key: launcher_key(process.id),
        severity: Severity::Warning,
        session: Some(session.id),
        subject: process.id,
        members: Vec::new(),
        uid: process.uid,
        cause: at,
        summary: evidence.to_string(),
        evidence,
        proposal: Proposal::Report,
    })
}

fn evidence(process: &TrackedProcess, launcher_exited: bool, facts: &Facts<'_>) -> DetachedEvidence {
    let parent = facts.table.starter(process.id).filter(|starter| !starter.alive());
    let seen = process.inspection.as_deref();
    DetachedEvidence {
        agent_alive: true,
        brief: 0,
        count: 0,
        cwd_deleted: seen.map(|seen| seen.cwd_deleted),
        launcher_exited,
        listens: seen.map(|seen| seen.listens.clone()),
        memory_bytes: process.cost(),
        name: process.label(),
        parent_comm: seen.map(|seen| seen.parent_comm.clone()),
        parent_name: parent.map_or_else(|| "its parent".into(), TrackedProcess::label),
        parent_pid: parent.map(|parent| parent.id).or(process.forked_by).map(|parent| parent.pid),
        ppid: process.ppid,
        process_kind: process.kind,
        processes: Vec::new(),
        tty: seen.map(|seen| seen.tty),
    }
}
