//! What is said of a leak: how quickly, since when, how certain, and how much time is left.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::ceiling::{Ceiling, Ceilings, Limit};
use super::feed::leak_key;
use super::group::Scope;
use super::watch::Found;
use crate::api::Severity;
use crate::engine::Step;
use crate::engine::finding::{Observation, Proposal};
use crate::engine::id::{BootTime, Bytes, ProcessId, SessionId};
use crate::units::span;

/// A severity that was reached is left only when there is this many times as much time: rates sway.
const CALMER: f64 = 1.5;

/// What is known of a leak at one moment, whoever it is about.
struct Told<'a> {
    scope: &'static str,
    found: &'a Found,
    memory: Bytes,
    nearest: Option<Ceiling>,
    now: BootTime,
}

impl Told<'_> {
    /// Memory has not been higher than before for half of the time that the growth was seen.
    fn is_flat(&self) -> bool {
        self.found.plateau(self.now) > (self.found.growth.window / 2).max(Duration::from_secs(20))
    }

    fn seconds_left(&self) -> Option<f64> {
        let left = self.nearest?.seconds_left(self.found.growth.rate);
        (!self.is_flat()).then_some(left)
    }

    fn evidence(&self) -> Map<String, Value> {
        let Found { growth, began, from, .. } = self.found;
        let mut evidence = Map::new();
        let mut put = |name: &str, value: Value| drop(evidence.insert(name.into(), value));
        put("scope", json!(self.scope));
        put("memory_bytes", json!(self.memory));
        put("growth_bytes_per_second", json!(growth.rate.round()));
        put("growth_low_bytes_per_second", json!(growth.low.round()));
        put("growth_high_bytes_per_second", json!(growth.high.round()));
        put("window_seconds", json!(seconds(growth.window)));
        put("grown_bytes", json!(growth.grown));
        put("confidence", json!((growth.confidence * 100.0).round() / 100.0));
        put("growing_seconds", json!(seconds(self.now.since(*began))));
        put("total_grown_bytes", json!(self.memory.0.saturating_sub(from.0)));
        put("plateau_seconds", json!(seconds(self.found.plateau(self.now))));
        put("seconds_to_limit", json!(self.seconds_left().map(f64::round)));
        if let Some(Ceiling { limit, bytes, left }) = self.nearest {
            put("limit", json!(limit.name()));
            put("limit_bytes", json!(bytes));
            put("limit_left_bytes", json!(left));
        }
        evidence
    }

    fn summary(&self, who: &str) -> String {
        let growth = &self.found.growth;
        let since = span(self.now.since(self.found.began));
        let begin = format!("{who} grows by {} since {since}", rate(growth.rate));
        if self.is_flat() {
            return format!(
                "{who} grew by {}, and has been flat for {}",
                rate(growth.rate),
                span(self.found.plateau(self.now))
            );
        }
        let Some((nearest, left)) = self.nearest.zip(self.seconds_left()) else { return begin };
        let ceiling = match nearest.limit {
            Limit::Configured => "its configured limit",
            Limit::Cgroup => "the limit of its cgroup",
            Limit::V8Heap => "the limit of its heap",
            Limit::Host => "the end of the host's memory",
        };
        format!("{begin}, and reaches {ceiling} in {}", span(Duration::from_secs_f64(left.min(1e9))))
    }
}

