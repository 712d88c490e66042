//! Metrics of the fleet, as this host sees it. Series of pools exist only with a fleet, and never name a user.

use prometheus::{Gauge, GaugeVec, IntCounterVec, IntGauge, IntGaugeVec};

use super::factory::MetricFactory;
use super::numbers::raise;
use crate::workers::fleet::{FleetCounts, FleetScrape};
use watchdog_types::PoolName;

#[derive(Debug)]
pub(super) struct FleetMetrics {
    enabled: IntGauge,
    store_up: IntGauge,
    refused: IntGauge,
    hosts: Gauge,
    unreachable: Gauge,
    waiting: Gauge,
    held: IntGaugeVec,
    limits: GaugeVec,
    asks: IntCounterVec,
    renewals: IntCounterVec,
}

impl FleetMetrics {
    pub(super) fn new(make: &MetricFactory<'_>) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            enabled: make.gauge("fleet_enabled", "1 if this host shares limits with others ([fleet] store).")?,
            store_up: make.gauge("fleet_store_up", "1 while the fleet's store responds. 0 without a fleet, too.")?,
            refused: make.gauge(
                "fleet_grants_stopped",
                "1 while the store responds but grants nothing: it lost data, or another host has this host's identity.",
            )?,
            hosts: make.float_gauge("fleet_hosts", "Hosts that were up when the store was last read.")?,
            unreachable: make.float_gauge(
                "fleet_hosts_unreachable",
                "Hosts that were up within an hour, and were not when the store was last read.",
            )?,
            waiting: make.float_gauge("fleet_waiting", "Launches on this host that wait for a fleet slot.")?,
            held: make.gauges("fleet_held", "Slots in use by sessions of this host, by pool.", &["pool"])?,
            limits: make.float_gauges("fleet_limit", "Limit of all hosts together, by pool.", &["pool"])?,
            asks: make.counters("fleet_asks_total", "Slot requests by response.", &["answer"])?,
            renewals: make.counters(
                "fleet_renewals_total",
                "Restatements of this host's slots, by result: done or failed.",
                &["result"],
            )?,
        };
        for answer in FleetCounts::ANSWERS {
            metrics.asks.with_label_values(&[answer]);
        }
        for result in ["done", "failed"] {
            metrics.renewals.with_label_values(&[result]);
        }
        Ok(metrics)
    }

    pub(super) fn fill(&self, fleet: Option<&FleetScrape>) {
        self.enabled.set(i64::from(fleet.is_some()));
        self.held.reset();
        self.limits.reset();
        let Some(FleetScrape { snapshot, row }) = fleet else {
            self.store_up.set(0);
            return;
        };
        self.store_up.set(i64::from(snapshot.lost.is_none()));
        self.refused.set(i64::from(snapshot.problem.is_some()));
        self.hosts.set(snapshot.hosts.up.into());
        self.unreachable.set(snapshot.hosts.unreachable.into());
        for (answer, count) in &snapshot.counts.asks {
            raise(&self.asks.with_label_values(&[*answer]), *count);
        }
        raise(&self.renewals.with_label_values(&["done"]), snapshot.counts.renewals);
        raise(&self.renewals.with_label_values(&["failed"]), snapshot.counts.failed_renewals);
        let Some(row) = row else { return };
        self.waiting.set(row.waiting.into());
        let named = |pool: &&PoolName| !matches!(pool, PoolName::User(_));
        for pool in row.held.keys().chain(row.limits.keys()).filter(named) {
            let held = row.held.get(pool).copied().unwrap_or(0);
            let limit = row.limits.get(pool).map_or(f64::INFINITY, |limit| f64::from(*limit));
            let pool = pool.to_string();
            self.held.with_label_values(&[&pool]).set(held.into());
            self.limits.with_label_values(&[&pool]).set(limit);
        }
    }
}
