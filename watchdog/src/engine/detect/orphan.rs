//! Orphans: helpers whose nearest agent is dead. One dead agent is one group, and one finding.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::api::{FindingKind, Severity};
use crate::engine::finding::{Key, Observation, Proposal};
use crate::engine::id::{BootTime, Bytes, ProcessId};
use crate::engine::input::Stdin;
use crate::engine::process::{Process, Verdict};
use crate::engine::standing::Standing;
use crate::engine::{Step, classify, effect::Effect};

/// The longest that a finding waits for /proc to be looked at; the agent's death itself is certain.
const PATIENCE: Duration = Duration::from_millis(250);
/// An open group is described anew this often, for its memory.
const REFRESH: Duration = Duration::from_secs(2);
/// How many members the evidence lists; the rest is counted.
const LISTED: usize = 200;

/// The groups that are open or about to be.
#[derive(Debug, Default)]
pub(in crate::engine) struct Orphans {
    groups: BTreeMap<ProcessId, Group>,
    /// Something happened that may have moved a process into a group, or out of one.
    stale: bool,
}

#[derive(Debug)]
struct Group {
    /// When the agent died.
    died: BootTime,
    /// Members that are being looked at.
    waiting: BTreeSet<ProcessId>,
    described: Option<BootTime>,
    /// When the members were looked at once more, after the grace and before anything is proposed.
    rechecked: Option<BootTime>,
}

impl Orphans {
    pub(in crate::engine) fn pending(&self) -> bool {
        !self.groups.is_empty() && self.stale || self.groups.values().any(|group| group.described.is_none())
    }

    /// How long it is until the grace of a group is over, after which its members are looked at once more.
    pub(in crate::engine) fn due(&self, now: BootTime, grace: Duration) -> Option<Duration> {
        let in_grace = self.groups.values().filter(|group| group.rechecked.is_none());
        in_grace.map(|group| grace.saturating_sub(now.since(group.died))).min()
    }

    /// Processes came or went, or are judged otherwise: every group is described anew at the next tick.
    pub(in crate::engine) fn changed(&mut self) {
        self.stale = true;
    }
}

impl Group {
    /// The facts are as fresh as a proposal has to be: a server may have begun to listen since its agent died.
    fn settled(&self, now: BootTime) -> bool {
        self.rechecked.is_some_and(|at| self.waiting.is_empty() || now.since(at) >= PATIENCE)
    }

    fn new(died: BootTime) -> Self {
        Self { died, waiting: BTreeSet::new(), described: None, rechecked: None }
    }
}

