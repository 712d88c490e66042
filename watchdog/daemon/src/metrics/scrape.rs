//! Metrics of states, which are read from the engine at each scrape.

use std::collections::BTreeMap;

use prometheus::{Counter, IntCounter, IntGauge};

use super::factory::MetricFactory;
use super::fleet_metrics::FleetMetrics;
use super::gate_metrics::GateMetrics;
use super::host_metrics::HostMetrics;
use super::numbers::{raise, signed};
use super::own_process::OwnProcess;
use super::session_metrics::SessionMetrics;
use crate::workers::fleet::FleetScrape;
use watchdog_api::{HistoryState, Tracking};
use watchdog_engine::gauges::Gauges;
use watchdog_types::HostMemory;

/// The states that a scrape shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scrape {
    pub(crate) gauges: Gauges,
    pub(crate) host: HostMemory,
    pub(crate) tracking: Tracking,
    /// Processes are tracked by polling /proc.
    pub(crate) degraded: bool,
    pub(crate) follower_drops: u64,
    pub(crate) history: HistoryState,
    pub(crate) queue_depth: u64,
    pub(crate) breaker_open: bool,
    /// Sessions that count against the limit of a user, by its name.
    pub(crate) users: BTreeMap<String, u64>,
    /// `None` without a fleet.
    pub(crate) fleet: Option<FleetScrape>,
}

#[derive(Debug)]
pub(super) struct ScrapedMetrics {
    sessions: SessionMetrics,
    host: HostMetrics,
    gate: GateMetrics,
    fleet: FleetMetrics,
    process: OwnProcess,
    reconciles: IntCounter,
    follower_drops: IntCounter,
    history_lost: IntCounter,
    history_bytes: IntGauge,
    history_failing: IntGauge,
    close_watch: IntGauge,
    untracked: IntGauge,
    missed_runs: IntCounter,
    degraded: IntGauge,
    reclaimed: IntCounter,
    refaulted: IntCounter,
    reclaim_time: Counter,
}

impl ScrapedMetrics {
    pub(super) fn new(make: &MetricFactory<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            sessions: SessionMetrics::new(make)?,
            host: HostMetrics::new(make)?,
            gate: GateMetrics::new(make)?,
            fleet: FleetMetrics::new(make)?,
            process: OwnProcess::new(make)?,
            reconciles: make.counter("reconciles_total", "Reconciliations of the process table with /proc.")?,
            follower_drops: make.counter(
                "follower_dropped_events_total",
                "Events dropped because a client that follows the journal was too slow.",
            )?,
            history_lost: make.counter("history_lost_total", "Records that could not be written to the history.")?,
            history_bytes: make.gauge("history_bytes", "Size of the history file.")?,
            history_failing: make.gauge("history_failing", "1 while the history cannot be written.")?,
            close_watch: make.gauge("close_watch", "1 while the memory programs are attached.")?,
            untracked: make.gauge(
                "untracked_processes",
                "Processes of sessions that do not fit the kernel's map and are tracked by polling /proc.",
            )?,
            missed_runs: make.counter(
                "missed_program_runs_total",
                "Upper bound of the events for which the kernel skipped its programs; part of the lost events.",
            )?,
            reclaimed: make.counter("reclaimed_bytes_total", "Resident memory of sessions that was paged out.")?,
            refaulted: make.counter(
                "refaulted_bytes_total",
                "The part of it that returned before the next page-out of the same process.",
            )?,
            reclaim_time: make
                .float_counter("reclaim_seconds_total", "Time spent paging out, including waits for the budget.")?,
            degraded: make.gauge("degraded", "1 while processes are tracked by polling /proc only.")?,
        })
    }

    pub(super) fn fill(&self, scrape: &Scrape) {
        let Scrape {
            gauges,
            host,
            tracking,
            degraded,
            follower_drops,
            history,
            queue_depth,
            breaker_open,
            users,
            fleet,
        } = scrape;
        self.sessions.fill(gauges);
        self.host.fill(host, gauges.oom_kills);
        self.gate.fill(&gauges.gate, users);
        self.gate.fill_queue(*queue_depth, *breaker_open);
        self.fleet.fill(fleet.as_ref());
        self.process.fill();
        raise(&self.reconciles, gauges.reconciles);
        raise(&self.follower_drops, *follower_drops);
        raise(&self.history_lost, history.lost_records);
        self.history_bytes.set(signed(history.bytes));
        self.history_failing.set(i64::from(history.problem.is_some()));
        self.close_watch.set(i64::from(tracking.close_watch));
        self.untracked.set(signed(tracking.untracked));
        raise(&self.missed_runs, tracking.missed_runs);
        self.degraded.set(i64::from(*degraded));
        raise(&self.reclaimed, gauges.reclaim.reclaimed.0);
        raise(&self.refaulted, gauges.reclaim.refaulted.0);
        self.reclaim_time.inc_by((gauges.reclaim.took.as_secs_f64() - self.reclaim_time.get()).max(0.0));
    }
}
