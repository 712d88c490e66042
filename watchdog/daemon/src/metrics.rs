//! The metrics. The engine's thread counts events as they happen; states are read from it at each scrape.

mod factory;
mod fleet_metrics;
mod gate_metrics;
mod host_metrics;
mod numbers;
mod own_process;
#[cfg(test)]
mod packaging_tests;
#[cfg(test)]
mod reference;
mod scrape;
mod session_metrics;

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use prometheus::{Encoder, Gauge, Histogram, IntCounter, IntCounterVec, IntGauge, Registry, TextEncoder};

use factory::MetricFactory;
pub(super) use scrape::Scrape;
use scrape::ScrapedMetrics;
use watchdog_api::{ActionKind, ActionState, Cause, DeathFacts, ProcessKind, Receipt, RefusalReason};
use watchdog_engine::gate::UNPROFILED;
use watchdog_types::KernelEvent;

/// The values of the label `type` of `agent_watchdog_events_total`.
const EVENT_TYPES: [&str; 8] = ["fork", "exec", "exit", "oom", "signal", "memory_step", "reclaim", "denied"];
/// The outcome of a launch that no [`RefusalReason`] names.
const GRANTED: &str = "granted";

/// Shared between threads: each metric is atomic.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    events: IntCounterVec,
    lost: IntCounter,
    latency: Histogram,
    deaths: IntCounterVec,
    agent_deaths: IntCounterVec,
    refused: IntCounterVec,
    evicted: IntCounterVec,
    actions: IntCounterVec,
    launches: IntCounterVec,
    launch_wait: Histogram,
    reload_successful: IntGauge,
    reload_success_time: Gauge,
    states: ScrapedMetrics,
}

