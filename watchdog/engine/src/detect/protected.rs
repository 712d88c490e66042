//! Protected processes: the OOM killer spares a process with a low oom_score_adj, and what it starts. When such an agent or
//! helper fills memory, other processes die. All that have the value from one service, container or user are one finding.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::survey::{Helper, names};
use super::{Conclusions, Detector, Facts, HOLD_OFF};
use crate::effect::Effect;
use crate::finding::{Detection, Key, Proposal};
use crate::process::TrackedProcess;
use crate::unit;
use watchdog_api::evidence::{ProtectedEvidence, ProtectedProcess};
use watchdog_api::{Evidence, FindingKind, Severity};
use watchdog_types::{BootTime, Bytes, ProcessId, SessionId, Uid};

/// How many processes the evidence lists.
const LISTED: usize = 50;
/// Scores are read again this often: no event reports that choom(1) has changed one. Large processes and agents are read
/// more often for their limits.
const READ_EVERY: Duration = Duration::from_secs(60);
/// How many protected processes are read again at a time, and how many others, in turn. 100 µs each.
const READ_AGAIN: usize = 256;
const READ_IN_TURN: usize = 32;

/// What protected processes have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ProtectionSource {
    /// The user of their sessions.
    uid: Uid,
    /// See [`unit::source`].
    service: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Protected {
    /// Living processes with a low oom_score_adj.
    known: BTreeSet<ProcessId>,
    /// The processes that the open findings are named after.
    open: BTreeMap<ProtectionSource, ProcessId>,
    /// Some have exited, or their cgroup was not known.
    review: bool,
    /// When scores were last read again.
    read_again: BootTime,
    /// The last of the others that was read in its turn.
    turn: Option<ProcessId>,
}

/// A protected process that is not implied by another one.
struct SparedProcess<'a> {
    process: &'a TrackedProcess,
    is_agent: bool,
}

impl Detector for Protected {
    fn inspected(&mut self, process: ProcessId, facts: &Facts<'_>, out: &mut Conclusions) {
        self.read(process, facts, out);
    }

    fn limits_read(&mut self, process: ProcessId, facts: &Facts<'_>, out: &mut Conclusions) {
        self.read(process, facts, out);
    }

    fn exited(&mut self, process: ProcessId, _at: BootTime, _facts: &Facts<'_>, _out: &mut Conclusions) {
        self.review |= self.known.remove(&process);
    }

    fn surveyed(&mut self, _helpers: &[Helper], _pace: Duration, facts: &Facts<'_>, out: &mut Conclusions) {
        if !self.known.is_empty() {
            self.review_all(facts, out);
        }
        if facts.now.since(self.read_again) >= READ_EVERY {
            self.read_again = facts.now;
            self.read_scores(facts, out);
        }
    }

    fn tick(&mut self, facts: &Facts<'_>, out: &mut Conclusions) {
        if self.review {
            self.review_all(facts, out);
        }
    }
}

impl Protected {
    fn read_scores(&mut self, facts: &Facts<'_>, out: &mut Conclusions) {
        let is_next = |process: &&TrackedProcess| {
            let is_due = process.limits_asked.is_some_and(|asked| facts.now.since(asked) >= READ_EVERY);
            is_due && self.turn.is_none_or(|turn| process.id > turn) && !self.known.contains(&process.id)
        };
        let others = facts.table.living().filter(is_next).map(|process| process.id).take(READ_IN_TURN);
        let others: Vec<ProcessId> = others.collect();
        self.turn = others.last().copied().filter(|_| others.len() == READ_IN_TURN);
        let known = self.known.iter().copied().take(READ_AGAIN);
        known.chain(others).for_each(|process| out.ask(Effect::ReadProcessLimits(process)));
    }

    fn read(&mut self, process: ProcessId, facts: &Facts<'_>, out: &mut Conclusions) {
        let is_protected = facts.table.alive(process).is_some_and(TrackedProcess::is_protected);
        let changed = if is_protected { self.known.insert(process) } else { self.known.remove(&process) };
        if changed {
            self.review_all(facts, out);
        }
    }

    fn review_all(&mut self, facts: &Facts<'_>, out: &mut Conclusions) {
        self.review = false;
        let mut groups: BTreeMap<ProtectionSource, Vec<SparedProcess<'_>>> = BTreeMap::new();
        for spared in spared(facts, self.known.iter().filter_map(|known| facts.table.alive(*known))) {
            let waits = spared.process.limits_asked.is_some_and(|asked| facts.now.since(asked) < HOLD_OFF);
            match source(&spared, facts) {
                Some(source) if cgroup(spared.process).is_some() || !waits => {
                    groups.entry(source).or_default().push(spared);
                }
                _ => self.review = true,
            }
        }
        let closed: Vec<ProtectionSource> =
            self.open.keys().filter(|source| !groups.contains_key(source)).cloned().collect();
        for about in closed.iter().filter_map(|source| self.open.remove(source)) {
            let because = if facts.table.alive(about).is_some() { "no longer protected" } else { "gone" };
            out.close(Key { kind: FindingKind::Protected, about }, because);
        }
        for (source, group) in groups {
            // One that was moved to another unit may still name the finding of its former one.
            let unused = |spared: &&SparedProcess<'_>| !self.open.values().any(|about| *about == spared.process.id);
            let about = match self.open.get(&source) {
                Some(about) => *about,
                None => match group.iter().find(unused) {
                    Some(oldest) => oldest.process.id,
                    None => continue,
                },
            };
            self.open.insert(source.clone(), about);
            out.report(observation(about, source.uid, &group, facts));
        }
    }
}