impl Step<'_> {
    /// An agent died: whoever is left below it is looked at.
    pub(in crate::engine) fn orphaned_by(&mut self, dead: ProcessId, at: BootTime) {
        let Some(agent) = self.engine.table.get(dead) else { return };
        if !agent.is_agent() {
            return;
        }
        self.lets_go_of_stdins(dead);
        // What was kept by its name may show a reason against it.
        let kept = self.kept_below(dead);
        self.effects.extend(kept.into_iter().map(Effect::Inspect));
        let below = self.engine.table.below(dead, |_| true);
        let mut left: BTreeMap<ProcessId, BTreeSet<ProcessId>> = BTreeMap::new();
        for process in below {
            if let Some(process) = self.engine.table.alive(process)
                && let Standing::Orphan { of } = self.engine.standing(process)
            {
                left.entry(of).or_default().insert(process.id);
            }
        }
        for (of, members) in left {
            for member in &members {
                self.effect(Effect::Inspect(*member));
            }
            let group = self.engine.orphans.groups.entry(of).or_insert_with(|| Group::new(at));
            group.waiting.extend(members);
        }
    }

    /// An agent died that may have held the stdin of another agent's helper, which kept it.
    fn lets_go_of_stdins(&mut self, dead: ProcessId) {
        let holds = |process: &&Process| {
            let stdin = process.inspection.as_deref().map(|seen| &seen.stdin);
            matches!(stdin, Some(Stdin::Peer(holders)) if holders.contains(&dead))
        };
        let held: Vec<ProcessId> = self.engine.table.living().filter(holds).map(|process| process.id).collect();
        for process in held {
            self.judge(process);
            self.may_be_orphan(process);
        }
    }

    /// A process was looked at: a group whose last open question that was is described.
    pub(in crate::engine) fn orphan_inspected(&mut self, process: ProcessId) {
        let ready: Vec<ProcessId> = self
            .engine
            .orphans
            .groups
            .iter_mut()
            .filter_map(|(of, group)| (group.waiting.remove(&process) && group.waiting.is_empty()).then_some(*of))
            .collect();
        if ready.is_empty() {
            return;
        }
        ready.into_iter().for_each(|of| self.describe_group(of));
        // That may have been what policy waited for, and a daemon with nothing else to do ticks slowly.
        self.tick_policy();
    }

    /// A process came to be known, or is kept no longer: it may belong to a group, which may be its first sign.
    pub(in crate::engine) fn may_be_orphan(&mut self, process: ProcessId) {
        let Some(process) = self.engine.table.alive(process) else { return };
        let Standing::Orphan { of } = self.engine.standing(process) else { return };
        let (id, now) = (process.id, self.now);
        let died = self.engine.table.get(of).and_then(Process::died).map_or(now, |(at, _)| at);
        let group = self.engine.orphans.groups.entry(of).or_insert_with(|| Group::new(died));
        if group.waiting.insert(id) {
            self.effect(Effect::Inspect(id));
        }
    }

    pub(in crate::engine) fn tick_orphans(&mut self) {
        let (now, grace) = (self.now, self.engine.config.orphans.grace);
        let stale = std::mem::take(&mut self.engine.orphans.stale);
        let due: Vec<ProcessId> = self
            .engine
            .orphans
            .groups
            .iter()
            .filter(|(_, group)| match group.described {
                None => now.since(group.died) >= PATIENCE || group.waiting.is_empty(),
                Some(described) => {
                    let graceful = |at: BootTime| at.since(group.died) < grace;
                    stale || now.since(described) >= REFRESH || graceful(described) != graceful(now)
                }
            })
            .map(|(of, _)| *of)
            .collect();
        due.into_iter().for_each(|of| self.describe_group(of));
    }

    /// Says what a group is now: opens its finding, brings it up to date, or closes it.
    fn describe_group(&mut self, of: ProcessId) {
        let key = Key { kind: FindingKind::Orphan, about: of };
        let members = self.left_behind(of);
        let kept = self.kept_below(of);
        let (now, grace) = (self.now, self.engine.config.orphans.grace);
        let Some(group) = self.engine.orphans.groups.get_mut(&of) else { return };
        group.described = Some(now);
        let in_grace = now.since(group.died) < grace;
        let died = group.died;
        if members.is_empty() {
            self.engine.orphans.groups.remove(&of);
            let because = if self.any_orphan_below(of) {
                "part of the group of an agent further up"
            } else if kept.is_empty() {
                "gone"
            } else {
                "kept"
            };
            self.close(key, because);
            return;
        }
        if !in_grace && group.rechecked.is_none() {
            group.rechecked = Some(now);
            group.waiting.extend(members.iter().copied());
            self.effects.extend(members.iter().chain(&kept).copied().map(Effect::Inspect));
        }
        let may_propose = !in_grace && group.settled(now);
        members.iter().for_each(|member| self.look_for_new_parent(*member));
        let member = |id: &ProcessId| self.engine.table.get(*id);
        // What ends by itself a moment after its parent is no news until the moment is over.
        let patient = members.iter().filter_map(member).all(|process| classify::ends_by_itself(&process.image));
        if patient && in_grace && !self.engine.findings.is_open(key) {
            return;
        }
        if let Some(seen) = self.group_seen(key, &members, &kept, died, may_propose) {
            self.observe(seen);
        }
    }

    /// The living orphans of a group, oldest first.
    fn left_behind(&self, of: ProcessId) -> Vec<ProcessId> {
        let table = &self.engine.table;
        let mut members: Vec<ProcessId> = table
            .living_below(of)
            .filter(|process| self.engine.standing(process) == Standing::Orphan { of })
            .map(|process| process.id)
            .collect();
        members.sort_by_key(|id| (id.start_time, id.pid));
        members
    }

    /// Some of what a dead agent left is in another group now: that of a dead agent above it.
    fn any_orphan_below(&self, of: ProcessId) -> bool {
        let table = &self.engine.table;
        let orphan = |process: &Process| matches!(self.engine.standing(process), Standing::Orphan { .. });
        table.living_below(of).any(orphan)
    }

    /// The dead process that a group is named after: the session's root, or the agent behind it while its launcher lives.
    fn dead_agent(&self, of: ProcessId) -> Option<&Process> {
        let table = &self.engine.table;
        let unit = table.get(of)?;
        let behind = |child: &&Process| !child.alive() && child.is_agent() && child.session == unit.session;
        if !unit.alive() {
            return Some(unit);
        }
        unit.children.iter().filter_map(|child| table.get(*child)).find(behind).or(Some(unit))
    }

    /// The members that must be left alone, and why. Doubt spreads: whoever ends the npm above a server in doubt ends the
    /// server, and what runs below one is part of it.
    fn doubts(&self, members: &[ProcessId], kept: &[ProcessId]) -> BTreeMap<ProcessId, String> {
        let table = &self.engine.table;
        let members: BTreeSet<ProcessId> = members.iter().copied().collect();
        let mut doubts = BTreeMap::new();
        let mut spread: Vec<(ProcessId, String)> = Vec::new();
        let wrappers = |id: ProcessId| table.above(id).take_while(|above| above.alive() && !above.is_agent());
        for process in members.iter().filter_map(|id| table.get(*id)) {
            let Verdict::Unknown(because) = &process.verdict else { continue };
            doubts.insert(process.id, because.clone());
            let part = format!("with {} (pid {}), which is in doubt", process.label(), process.id.pid);
            let around = wrappers(process.id).map(|above| above.id).chain(table.below(process.id, |_| true));
            spread.extend(around.map(|id| (id, part.clone())));
        }
        for process in kept.iter().filter_map(|id| table.get(*id)) {
            // A daemon in a session of its own does not care what becomes of the shell that started it.
            if process.inspection.as_deref().is_some_and(|seen| seen.sid == process.id.pid.0) {
                continue;
            }
            let part = format!("above {} (pid {}), which is meant to stay", process.label(), process.id.pid);
            spread.extend(wrappers(process.id).map(|above| (above.id, part.clone())));
        }
        for (id, because) in spread.into_iter().filter(|(id, _)| members.contains(id)) {
            doubts.entry(id).or_insert(because);
        }
        doubts
    }

    /// What a dead agent left that is meant to stay: the tops only.
    fn kept_below(&self, of: ProcessId) -> Vec<ProcessId> {
        let table = &self.engine.table;
        let kept = |process: &&Process| process.verdict.is_kept();
        table.living_below(of).filter(kept).map(|process| process.id).collect()
    }

    fn group_seen(
        &self,
        key: Key,
        members: &[ProcessId],
        kept: &[ProcessId],
        died: BootTime,
        may_propose: bool,
    ) -> Option<Observation> {
        let engine = &*self.engine;
        let processes: Vec<&Process> = members.iter().filter_map(|id| engine.table.get(*id)).collect();
        let top = processes.first()?;
        let agent = self.dead_agent(key.about)?;
        let session = engine.sessions.get(agent.session)?;
        let memory: Bytes = processes.iter().map(|process| process.cost()).sum();
        let doubts = self.doubts(members, kept);
        let clear = processes.len() - doubts.len();
        let in_grace = self.now.since(died) < engine.config.orphans.grace;
        let proposal = if may_propose && clear > 0 { Proposal::Terminate } else { Proposal::Report };

        let mut evidence = Map::new();
        evidence.insert("agent_pid".into(), json!(agent.id.pid));
        evidence.insert("agent_start_time".into(), json!(agent.id.start_time));
        evidence.insert("agent_comm".into(), json!(agent.comm));
        evidence.insert("profile".into(), json!(session.profile));
        evidence.insert("agent_died_seconds_ago".into(), json!(self.now.since(died).as_secs()));
        evidence.insert("agent_status".into(), json!(agent.died().and_then(|(_, status)| status)));
        evidence.insert("count".into(), json!(processes.len()));
        evidence.insert("memory_bytes".into(), json!(memory));
        evidence.insert("clear".into(), json!(clear));
        evidence.insert("in_grace".into(), json!(in_grace));
        let listed: Vec<Value> =
            processes.iter().take(LISTED).map(|process| describe(process, doubts.get(&process.id))).collect();
        evidence.insert("processes".into(), Value::Array(listed));
        let stay: Vec<Value> =
            kept.iter().take(LISTED).filter_map(|id| engine.table.get(*id)).map(|kept| describe(kept, None)).collect();
        if !stay.is_empty() {
            evidence.insert("kept".into(), Value::Array(stay));
        }
        let (count, noun) = (processes.len(), if processes.len() == 1 { "process" } else { "processes" });
        let mib = memory.mib();
        Some(Observation {
            key,
            severity: Severity::Warning,
            session: Some(session.id),
            subject: top.id,
            members: members.iter().chain(kept).copied().collect(),
            // Whose agent it was: that user's eyes are on it, whoever the helpers became.
            uid: agent.uid,
            cause: died,
            summary: format!(
                "{count} {noun} ({mib} MiB) left behind by {} (pid {}), which is dead",
                session.profile, agent.id.pid
            ),
            evidence,
            proposal,
        })
    }
}

/// A process as the evidence lists it: no arguments, since others read findings too.
fn describe(process: &Process, doubt: Option<&String>) -> Value {
    let (verdict, because) = match (&process.verdict, doubt) {
        (Verdict::Kept(because), _) => ("kept", Some(because)),
        (_, Some(because)) => ("unknown", Some(because)),
        (Verdict::Unknown(because), None) => ("unknown", Some(because)),
        (Verdict::Clear, None) => ("clear", None),
    };
    let seen = process.inspection.as_deref();
    let mut value = json!({
        "pid": process.id.pid,
        "start_time": process.id.start_time,
        "ppid": process.ppid,
        "kind": process.kind,
        "name": process.label(),
        "memory_bytes": process.cost(),
        "verdict": verdict,
    });
    if let Value::Object(fields) = &mut value {
        if let Some(because) = because {
            fields.insert("because".into(), json!(because));
        }
        if let Some(seen) = seen {
            fields.insert("parent_comm".into(), json!(seen.parent_comm));
            fields.insert("tty".into(), json!(seen.tty));
            fields.insert("cwd_deleted".into(), json!(seen.cwd_deleted));
            if !seen.listens.is_empty() {
                fields.insert("listens".into(), json!(seen.listens));
            }
        }
    }
    value
}
