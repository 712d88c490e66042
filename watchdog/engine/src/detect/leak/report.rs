//! The report of a leak: how quickly, since when, how certain, and how much time is left.

use std::sync::Arc;
use std::time::Duration;

use super::ceiling::{Ceiling, Ceilings};
use super::group::Scope;
use super::known_ceilings::host_ceiling;
use super::state::{Leaks, leak_key};
use super::watch::Found;
use crate::detect::{Conclusions, Facts};
use crate::finding::{Detection, Proposal};
use watchdog_api::evidence::{LeakEvidence, LeakLimit, LeakScope};
use watchdog_api::{Evidence, Severity};
use watchdog_types::{BootTime, Bytes, ProcessId, SessionId};

/// A severity that was reached is left only when there is this many times as much time: rates sway.
const CALMER: f64 = 1.5;

/// A leak of a process, a role or a session at one moment.
struct Reported<'a> {
    found: &'a Found,
    memory: Bytes,
    /// The part of it that growth is judged by.
    judged: Bytes,
    nearest: Option<Ceiling>,
    now: BootTime,
}

impl Reported<'_> {
    fn is_flat(&self) -> bool {
        self.found.is_flat(self.now)
    }

    fn seconds_left(&self) -> Option<f64> {
        let left = self.nearest?.seconds_left(self.found.growth.rate);
        (!self.is_flat()).then_some(left)
    }

    fn evidence(&self, scope: LeakScope, name: String) -> LeakEvidence {
        let Found { growth, began, from, .. } = self.found;
        LeakEvidence {
            confidence: (growth.confidence * 100.0).round() / 100.0,
            earlier_instances: None,
            earlier_largest_bytes: None,
            flat: self.is_flat(),
            growing_seconds: seconds(self.now.since(*began)),
            grown_bytes: growth.grown,
            growth_bytes_per_second: growth.rate.round(),
            growth_high_bytes_per_second: growth.high.round(),
            growth_low_bytes_per_second: growth.low.round(),
            instances: None,
            limit: self.nearest.map(|nearest| nearest.limit),
            limit_bytes: self.nearest.map(|nearest| nearest.bytes),
            limit_cgroup: None,
            limit_left_bytes: self.nearest.map(|nearest| nearest.left),
            memory_bytes: self.memory,
            name,
            plateau_seconds: seconds(self.found.plateau(self.now)),
            processes_new: None,
            processes_new_bytes: None,
            processes_running: None,
            program: None,
            scope,
            seconds_to_limit: self.seconds_left().map(f64::round),
            total_grown_bytes: Bytes(self.judged.0.saturating_sub(from.0)),
            window_seconds: seconds(growth.window),
        }
    }
}

impl Leaks {
    pub(super) fn report_process(
        &mut self,
        process: ProcessId,
        ceilings: &Ceilings,
        facts: &Facts<'_>,
        out: &mut Conclusions,
    ) {
        let Some(watched) = self.processes.get(&process) else { return };
        let (session, program) = (watched.session, Arc::clone(&watched.program));
        if watched.watch.found().is_none() {
            return;
        }
        if self.crowds.holds(process, facts, out) {
            self.groups_yield(session, &program, out);
            if facts.findings.is_open(leak_key(process)) {
                out.close(leak_key(process), "its command's workers all grow");
            }
            return;
        }
        // Before its own is reported: theirs may be about the same process.
        self.groups_yield(session, &program, out);
        let Some(watched) = self.processes.get(&process) else { return };
        let (Some(found), Some(known)) = (watched.watch.found(), facts.table.alive(process)) else { return };
        let nearest = ceilings.nearest();
        let judged = watched.watch.series().memory();
        let reported = Reported { found, memory: known.memory.charged(), judged, nearest, now: facts.now };
        let of_cgroup = known.limits.as_deref().and_then(|limits| limits.cgroup.as_ref());
        let of_cgroup = of_cgroup.filter(|_| nearest.is_some_and(|ceiling| ceiling.limit == LeakLimit::Cgroup));
        let elders = self.groups.elders(watched).filter(|elders| elders.count > 0);
        let evidence = Evidence::Leak(Box::new(LeakEvidence {
            earlier_instances: elders.map(|elders| elders.count),
            earlier_largest_bytes: elders.map(|elders| elders.largest),
            limit_cgroup: of_cgroup.map(|cgroup| cgroup.path.clone()),
            program: Some((*program).to_owned()),
            ..reported.evidence(LeakScope::Process, known.label())
        }));
        let severity = severity(process, reported.seconds_left(), facts);
        let seen = Detection {
            key: leak_key(process),
            severity,
            session: Some(session),
            subject: process,
            members: vec![process],
            uid: known.uid,
            cause: found.seen,
            summary: evidence.to_string(),
            evidence,
            proposal: Proposal::Report,
        };
        out.report(seen);
    }