/// The protected helpers of each user's sessions that no protected agent or helper implies.
pub(super) fn helpers_by_user(facts: &Facts<'_>) -> BTreeMap<Uid, u64> {
    let mut helpers: BTreeMap<Uid, u64> = BTreeMap::new();
    let all = spared(facts, facts.table.living().filter(|process| process.is_protected()));
    for source in all.iter().filter(|spared| !spared.is_agent).filter_map(|spared| source(spared, facts)) {
        *helpers.entry(source.uid).or_default() += 1;
    }
    helpers
}

/// The agents of running sessions, and the topmost helpers of those whose agent is not protected; the oldest first.
fn spared<'a>(facts: &Facts<'a>, protected: impl Iterator<Item = &'a TrackedProcess>) -> Vec<SparedProcess<'a>> {
    let protected: Vec<&TrackedProcess> = protected.collect();
    if protected.is_empty() {
        return Vec::new();
    }
    let agents: BTreeSet<ProcessId> = facts.living_agents().map(|agent| agent.id).collect();
    let sessions: BTreeSet<SessionId> =
        protected.iter().filter(|process| agents.contains(&process.id)).map(|agent| agent.session).collect();
    let is_implied = |process: &TrackedProcess| {
        let above = facts.table.above(process.id).take_while(|above| above.session == process.session);
        sessions.contains(&process.session) || above.filter(|above| above.alive()).any(TrackedProcess::is_protected)
    };
    let mut spared: Vec<SparedProcess<'_>> = protected
        .into_iter()
        .map(|process| SparedProcess { process, is_agent: agents.contains(&process.id) })
        .filter(|spared| spared.is_agent || !is_implied(spared.process))
        .collect();
    spared.sort_by_key(|spared| (spared.process.id.start_time, spared.process.id.pid));
    spared
}

fn source(spared: &SparedProcess<'_>, facts: &Facts<'_>) -> Option<ProtectionSource> {
    let uid = facts.sessions.get(spared.process.session)?.uid;
    Some(ProtectionSource { uid, service: cgroup(spared.process).and_then(unit::innermost).and_then(unit::source) })
}

fn cgroup(process: &TrackedProcess) -> Option<&str> {
    process.limits.as_deref()?.own_cgroup.as_deref()
}

/// The unit of all of them, or the template of their units.
fn unit_of(group: &[SparedProcess<'_>], service: Option<String>) -> Option<String> {
    let mut units = group.iter().map(|spared| cgroup(spared.process).and_then(unit::innermost));
    let first = units.next()??;
    if units.all(|unit| unit == Some(first)) { Some(first.to_owned()) } else { service }
}

fn listed(spared: &SparedProcess<'_>, facts: &Facts<'_>) -> ProtectedProcess {
    let SparedProcess { process, is_agent } = *spared;
    let root = facts.sessions.get(process.session).map_or(process.id, |session| session.root);
    let top = if is_agent { root } else { process.id };
    let counts = |member: &&TrackedProcess| member.session == process.session && (is_agent || member.is_protected());
    let members = || facts.table.alive(top).into_iter().chain(facts.table.living_below(top)).filter(counts);
    ProtectedProcess {
        agent: is_agent,
        memory_bytes: members().map(TrackedProcess::cost).sum(),
        name: process.label(),
        oom_score_adj: process.oom_score_adj.unwrap_or_default(),
        pid: process.id.pid,
        process_count: members().count(),
        session: process.session,
        start_time: process.id.start_time,
    }
}

fn observation(about: ProcessId, uid: Uid, group: &[SparedProcess<'_>], facts: &Facts<'_>) -> Detection {
    let mut processes: Vec<ProtectedProcess> = group.iter().map(|spared| listed(spared, facts)).collect();
    let agents = group.iter().filter(|spared| spared.is_agent).count();
    let sessions: BTreeSet<SessionId> = group.iter().map(|spared| spared.process.session).collect();
    let memory_bytes: Bytes = processes.iter().map(|spared| spared.memory_bytes).sum();
    let process_count = processes.iter().map(|spared| spared.process_count).sum();
    let name = names(processes.iter().map(|spared| spared.name.as_str()));
    let oom_score_adj = processes.iter().map(|spared| spared.oom_score_adj).min().unwrap_or_default();
    let service = group.first().and_then(|spared| source(spared, facts)).and_then(|source| source.service);
    processes.truncate(LISTED);
    let evidence = Evidence::Protected(Box::new(ProtectedEvidence {
        agents,
        helpers: group.len() - agents,
        memory_bytes,
        name,
        oom_score_adj,
        process_count,
        processes,
        unit: unit_of(group, service),
    }));
    Detection {
        key: Key { kind: FindingKind::Protected, about },
        severity: Severity::Warning,
        session: sessions.first().copied().filter(|_| sessions.len() == 1),
        subject: group.first().map_or(about, |spared| spared.process.id),
        members: group.iter().map(|spared| spared.process.id).collect(),
        uid,
        cause: facts.now,
        summary: evidence.to_string(),
        evidence,
        proposal: Proposal::Report,
    }
}