impl Step<'_> {
    pub(super) fn report_process_leak(&mut self, process: ProcessId, ceilings: &Ceilings) {
        let Some(watched) = self.engine.leaks.processes.get(&process) else { return };
        let (session, program) = (watched.session, Arc::clone(&watched.program));
        if watched.watch.found().is_none() {
            return;
        }
        // Before its own is told: theirs may be about the same process.
        self.groups_yield(session, &program);
        let Some(watched) = self.engine.leaks.processes.get(&process) else { return };
        let (Some(found), Some(known)) = (watched.watch.found(), self.engine.table.alive(process)) else { return };
        let nearest = ceilings.nearest();
        let told = Told { scope: "process", found, memory: known.memory.charged(), nearest, now: self.now };
        let mut evidence = told.evidence();
        evidence.insert("program".into(), json!(&*program));
        let of_cgroup = known.limits.as_deref().and_then(|limits| limits.cgroup.as_ref());
        if let Some(cgroup) = of_cgroup.filter(|_| nearest.is_some_and(|ceiling| ceiling.limit == Limit::Cgroup)) {
            evidence.insert("limit_cgroup".into(), json!(cgroup.path));
        }
        if let Some(elders) = self.engine.leaks.groups.elders(watched).filter(|elders| elders.count > 0) {
            evidence.insert("earlier_instances".into(), json!(elders.count));
            evidence.insert("earlier_largest_bytes".into(), json!(elders.largest));
        }
        let severity = self.leak_severity(process, told.seconds_left());
        let seen = Observation {
            key: leak_key(process),
            severity,
            session: Some(session),
            subject: process,
            members: vec![process],
            uid: known.uid,
            cause: found.seen,
            summary: told.summary(&known.label()),
            evidence,
            proposal: Proposal::Report,
        };
        self.observe(seen);
    }

    pub(super) fn report_group_leak(&mut self, scope: &Scope, about: ProcessId, members: &[ProcessId], memory: Bytes) {
        let Some(group) = self.engine.leaks.groups.get(scope) else { return };
        let Some(found) = group.watch.as_ref().and_then(|watch| watch.found()) else { return };
        let Some(subject) = members.first().and_then(|id| self.engine.table.alive(*id)) else { return };
        let (session, name, who) = match scope {
            Scope::Role(session, program) => {
                let count = self.engine.leaks.groups.instances(*session, program);
                (*session, "role", format!("{program} (started {count} times, {} running)", members.len()))
            }
            Scope::Session(session) => (*session, "session", format!("the session of {}", self.agent_name(*session))),
        };
        let told = Told { scope: name, found, memory, nearest: self.host_ceiling().nearest(), now: self.now };
        let mut evidence = told.evidence();
        evidence.insert("processes_running".into(), json!(members.len()));
        // Who came since the growth began, and what they hold: the difference between many and larger ones.
        let table = &self.engine.table;
        let newer = members.iter().filter_map(|id| table.alive(*id)).filter(|process| process.seen > found.began);
        let (mut count, mut hold) = (0, Bytes(0));
        for process in newer {
            count += 1;
            hold += process.cost();
        }
        evidence.insert("processes_new".into(), json!(count));
        evidence.insert("processes_new_bytes".into(), json!(hold));
        if let Scope::Role(_, program) = scope {
            evidence.insert("program".into(), json!(&**program));
        }
        let severity = self.leak_severity(about, told.seconds_left());
        let seen = Observation {
            key: leak_key(about),
            severity,
            session: Some(session),
            subject: subject.id,
            members: Vec::new(),
            uid: subject.uid,
            cause: found.seen,
            summary: told.summary(&who),
            evidence,
            proposal: Proposal::Report,
        };
        self.observe(seen);
    }

    fn agent_name(&self, session: SessionId) -> String {
        self.engine.agent_of(session).map_or_else(|| "an agent that is gone".to_owned(), |agent| agent.label())
    }

    /// By the time that is left, and by what its finding says so far.
    fn leak_severity(&self, about: ProcessId, seconds_left: Option<f64>) -> Severity {
        let leaks = &self.engine.config.leaks;
        let before = self.engine.findings.severity(leak_key(about));
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
}

fn seconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 10.0).round() / 10.0
}

/// In the unit of its size: a leak of a day is not read in bytes per second.
fn rate(bytes_per_second: f64) -> String {
    let mib = bytes_per_second / (1024.0 * 1024.0);
    if mib >= 1.0 {
        format!("{mib:.1} MiB a second")
    } else if mib * 60.0 >= 1.0 {
        format!("{:.1} MiB a minute", mib * 60.0)
    } else {
        format!("{:.1} MiB an hour", mib * 3_600.0)
    }
}