    pub(super) fn report_group(
        &mut self,
        scope: &Scope,
        about: ProcessId,
        members: &[ProcessId],
        memory: Bytes,
        facts: &Facts<'_>,
        out: &mut Conclusions,
    ) {
        let Some(group) = self.groups.get(scope) else { return };
        let Some(found) = group.watch.as_ref().and_then(|watch| watch.found()) else { return };
        let Some(subject) = members.first().and_then(|id| facts.table.alive(*id)) else { return };
        let (session, of, name, program, instances) = match scope {
            Scope::Role(session, program) => {
                let program = program.to_string();
                let instances = self.groups.instances(*session, program.as_str());
                (*session, LeakScope::Role, program.clone(), Some(program), Some(instances))
            }
            Scope::Session(session) => (*session, LeakScope::Session, agent_name(*session, facts), None, None),
        };
        let reported =
            Reported { found, memory, judged: memory, nearest: host_ceiling(facts).nearest(), now: facts.now };
        // Started since the growth began: the difference between more processes and larger ones.
        let new = members.iter().filter_map(|id| facts.table.alive(*id)).filter(|process| process.seen > found.began);
        let (mut count, mut hold) = (0, Bytes(0));
        for process in new {
            count += 1;
            hold += process.cost();
        }
        let evidence = Evidence::Leak(Box::new(LeakEvidence {
            instances,
            processes_new: Some(count),
            processes_new_bytes: Some(hold),
            processes_running: Some(members.len()),
            program,
            ..reported.evidence(of, name)
        }));
        let severity = severity(about, reported.seconds_left(), facts);
        let seen = Detection {
            key: leak_key(about),
            severity,
            session: Some(session),
            subject: subject.id,
            members: Vec::new(),
            uid: subject.uid,
            cause: found.seen,
            summary: evidence.to_string(),
            evidence,
            proposal: Proposal::Report,
        };
        out.report(seen);
    }
}

fn agent_name(session: SessionId, facts: &Facts<'_>) -> String {
    facts.agent_of(session).map_or_else(|| "an agent that is gone".to_owned(), |agent| agent.label())
}

/// By the time that is left, and by what its finding says so far.
fn severity(about: ProcessId, seconds_left: Option<f64>, facts: &Facts<'_>) -> Severity {
    let leaks = &facts.config.leaks;
    let before = facts.findings.severity(leak_key(about));
    let Some(left) = seconds_left else { return Severity::Info };
    let within = |bound: Duration, severity: Severity| {
        let factor = if before.is_some_and(|before| before >= severity) { CALMER } else { 1.0 };
        left <= bound.as_secs_f64() * factor
    };
    if within(leaks.critical_within, Severity::Critical) {
        Severity::Critical
    } else if within(leaks.warn_within, Severity::Warning) {
        Severity::Warning
    } else {
        Severity::Info
    }
}

fn seconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 10.0).round() / 10.0
}
