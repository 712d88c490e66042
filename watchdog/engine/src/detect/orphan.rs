//! Orphans: helpers whose nearest agent or keeper is dead. One dead agent, or keeper, is one group, and one finding.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Conclusions, Detector, Facts, SOON};
use crate::finding::{Detection, Key, Proposal};
use crate::ownership::Ownership;
use crate::process::{TrackedProcess, Verdict};
use watchdog_api::evidence::{MemberVerdict, OrphanEvidence, OrphanMember};
use watchdog_api::{Evidence, FindingKind, Severity};
use watchdog_classify as classify;
use watchdog_config::Config;
use watchdog_types::{BootTime, ProcessId};

/// The longest that a finding waits for /proc to be looked at; the agent's death itself is certain.
const PATIENCE: Duration = Duration::from_millis(250);
/// An open group is described anew this often, for its memory.
const REFRESH: Duration = Duration::from_secs(2);
/// How many members the evidence lists; the rest is counted.
const LISTED: usize = 200;

/// The groups that are open or about to be.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    groups: BTreeMap<ProcessId, OrphanGroup>,
    /// Something happened that may have moved a process into a group, or out of one.
    stale: bool,
}

#[derive(Debug)]
struct OrphanGroup {
    /// When the agent died.
    died: BootTime,
    /// Members whose inspection is pending.
    waiting: BTreeSet<ProcessId>,
    described: Option<BootTime>,
    /// The time of the second inspection, after the grace and before a proposal.
    rechecked: Option<BootTime>,
}

impl OrphanGroup {
    /// The facts are as fresh as a proposal has to be: a server may have begun to listen since its agent died.
    fn settled(&self, now: BootTime) -> bool {
        self.rechecked.is_some_and(|at| self.waiting.is_empty() || now.since(at) >= PATIENCE)
    }

    fn new(died: BootTime) -> Self {
        Self { died, waiting: BTreeSet::new(), described: None, rechecked: None }
    }

    /// The only place that says when nothing is proposed yet.
    fn in_grace(&self, at: BootTime, config: &Config) -> bool {
        at.since(self.died) < config.orphans.grace
    }
}

impl Detector for Orphans {
    /// A process came to be known, or is kept no longer: it may be the first of a group.
    fn placed(&mut self, process: ProcessId, facts: &Facts<'_>, out: &mut Conclusions) {
        let Some(process) = facts.table.alive(process) else { return };
        let Ownership::Orphan { of } = facts.ownership(process) else { return };
        let died = facts.table.get(of).and_then(TrackedProcess::died).map_or(facts.now, |(at, _)| at);
        let group = self.groups.entry(of).or_insert_with(|| OrphanGroup::new(died));
        if group.waiting.insert(process.id) {
            out.inspect(process.id);
        }
    }

    fn changed(&mut self) {
        self.stale = true;
    }

    /// Groups and inspects what an agent left behind.
    fn exited(&mut self, dead: ProcessId, at: BootTime, facts: &Facts<'_>, out: &mut Conclusions) {
        if !facts.table.get(dead).is_some_and(|dead| dead.is_agent() || dead.verdict.is_kept()) {
            return;
        }
        // What was kept by its name may show a reason against it.
        kept_below(facts, dead).into_iter().for_each(|kept| out.inspect(kept));
        let mut left: BTreeMap<ProcessId, BTreeSet<ProcessId>> = BTreeMap::new();
        for process in facts.table.below(dead, |_| true).into_iter().filter_map(|id| facts.table.alive(id)) {
            if let Ownership::Orphan { of } = facts.ownership(process) {
                left.entry(of).or_default().insert(process.id);
            }
        }
        for (of, members) in left {
            members.iter().for_each(|member| out.inspect(*member));
            let group = self.groups.entry(of).or_insert_with(|| OrphanGroup::new(at));
            group.waiting.extend(members);
        }
    }

    /// A group is described when the last of its members has been inspected.
    fn inspected(&mut self, process: ProcessId, facts: &Facts<'_>, out: &mut Conclusions) {
        let ready = |(of, group): (&ProcessId, &mut OrphanGroup)| {
            (group.waiting.remove(&process) && group.waiting.is_empty()).then_some(*of)
        };
        let ready: Vec<ProcessId> = self.groups.iter_mut().filter_map(ready).collect();
        if ready.is_empty() {
            return;
        }
        ready.into_iter().for_each(|of| self.describe_group(of, facts, out));
        // A daemon with nothing else to do ticks slowly.
        out.review_policy();
    }

