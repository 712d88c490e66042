//! Metrics of sessions, their memory and findings.

use std::collections::BTreeSet;

use prometheus::{GaugeVec, IntCounterVec, IntGauge, IntGaugeVec};

use super::factory::MetricFactory;
use super::numbers::{raise, signed};
use watchdog_api::evidence::LeakLimit;
use watchdog_api::{FindingKind, ProcessKind, SessionState};
use watchdog_engine::gate::UNPROFILED;
use watchdog_engine::gauges::Gauges;

#[derive(Debug)]
pub(super) struct SessionMetrics {
    sessions: IntGaugeVec,
    processes: IntGaugeVec,
    memory: IntGaugeVec,
    orphan_memory: IntGaugeVec,
    leaks: IntGaugeVec,
    seconds_to_limit: GaugeVec,
    zombies: IntGauge,
    findings: IntGaugeVec,
    findings_total: IntCounterVec,
}

impl SessionMetrics {
    pub(super) fn new(make: &MetricFactory<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            sessions: make.gauges(
                "sessions",
                "Sessions, by profile and state: running, orphaned (the agent is dead, helpers are left) or ended (what is \
                 left is kept).",
                &["profile", "state"],
            )?,
            processes: make.gauges("processes", "Living processes of sessions.", &["profile", "kind"])?,
            memory: make.gauges(
                "session_memory_bytes",
                "Anonymous, shared and swapped memory of all sessions of a profile, shared pages counted once.",
                &["profile"],
            )?,
            orphan_memory: make.gauges(
                "orphan_memory_bytes",
                "The part of session_memory_bytes that orphans hold, by the profile of their dead agent.",
                &["profile"],
            )?,
            leaks: make.gauges("leak_bytes_per_second", "Growth of all open leaks of a profile.", &["profile"])?,
            seconds_to_limit: make.float_gauges(
                "leak_time_to_limit_seconds",
                "Time until the first open leak reaches its limit, by kind of limit. +Inf: no leak approaches one.",
                &["limit"],
            )?,
            zombies: make.gauge("zombies", "Exited processes of sessions that their parents have not waited for.")?,
            findings: make.gauges("findings", "Open findings, by kind.", &["kind"])?,
            findings_total: make.counters("findings_total", "Findings ever opened, by kind.", &["kind"])?,
        })
    }

    /// All profiles have all series. Otherwise an alert has no zero to rise from.
    pub(super) fn fill(&self, gauges: &Gauges) {
        let configured = gauges.gate.profiles.keys().map(String::as_str);
        let holding = gauges.sessions.keys().map(|(profile, _)| profile.as_str());
        let profiles: BTreeSet<&str> = configured.chain(holding).chain([UNPROFILED]).collect();
        for family in [&self.sessions, &self.processes, &self.memory, &self.orphan_memory, &self.leaks] {
            family.reset();
        }
        for profile in profiles {
            for state in SessionState::ALL.map(SessionState::name) {
                let count = gauges.sessions.get(&(profile.to_owned(), state)).copied().unwrap_or(0);
                self.sessions.with_label_values(&[profile, state]).set(signed(count));
            }
            for kind in ProcessKind::ALL.map(ProcessKind::name) {
                let count = gauges.processes.get(&(profile.to_owned(), kind)).copied().unwrap_or(0);
                self.processes.with_label_values(&[profile, kind]).set(signed(count));
            }
            for (family, found) in [(&self.memory, &gauges.memory), (&self.orphan_memory, &gauges.orphan_memory)] {
                family.with_label_values(&[profile]).set(signed(found.get(profile).copied().unwrap_or(0)));
            }
            let rate = gauges.leaks.get(profile).copied().unwrap_or(0.0);
            self.leaks.with_label_values(&[profile]).set(rate.round() as i64);
        }
        for limit in LeakLimit::ALL.map(LeakLimit::name) {
            let left = gauges.seconds_to_limit.get(limit).copied().unwrap_or(f64::INFINITY);
            self.seconds_to_limit.with_label_values(&[limit]).set(left);
        }
        for kind in FindingKind::ALL.map(FindingKind::name) {
            let open = gauges.findings_open.get(kind).copied().unwrap_or(0);
            self.findings.with_label_values(&[kind]).set(signed(open));
            let total = gauges.findings_total.get(kind).copied().unwrap_or(0);
            raise(&self.findings_total.with_label_values(&[kind]), total);
        }
        self.zombies.set(signed(gauges.zombies));
    }
}
