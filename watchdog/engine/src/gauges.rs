//! The numbers that the metrics show.

use std::collections::BTreeMap;

use super::Engine;
use super::gate::GateUsage;
use super::ownership::Ownership;
use super::reclaim::ReclaimTotals;
use watchdog_api::Evidence;
use watchdog_types::BootTime;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Sessions by profile and state.
    pub sessions: BTreeMap<(String, &'static str), u64>,
    /// Living processes by profile and kind.
    pub processes: BTreeMap<(String, &'static str), u64>,
    /// Memory by profile, shared pages counted once.
    pub memory: BTreeMap<String, u64>,
    /// The part of it that orphans hold.
    pub orphan_memory: BTreeMap<String, u64>,
    /// Growth of what leaks, in bytes per second, by profile.
    pub leaks: BTreeMap<String, f64>,
    /// The least time until a leak reaches a limit, in seconds, by limit. Absent: no leak approaches such a limit.
    pub seconds_to_limit: BTreeMap<&'static str, f64>,
    pub findings_open: BTreeMap<&'static str, u64>,
    /// Findings ever opened by kind.
    pub findings_total: BTreeMap<&'static str, u64>,
    /// Zombies of all sessions.
    pub zombies: u64,
    /// Victims of the OOM killer that were seen.
    pub oom_kills: u64,
    /// Reconciliations of the table with /proc.
    pub reconciles: u64,
    pub gate: GateUsage,
    pub reclaim: ReclaimTotals,
}

impl Engine {
    /// The numbers of `/metrics`.
    #[must_use]
    pub fn gauges(&self, now: BootTime) -> Gauges {
        let mut gauges = Gauges {
            oom_kills: self.oom_kills,
            reconciles: self.reconciles(),
            gate: self.gate_usage(now),
            reclaim: self.reclaim_totals(),
            ..Gauges::default()
        };
        for session in self.sessions.iter() {
            *gauges.sessions.entry((session.profile.clone(), self.state(session).name())).or_default() += 1;
        }
        for process in self.table.iter() {
            gauges.zombies += u64::from(process.zombie());
            if let Some(session) = self.sessions.get(process.session).filter(|_| process.alive()) {
                let (profile, memory) = (&session.profile, self.charged(process).0);
                *gauges.processes.entry((profile.clone(), process.kind.name())).or_default() += 1;
                *gauges.memory.entry(profile.clone()).or_default() += memory;
                if matches!(self.ownership(process), Ownership::Orphan { .. }) {
                    *gauges.orphan_memory.entry(profile.clone()).or_default() += memory;
                }
            }
        }
        for (session, rate) in self.detectors.leak_rates() {
            if let Some(session) = self.sessions.get(session) {
                *gauges.leaks.entry(session.profile.clone()).or_default() += rate;
            }
        }
        for finding in self.findings.open() {
            *gauges.findings_open.entry(finding.seen.key.kind.name()).or_default() += 1;
            if let Evidence::Leak(leak) = &finding.seen.evidence
                && let Some((limit, left)) = leak.limit.zip(leak.seconds_to_limit)
            {
                let least = gauges.seconds_to_limit.entry(limit.name()).or_insert(f64::INFINITY);
                *least = least.min(left.max(0.0));
            }
        }
        for (kind, total) in self.findings.totals() {
            gauges.findings_total.insert(kind.name(), *total);
        }
        gauges
    }

    /// Times that the table was reconciled with /proc.
    #[must_use]
    pub fn reconciles(&self) -> u64 {
        self.reconciler.reconciles
    }
}