    fn tick(&mut self, facts: &Facts<'_>, out: &mut Conclusions) {
        let now = facts.now;
        let stale = std::mem::take(&mut self.stale);
        let due = |group: &OrphanGroup| match group.described {
            None => now.since(group.died) >= PATIENCE || group.waiting.is_empty(),
            Some(described) => {
                let graceful = |at| group.in_grace(at, facts.config);
                stale || now.since(described) >= REFRESH || graceful(described) != graceful(now)
            }
        };
        let due: Vec<ProcessId> = self.groups.iter().filter(|(_, group)| due(group)).map(|(of, _)| *of).collect();
        due.into_iter().for_each(|of| self.describe_group(of, facts, out));
    }

    /// While groups are not described, soon; then when the grace of one is over, after which its members are inspected once more.
    fn due(&self, now: BootTime, config: &Config) -> Option<Duration> {
        let pending =
            self.stale && !self.groups.is_empty() || self.groups.values().any(|group| group.described.is_none());
        let in_grace = self.groups.values().filter(|group| group.rechecked.is_none());
        let graces = in_grace.map(|group| config.orphans.grace.saturating_sub(now.since(group.died)));
        graces.chain(pending.then_some(SOON)).min()
    }
}

impl Orphans {
    /// Says what a group is now: opens its finding, brings it up to date, or closes it.
    fn describe_group(&mut self, of: ProcessId, facts: &Facts<'_>, out: &mut Conclusions) {
        let key = Key { kind: FindingKind::Orphan, about: of };
        let members = left_behind(facts, of);
        let kept = kept_below(facts, of);
        let now = facts.now;
        let Some(group) = self.groups.get_mut(&of) else { return };
        group.described = Some(now);
        let in_grace = group.in_grace(now, facts.config);
        let died = group.died;
        if members.is_empty() {
            self.groups.remove(&of);
            let because = if any_orphan_below(facts, of) {
                "part of the group of an agent further up"
            } else if kept.is_empty() {
                "gone"
            } else {
                "kept"
            };
            out.close(key, because);
            return;
        }
        if !in_grace && group.rechecked.is_none() {
            group.rechecked = Some(now);
            group.waiting.extend(members.iter().copied());
            members.iter().chain(&kept).for_each(|process| out.inspect(*process));
        }
        let may_propose = !in_grace && group.settled(now);
        members.iter().for_each(|member| out.inspect_for_new_parent(*member, facts));
        let member = |id: &ProcessId| facts.table.get(*id);
        // What ends by itself a moment after its parent is no news until the moment is over.
        let patient = members.iter().filter_map(member).all(|process| classify::ends_by_itself(&process.image));
        if patient && in_grace && !facts.findings.is_open(key) {
            return;
        }
        let group = Described { key, members: &members, kept: &kept, died, in_grace, may_propose };
        if let Some(seen) = group.observation(facts) {
            out.report(seen);
        }
    }
}

/// The living orphans of a group, oldest first.
fn left_behind(facts: &Facts<'_>, of: ProcessId) -> Vec<ProcessId> {
    let table = facts.table;
    let mut members: Vec<ProcessId> = table
        .living_below(of)
        .filter(|process| facts.ownership(process) == Ownership::Orphan { of })
        .map(|process| process.id)
        .collect();
    members.sort_by_key(|id| (id.start_time, id.pid));
    members
}

/// Some of what a dead agent left is in another group now: that of a dead agent above it.
fn any_orphan_below(facts: &Facts<'_>, of: ProcessId) -> bool {
    let table = facts.table;
    let orphan = |process: &TrackedProcess| matches!(facts.ownership(process), Ownership::Orphan { .. });
    table.living_below(of).any(orphan)
}

/// The dead process that a group is named after: the session's root, or the agent behind it while its launcher lives.
fn dead_agent<'a>(facts: &Facts<'a>, of: ProcessId) -> Option<&'a TrackedProcess> {
    let table = facts.table;
    let unit = table.get(of)?;
    let behind = |child: &&TrackedProcess| !child.alive() && child.is_agent() && child.session == unit.session;
    if !unit.alive() {
        return Some(unit);
    }
    unit.children.iter().filter_map(|child| table.get(*child)).find(behind).or(Some(unit))
}