impl Metrics {
    /// All metrics, at zero.
    ///
    /// # Errors
    ///
    /// When a name or label is invalid, or registered twice.
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let make = MetricFactory { registry: &registry };
        let metrics = Self {
            events: make.counters("events_total", "Kernel events received, by type.", &["type"])?,
            lost: make.counter("lost_events_total", "Events that the kernel dropped.")?,
            latency: make.histogram(
                "detection_latency_seconds",
                "Time from the kernel event that caused a finding to its opening. Buckets from 0.25 ms to 5 s.",
                vec![0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0],
            )?,
            deaths: make.counters(
                "deaths_total",
                "Notable exits by cause: of agents, and all abnormal ones.",
                &["cause"],
            )?,
            agent_deaths: make.counters("agent_deaths_total", "Deaths of agents, by cause.", &["cause"])?,
            refused: make.counters(
                "refused_connections_total",
                "Connections refused because too many were open, by listener.",
                &["door"],
            )?,
            evicted: make.counters(
                "evicted_connections_total",
                "Connections closed to make room for another, the longest idle first, by listener.",
                &["door"],
            )?,
            actions: make.counters(
                "actions_total",
                "Actions by type and outcome: holding (until thawed), done, incomplete or called_off.",
                &["action", "outcome"],
            )?,
            launches: make.counters(
                "launches_total",
                "Launch requests by profile and outcome: granted, or the reason of the refusal.",
                &["profile", "outcome"],
            )?,
            launch_wait: make.histogram(
                "launch_wait_seconds",
                "Queue wait of granted launches. Buckets from 1 ms to 1 h.",
                vec![0.001, 0.01, 0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0],
            )?,
            reload_successful: make.gauge(
                "config_last_reload_successful",
                "1 if the last attempt to load the configuration succeeded, 0 if an older one is in force.",
            )?,
            reload_success_time: make.float_gauge(
                "config_last_reload_success_timestamp_seconds",
                "When the configuration in force was loaded, in seconds since the epoch.",
            )?,
            states: ScrapedMetrics::new(&make)?,
            registry: registry.clone(),
        };
        make.gauges("build_info", "Always 1; the label holds the version.", &["version"])?
            .with_label_values(&[env!("CARGO_PKG_VERSION")])
            .set(1);
        for kind in EVENT_TYPES {
            metrics.events.with_label_values(&[kind]);
        }
        for cause in Cause::ALL {
            metrics.deaths.with_label_values(&[cause.name()]);
            metrics.agent_deaths.with_label_values(&[cause.name()]);
        }
        for action in ActionKind::ALL {
            for state in ActionState::OUTCOMES {
                metrics.actions.with_label_values(&[action.name(), state.name()]);
            }
        }
        for listener in [LISTENER_CONTROL, LISTENER_METRICS] {
            metrics.refused.with_label_values(&[listener]);
            metrics.evicted.with_label_values(&[listener]);
        }
        metrics.know_profiles(&BTreeSet::from([UNPROFILED.to_owned()]));
        metrics.config_loaded(true);
        Ok(metrics)
    }

    /// Creates the series of these profiles, at zero: an alert has nothing to rise from otherwise.
    pub(super) fn know_profiles(&self, names: &BTreeSet<String>) {
        let outcomes = RefusalReason::ALL.map(RefusalReason::name);
        for profile in names {
            for outcome in outcomes.iter().chain([&GRANTED]) {
                self.launches.with_label_values(&[profile.as_str(), *outcome]);
            }
        }
    }

    /// The configuration was loaded, or refused.
    pub(super) fn config_loaded(&self, successful: bool) {
        self.reload_successful.set(i64::from(successful));
        if successful {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            self.reload_success_time.set(now.as_secs_f64());
        }
    }

    pub(super) fn event(&self, event: &KernelEvent) {
        let kind = match event {
            KernelEvent::Fork(_) => "fork",
            KernelEvent::Exec(_) => "exec",
            KernelEvent::Exit(_) => "exit",
            KernelEvent::Oom(_) => "oom",
            KernelEvent::Signal(_) => "signal",
            KernelEvent::MemoryStep(_) => "memory_step",
            KernelEvent::Reclaim(_) => "reclaim",
            KernelEvent::Denied(_) => "denied",
        };
        self.events.with_label_values(&[kind]).inc();
    }

    pub(super) fn lost(&self, records: u64) {
        self.lost.inc_by(records);
    }

    pub(super) fn lost_so_far(&self) -> u64 {
        self.lost.get()
    }

    pub(super) fn latency(&self, latency: Duration) {
        self.latency.observe(latency.as_secs_f64());
    }

    pub(super) fn death(&self, death: &DeathFacts) {
        self.deaths.with_label_values(&[death.cause.name()]).inc();
        if death.kind == Some(ProcessKind::Agent) {
            self.agent_deaths.with_label_values(&[death.cause.name()]).inc();
        }
    }

    pub(super) fn refused(&self, listener: &str) {
        self.refused.with_label_values(&[listener]).inc();
    }

    pub(super) fn evicted(&self, listener: &str) {
        self.evicted.with_label_values(&[listener]).inc();
    }

    /// Counts an action, once it has an outcome.
    pub(super) fn action(&self, receipt: &Receipt) {
        if !ActionState::OUTCOMES.contains(&receipt.state) {
            return;
        }
        self.actions.with_label_values(&[receipt.action.name(), receipt.state.name()]).inc();
    }

    pub(super) fn granted(&self, profile: &str, waited: Duration) {
        self.launches.with_label_values(&[profile, GRANTED]).inc();
        self.launch_wait.observe(waited.as_secs_f64());
    }

    pub(super) fn launch_refused(&self, profile: &str, reason: RefusalReason) {
        self.launches.with_label_values(&[profile, reason.name()]).inc();
    }

    /// The text of a scrape.
    ///
    /// # Errors
    ///
    /// When the registry holds a family without a sample, which is a defect.
    pub(super) fn render(&self, scrape: &Scrape) -> Result<Vec<u8>, prometheus::Error> {
        self.states.fill(scrape);
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

pub(super) const LISTENER_CONTROL: &str = "control";
pub(super) const LISTENER_METRICS: &str = "metrics";

#[cfg(test)]
mod tests {
    use super::*;
    use watchdog_engine::gate::ProfileUsage;
    use watchdog_types::Bytes;

    fn text(metrics: &Metrics, scrape: &Scrape) -> String {
        String::from_utf8(metrics.render(scrape).unwrap()).unwrap()
    }

    #[test]
    fn contract_names_are_exported() {
        let metrics = Metrics::new().unwrap();
        let mut scrape = Scrape::default();
        scrape.gauges.sessions.insert(("claude-code".to_owned(), "running"), 2);
        scrape.gauges.processes.insert(("claude-code".to_owned(), "mcp-server"), 3);
        scrape.gauges.memory.insert("claude-code".to_owned(), 4096);
        scrape.gauges.leaks.insert("claude-code".to_owned(), 1024.4);
        scrape.gauges.findings_open.insert("orphan", 1);
        scrape.gauges.findings_total.insert("orphan", 5);
        scrape.host.available = Bytes(7);
        let text = text(&metrics, &scrape);
        for line in [
            r#"agent_watchdog_sessions{profile="claude-code",state="running"} 2"#,
            r#"agent_watchdog_processes{kind="mcp-server",profile="claude-code"} 3"#,
            r#"agent_watchdog_session_memory_bytes{profile="claude-code"} 4096"#,
            r#"agent_watchdog_leak_bytes_per_second{profile="claude-code"} 1024"#,
            r#"agent_watchdog_findings{kind="orphan"} 1"#,
            r#"agent_watchdog_findings{kind="leak"} 0"#,
            r#"agent_watchdog_findings_total{kind="orphan"} 5"#,
            r#"agent_watchdog_events_total{type="fork"} 0"#,
            "agent_watchdog_lost_events_total 0",
            "agent_watchdog_detection_latency_seconds_count 0",
            "agent_watchdog_queue_depth 0",
            "agent_watchdog_breaker_open 0",
            "agent_watchdog_host_memory_available_bytes 7",
            "agent_watchdog_oom_kills_total 0",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is missing in\n{text}");
        }
        assert!(text.contains("agent_watchdog_build_info{version="));
    }

    #[test]
    fn launches_counted_by_profile_and_outcome() {
        let metrics = Metrics::new().unwrap();
        metrics.granted("claude-code", Duration::from_millis(50));
        metrics.launch_refused("claude-code", RefusalReason::QueueFull);
        let scrape = Scrape { queue_depth: 3, breaker_open: true, ..Scrape::default() };
        let text = text(&metrics, &scrape);
        for line in [
            r#"agent_watchdog_launches_total{outcome="granted",profile="claude-code"} 1"#,
            r#"agent_watchdog_launches_total{outcome="queue_full",profile="claude-code"} 1"#,
            r#"agent_watchdog_launch_wait_seconds_bucket{le="0.1"} 1"#,
            r#"agent_watchdog_launch_wait_seconds_bucket{le="0.01"} 0"#,
            "agent_watchdog_queue_depth 3",
            "agent_watchdog_breaker_open 1",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn series_of_profile_begin_at_zero() {
        let metrics = Metrics::new().unwrap();
        metrics.know_profiles(&BTreeSet::from(["codex".to_owned()]));
        let mut scrape = Scrape::default();
        scrape.gauges.gate.profiles.insert("codex".to_owned(), ProfileUsage::default());
        let text = text(&metrics, &scrape);
        for line in [
            r#"agent_watchdog_launches_total{outcome="granted",profile="codex"} 0"#,
            r#"agent_watchdog_launches_total{outcome="queue_full",profile="codex"} 0"#,
            r#"agent_watchdog_launches_total{outcome="granted",profile="other"} 0"#,
            r#"agent_watchdog_sessions{profile="codex",state="orphaned"} 0"#,
            r#"agent_watchdog_processes{kind="browser",profile="codex"} 0"#,
            r#"agent_watchdog_session_memory_bytes{profile="other"} 0"#,
            r#"agent_watchdog_orphan_memory_bytes{profile="codex"} 0"#,
            r#"agent_watchdog_leak_bytes_per_second{profile="codex"} 0"#,
            r#"agent_watchdog_leak_time_to_limit_seconds{limit="v8-heap"} inf"#,
            r#"agent_watchdog_gate_profile_sessions{profile="codex"} 0"#,
            r#"agent_watchdog_gate_profile_sessions_limit{profile="codex"} inf"#,
            r#"agent_watchdog_agent_deaths_total{cause="oom"} 0"#,
            r#"agent_watchdog_events_total{type="denied"} 0"#,
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn limits_shown_beside_their_use() {
        let mut scrape = Scrape { users: [("ann".to_owned(), 3)].into(), ..Scrape::default() };
        scrape.host.pressure_some_avg10 = Some(12.5);
        let (max_memory, max_total_memory) = (Some(Bytes(1 << 30)), None);
        let usage = ProfileUsage { sessions: 2, max_sessions: Some(4), max_memory, max_total_memory };
        scrape.gauges.gate.profiles.insert("codex".to_owned(), usage);
        scrape.gauges.gate.max_sessions = Some(8);
        scrape.gauges.gate.breaker_open = 80;
        scrape.gauges.seconds_to_limit.insert("host", 90.0);
        let text = text(&Metrics::new().unwrap(), &scrape);
        for line in [
            r#"agent_watchdog_gate_user_sessions{user="ann"} 3"#,
            "agent_watchdog_gate_user_sessions_limit inf",
            "agent_watchdog_gate_sessions_limit 8",
            r#"agent_watchdog_gate_profile_sessions{profile="codex"} 2"#,
            r#"agent_watchdog_gate_profile_sessions_limit{profile="codex"} 4"#,
            r#"agent_watchdog_session_memory_limit_bytes{profile="codex"} 1073741824"#,
            r#"agent_watchdog_profile_memory_limit_bytes{profile="codex"} inf"#,
            "agent_watchdog_breaker_open_limit_ratio 0.8",
            r#"agent_watchdog_leak_time_to_limit_seconds{limit="host"} 90"#,
            "agent_watchdog_host_memory_pressure_some_ratio 0.125",
            "agent_watchdog_host_memory_pressure_full_ratio NaN",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn refused_configuration_keeps_reload_time() {
        let metrics = Metrics::new().unwrap();
        let loaded = metrics.reload_success_time.get();
        metrics.config_loaded(false);
        assert_eq!((metrics.reload_successful.get(), metrics.reload_success_time.get()), (0, loaded));
        metrics.config_loaded(true);
        assert_eq!(metrics.reload_successful.get(), 1);
        assert!(metrics.reload_success_time.get() >= loaded && loaded > 1.7e9);
    }

    #[test]
    fn own_process_shown_in_standard_names() {
        let text = text(&Metrics::new().unwrap(), &Scrape::default());
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().parse().unwrap()
        };
        assert!(value("process_resident_memory_bytes ") > 1e6);
        assert!(value("process_virtual_memory_bytes ") > value("process_resident_memory_bytes "));
        assert!(value("process_start_time_seconds ") > 1.7e9);
        assert!(value("process_threads ") >= 1.0 && value("process_open_fds ") >= 3.0);
        assert!(value("process_max_fds ") >= value("process_open_fds "));
        assert!(value("process_cpu_seconds_total ") < 3_600.0);
    }

    #[test]
    fn families_have_help_and_suffix() {
        let text = text(&Metrics::new().unwrap(), &Scrape::default());
        let mut families = 0;
        for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').unwrap();
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
            assert!(text.contains(&format!("# HELP {name} ")), "{name} has no help");
            families += 1;
        }
        assert!(families > 10, "only {families} families");
    }

    #[test]
    fn removed_profile_vanishes_totals_stay() {
        let metrics = Metrics::new().unwrap();
        let mut scrape = Scrape::default();
        scrape.gauges.sessions.insert(("gone".to_owned(), "running"), 1);
        scrape.gauges.oom_kills = 3;
        assert!(text(&metrics, &scrape).contains("gone"));
        let text = text(&metrics, &Scrape::default());
        assert!(!text.contains("gone"));
        assert!(text.contains("agent_watchdog_oom_kills_total 3"));
    }
}
