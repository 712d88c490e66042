//! Metrics of the gate: the queue, the breaker, the limits in force and what is used of them.

use std::collections::BTreeMap;

use prometheus::{Gauge, GaugeVec, IntGauge, IntGaugeVec};

use super::factory::MetricFactory;
use super::numbers::signed;
use watchdog_engine::gate::GateUsage;

#[derive(Debug)]
pub(super) struct GateMetrics {
    queue_depth: IntGauge,
    max_queue: IntGauge,
    breaker_open: IntGauge,
    breaker_opens: Gauge,
    breaker_closes: Gauge,
    sessions: IntGauge,
    max_sessions: Gauge,
    users: IntGaugeVec,
    max_sessions_per_user: Gauge,
    profiles: IntGaugeVec,
    max_profile_sessions: GaugeVec,
    max_memory: GaugeVec,
    max_total_memory: GaugeVec,
    reserve: IntGauge,
    promised: IntGauge,
    free: IntGauge,
}

impl GateMetrics {
    pub(super) fn new(make: &MetricFactory<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            queue_depth: make.gauge("queue_depth", "Launches waiting in the queue.")?,
            max_queue: make.gauge("queue_limit", "[gate] max_queue: launches that may wait.")?,
            breaker_open: make.gauge("breaker_open", "1 while the gate refuses every launch.")?,
            breaker_opens: make.float_gauge(
                "breaker_open_limit_ratio",
                "[gate] breaker_open: the share of memory in use at which the breaker opens.",
            )?,
            breaker_closes: make.float_gauge(
                "breaker_close_limit_ratio",
                "[gate] breaker_close: the share of memory in use below which it closes.",
            )?,
            sessions: make.gauge("gate_sessions", "Sessions that count against the limit of the host.")?,
            max_sessions: make
                .float_gauge("gate_sessions_limit", "[gate] max_sessions. +Inf: no limit, as for all limits.")?,
            users: make.gauges(
                "gate_user_sessions",
                "Sessions that count against the limit of a user. No series for a user without sessions.",
                &["user"],
            )?,
            max_sessions_per_user: make
                .float_gauge("gate_user_sessions_limit", "[gate] max_sessions_per_user, for each user.")?,
            profiles: make.gauges(
                "gate_profile_sessions",
                "Sessions that count against the limit of a profile.",
                &["profile"],
            )?,
            max_profile_sessions: make.float_gauges(
                "gate_profile_sessions_limit",
                "max_sessions of a profile.",
                &["profile"],
            )?,
            max_memory: make.float_gauges(
                "session_memory_limit_bytes",
                "max_memory of a profile: for each session. More is reported.",
                &["profile"],
            )?,
            max_total_memory: make.float_gauges(
                "profile_memory_limit_bytes",
                "max_total_memory of a profile: for all its sessions, session_memory_bytes. More is reported.",
                &["profile"],
            )?,
            reserve: make.gauge("gate_reserve_bytes", "[gate] reserve: memory that is never granted.")?,
            promised: make.gauge(
                "gate_promised_bytes",
                "Expected memory of recently granted launches that they do not use yet.",
            )?,
            free: make.gauge("gate_free_bytes", "Memory that further launches can get.")?,
        })
    }

    pub(super) fn fill_queue(&self, depth: u64, breaker_open: bool) {
        self.queue_depth.set(signed(depth));
        self.breaker_open.set(i64::from(breaker_open));
    }

    pub(super) fn fill(&self, usage: &GateUsage, users: &BTreeMap<String, u64>) {
        let GateUsage {
            sessions,
            max_sessions,
            users: _,
            max_sessions_per_user,
            profiles,
            max_queue,
            breaker_open,
            breaker_close,
            reserve,
            promised,
            free,
        } = usage;
        self.sessions.set(signed(*sessions));
        self.max_sessions.set(limit(*max_sessions));
        self.max_sessions_per_user.set(limit(*max_sessions_per_user));
        self.users.reset();
        for (user, count) in users {
            self.users.with_label_values(&[user]).set(signed(*count));
        }
        self.profiles.reset();
        for family in [&self.max_profile_sessions, &self.max_memory, &self.max_total_memory] {
            family.reset();
        }
        for (profile, usage) in profiles {
            let (bytes, profile) =
                (|limit: Option<watchdog_types::Bytes>| limit.map(|limit| limit.0 as f64), [profile]);
            self.profiles.with_label_values(&profile).set(signed(usage.sessions));
            self.max_profile_sessions.with_label_values(&profile).set(limit(usage.max_sessions));
            self.max_memory.with_label_values(&profile).set(limit(bytes(usage.max_memory)));
            self.max_total_memory.with_label_values(&profile).set(limit(bytes(usage.max_total_memory)));
        }
        self.max_queue.set(signed(*max_queue));
        self.breaker_opens.set(f64::from(*breaker_open) / 100.0);
        self.breaker_closes.set(f64::from(*breaker_close) / 100.0);
        self.reserve.set(signed(reserve.0));
        self.promised.set(signed(promised.0));
        self.free.set(signed(free.0));
    }
}

fn limit(number: Option<impl Into<f64>>) -> f64 {
    number.map_or(f64::INFINITY, Into::into)
}