/// The members that must be left alone, and why. Uncertainty spreads: killing the npm above an uncertain server kills the
/// server, and what runs below one is part of it.
fn doubts(facts: &Facts<'_>, members: &[ProcessId], kept: &[ProcessId]) -> BTreeMap<ProcessId, String> {
    let table = facts.table;
    let members: BTreeSet<ProcessId> = members.iter().copied().collect();
    let mut doubts = BTreeMap::new();
    let mut spread: Vec<(ProcessId, String)> = Vec::new();
    let wrappers = |id: ProcessId| table.above(id).take_while(|above| above.alive() && !above.is_agent());
    for process in members.iter().filter_map(|id| table.get(*id)) {
        let Verdict::Unknown(because) = &process.verdict else { continue };
        doubts.insert(process.id, because.clone());
        let part = format!("related to {} (pid {}), which is uncertain", process.label(), process.id.pid);
        let around = wrappers(process.id).map(|above| above.id).chain(table.below(process.id, |_| true));
        spread.extend(around.map(|id| (id, part.clone())));
    }
    for process in kept.iter().filter_map(|id| table.get(*id)) {
        // A daemon in its own session is independent of the shell that started it.
        if process.inspection.as_deref().is_some_and(|seen| seen.sid == process.id.pid.0) {
            continue;
        }
        let part = format!("above {} (pid {}), which is kept", process.label(), process.id.pid);
        spread.extend(wrappers(process.id).map(|above| (above.id, part.clone())));
    }
    for (id, because) in spread.into_iter().filter(|(id, _)| members.contains(id)) {
        doubts.entry(id).or_insert(because);
    }
    doubts
}

/// Kept processes below a dead agent.
fn kept_below(facts: &Facts<'_>, of: ProcessId) -> Vec<ProcessId> {
    let table = facts.table;
    let kept = |process: &&TrackedProcess| process.verdict.is_kept();
    table.living_below(of).filter(kept).map(|process| process.id).collect()
}

/// A group at the moment of its description.
struct Described<'a> {
    key: Key,
    members: &'a [ProcessId],
    kept: &'a [ProcessId],
    died: BootTime,
    in_grace: bool,
    may_propose: bool,
}

impl Described<'_> {
    fn observation(&self, facts: &Facts<'_>) -> Option<Detection> {
        let Self { key, members, kept, died, in_grace, may_propose } = *self;
        let processes: Vec<&TrackedProcess> = members.iter().filter_map(|id| facts.table.get(*id)).collect();
        let top = processes.first()?;
        let agent = dead_agent(facts, key.about)?;
        let session = facts.sessions.get(agent.session)?;
        let doubts = doubts(facts, members, kept);
        let clear = processes.len() - doubts.len();
        let proposal = if may_propose && clear > 0 { Proposal::Terminate } else { Proposal::Report };

        let listed = processes.iter().take(LISTED);
        let stay = kept.iter().take(LISTED).filter_map(|id| facts.table.get(*id));
        let evidence = Evidence::Orphan(Box::new(OrphanEvidence {
            agent_comm: agent.comm.clone(),
            agent_died_seconds_ago: facts.now.since(died).as_secs(),
            agent_pid: agent.id.pid,
            agent_start_time: agent.id.start_time,
            agent_status: agent.died().and_then(|(_, status)| status),
            clear,
            count: processes.len(),
            in_grace,
            keeper: (!agent.is_agent()).then(|| agent.label()),
            kept: stay.map(|process| list(process, None)).collect(),
            memory_bytes: processes.iter().map(|process| process.cost()).sum(),
            processes: listed.map(|process| list(process, doubts.get(&process.id))).collect(),
            profile: session.profile.clone(),
        }));
        Some(Detection {
            key,
            severity: Severity::Warning,
            session: Some(session.id),
            subject: top.id,
            members: members.iter().chain(kept).copied().collect(),
            // The agent's user, although helpers may run as another.
            uid: agent.uid,
            cause: died,
            summary: evidence.to_string(),
            evidence,
            proposal,
        })
    }
}

/// No arguments, since others read findings too.
fn list(process: &TrackedProcess, doubt: Option<&String>) -> OrphanMember {
    let (verdict, because) = match (&process.verdict, doubt) {
        (Verdict::Kept(because), _) => (MemberVerdict::Kept, Some(because)),
        (_, Some(because)) | (Verdict::Unknown(because), None) => (MemberVerdict::Unknown, Some(because)),
        (Verdict::Clear, None) => (MemberVerdict::Clear, None),
    };
    let seen = process.inspection.as_deref();
    OrphanMember {
        because: because.cloned(),
        cwd_deleted: seen.map(|seen| seen.cwd_deleted),
        kind: process.kind,
        listens: seen.map(|seen| seen.listens.clone()).unwrap_or_default(),
        memory_bytes: process.cost(),
        name: process.label(),
        parent_comm: seen.map(|seen| seen.parent_comm.clone()),
        pid: process.id.pid,
        ppid: process.ppid,
        start_time: process.id.start_time,
        tty: seen.map(|seen| seen.tty),
        verdict,
    }
}
