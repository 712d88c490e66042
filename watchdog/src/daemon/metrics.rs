//! What `/metrics` shows. The task that owns the engine counts events as they come; everything that is a state is asked
//! of it when somebody scrapes.

use std::time::Duration;

use prometheus::{
    Encoder, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::api::{ActionKind, ActionState, Cause, FindingKind, HistoryState, Receipt, RefusalReason, Tracking};
use crate::engine::input::{HostMemory, KernelEvent};
use crate::engine::view::Gauges;

/// The types of kernel events, as `agent_watchdog_events_total` names them.
const EVENT_TYPES: [&str; 7] = ["fork", "exec", "exit", "oom", "signal", "memory_step", "reclaim"];

/// The states that a scrape shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Scrape {
    /// What the engine knows.
    pub(super) gauges: Gauges,
    /// Memory of the host.
    pub(super) host: HostMemory,
    /// How processes are followed.
    pub(super) tracking: Tracking,
    /// Processes are followed by looking at /proc.
    pub(super) degraded: bool,
    /// Events that followers were too slow for.
    pub(super) follower_drops: u64,
    /// How the history is written.
    pub(super) history: HistoryState,
    /// Launches that wait.
    pub(super) queue_depth: u64,
    /// The gate refuses every launch.
    pub(super) breaker_open: bool,
}

/// All metrics. Shared: each of them is atomic.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    events: IntCounterVec,
    lost: IntCounter,
    latency: Histogram,
    deaths: IntCounterVec,
    refused: IntCounterVec,
    evicted: IntCounterVec,
    actions: IntCounterVec,
    launches: IntCounterVec,
    launch_wait: Histogram,
    states: States,
}

/// What is filled in at a scrape.
#[derive(Debug)]
struct States {
    sessions: IntGaugeVec,
    processes: IntGaugeVec,
    memory: IntGaugeVec,
    leaks: IntGaugeVec,
    zombies: IntGauge,
    findings: IntGaugeVec,
    findings_total: IntCounterVec,
    oom_kills: IntCounter,
    reconciles: IntCounter,
    follower_drops: IntCounter,
    history_lost: IntCounter,
    history_bytes: IntGauge,
    history_failing: IntGauge,
    host_available: IntGauge,
    close_watch: IntGauge,
    untracked: IntGauge,
    missed_runs: IntCounter,
    degraded: IntGauge,
    queue_depth: IntGauge,
    breaker_open: IntGauge,
}

impl Metrics {
    /// All metrics, at zero.
    ///
    /// # Errors
    /// When a name or label is not one that Prometheus takes, or is there twice.
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let make = Maker { registry: &registry };
        let metrics = Self {
            events: make.counters("events_total", "Kernel events received, by type.", &["type"])?,
            lost: make.counter("lost_events_total", "Records that the kernel had to drop.")?,
            latency: make.histogram(
                "detection_latency_seconds",
                "From the kernel's time of the cause to the opening of the finding.",
                vec![0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0],
            )?,
            deaths: make.counters(
                "deaths_total",
                "Deaths that are worth remembering, by cause: agents, and whatever did not end well.",
                &["cause"],
            )?,
            refused: make.counters(
                "refused_connections_total",
                "Connections closed at once because too many were open, by door.",
                &["door"],
            )?,
            evicted: make.counters(
                "evicted_connections_total",
                "Connections closed to make room for another, the longest idle first, by door.",
                &["door"],
            )?,
            actions: make.counters(
                "actions_total",
                "Actions by what was done and how it came out: holding, done, incomplete, or called off.",
                &["action", "outcome"],
            )?,
            launches: make.counters(
                "launches_total",
                "Launches that were asked for, by profile and outcome: granted, or why they were refused.",
                &["profile", "outcome"],
            )?,
            launch_wait: make.histogram(
                "launch_wait_seconds",
                "How long launches that were granted waited for it.",
                vec![0.001, 0.01, 0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0],
            )?,
            states: States::new(&make)?,
            registry: registry.clone(),
        };
        make.gauges("build_info", "1; the version is in the label.", &["version"])?
            .with_label_values(&[env!("CARGO_PKG_VERSION")])
            .set(1);
        for kind in EVENT_TYPES {
            metrics.events.with_label_values(&[kind]);
        }
        for cause in Cause::ALL {
            metrics.deaths.with_label_values(&[cause.name()]);
        }
        for action in ActionKind::ALL {
            for state in ActionState::OUTCOMES {
                metrics.actions.with_label_values(&[action.name(), state.name()]);
            }
        }
        for door in [DOOR_CONTROL, DOOR_METRICS] {
            metrics.refused.with_label_values(&[door]);
            metrics.evicted.with_label_values(&[door]);
        }
        Ok(metrics)
    }

    /// Counts a kernel event.
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

    /// Counts records that the kernel dropped.
    pub(super) fn lost(&self, records: u64) {
        self.lost.inc_by(records);
    }

    /// All records that the kernel dropped so far.
    pub(super) fn lost_so_far(&self) -> u64 {
        self.lost.get()
    }

    /// A finding opened this long after its cause.
    pub(super) fn latency(&self, latency: Duration) {
        self.latency.observe(latency.as_secs_f64());
    }

    /// Counts a death that is worth remembering.
    pub(super) fn death(&self, cause: Cause) {
        self.deaths.with_label_values(&[cause.name()]).inc();
    }

    /// Counts a connection that was closed at once.
    pub(super) fn refused(&self, door: &str) {
        self.refused.with_label_values(&[door]).inc();
    }

    /// Counts a connection that was closed to make room for another.
    pub(super) fn evicted(&self, door: &str) {
        self.evicted.with_label_values(&[door]).inc();
    }

    /// Counts what came of an action, once that is known.
    pub(super) fn action(&self, receipt: &Receipt) {
        if !ActionState::OUTCOMES.contains(&receipt.state) {
            return;
        }
        self.actions.with_label_values(&[receipt.action.name(), receipt.state.name()]).inc();
    }

    /// Counts a launch that was granted after this wait.
    pub(super) fn granted(&self, profile: &str, waited: Duration) {
        self.launches.with_label_values(&[profile, "granted"]).inc();
        self.launch_wait.observe(waited.as_secs_f64());
    }

    /// Counts a launch that was refused.
    pub(super) fn launch_refused(&self, profile: &str, reason: RefusalReason) {
        self.launches.with_label_values(&[profile, reason.name()]).inc();
    }

    /// The text of a scrape.
    ///
    /// # Errors
    /// When the registry holds a family that has no sample; that is a defect.
    pub(super) fn render(&self, scrape: &Scrape) -> Result<Vec<u8>, prometheus::Error> {
        self.states.fill(scrape);
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

/// The label of the control socket.
pub(super) const DOOR_CONTROL: &str = "control";
/// The label of the metrics' address.
pub(super) const DOOR_METRICS: &str = "metrics";

impl States {
    fn new(make: &Maker<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            sessions: make.gauges("sessions", "Sessions, by profile and state.", &["profile", "state"])?,
            processes: make.gauges("processes", "Living processes of sessions.", &["profile", "kind"])?,
            memory: make.gauges(
                "session_memory_bytes",
                "Anonymous, shared and swapped memory of all sessions of a profile, shared pages counted once.",
                &["profile"],
            )?,
            leaks: make.gauges("leak_bytes_per_second", "Growth of all open leaks of a profile.", &["profile"])?,
            zombies: make.gauge("zombies", "Dead processes of sessions that their parents have not waited for.")?,
            findings: make.gauges("findings", "Open findings, by kind.", &["kind"])?,
            findings_total: make.counters("findings_total", "Findings ever opened, by kind.", &["kind"])?,
            oom_kills: make.counter("oom_kills_total", "Victims of the OOM killer that were seen.")?,
            reconciles: make.counter("reconciles_total", "Times that the table was brought into line with /proc.")?,
            follower_drops: make
                .counter("follower_dropped_events_total", "Events that followers of the journal were too slow for.")?,
            history_lost: make.counter("history_lost_total", "Records that could not be written to the history.")?,
            history_bytes: make.gauge("history_bytes", "Size of the history's file.")?,
            history_failing: make.gauge("history_failing", "1 while the history cannot be written.")?,
            host_available: make.gauge("host_memory_available_bytes", "MemAvailable of the host.")?,
            close_watch: make.gauge("close_watch", "1 while the memory programs are attached.")?,
            untracked: make.gauge(
                "untracked_processes",
                "Processes of sessions for which there is no room in the kernel's map: they are followed by looking at /proc.",
            )?,
            missed_runs: make.counter(
                "missed_program_runs_total",
                "Events for which the kernel skipped all its programs, at most; also part of the lost events.",
            )?,
            degraded: make.gauge("degraded", "1 while processes are followed by looking at /proc only.")?,
            queue_depth: make.gauge("queue_depth", "Launches that wait for the gate.")?,
            breaker_open: make.gauge("breaker_open", "1 while the gate refuses every launch.")?,
        })
    }

    fn fill(&self, scrape: &Scrape) {
        let Scrape { gauges, host, tracking, degraded, follower_drops, history, queue_depth, breaker_open } = scrape;
        let Gauges {
            sessions,
            processes,
            memory,
            leaks,
            findings_open,
            findings_total,
            zombies,
            oom_kills,
            reconciles,
        } = gauges;
        self.sessions.reset();
        for ((profile, state), count) in sessions {
            self.sessions.with_label_values(&[profile, *state]).set(signed(*count));
        }
        self.processes.reset();
        for ((profile, kind), count) in processes {
            self.processes.with_label_values(&[profile, *kind]).set(signed(*count));
        }
        self.memory.reset();
        for (profile, bytes) in memory {
            self.memory.with_label_values(&[profile]).set(signed(*bytes));
        }
        self.leaks.reset();
        for (profile, rate) in leaks {
            self.leaks.with_label_values(&[profile]).set(rate.round() as i64);
        }
        for kind in FindingKind::ALL.map(FindingKind::name) {
            let open = findings_open.get(kind).copied().unwrap_or(0);
            self.findings.with_label_values(&[kind]).set(signed(open));
            let total = findings_total.get(kind).copied().unwrap_or(0);
            raise(&self.findings_total.with_label_values(&[kind]), total);
        }
        self.zombies.set(signed(*zombies));
        raise(&self.oom_kills, *oom_kills);
        raise(&self.reconciles, *reconciles);
        raise(&self.follower_drops, *follower_drops);
        raise(&self.history_lost, history.lost_records);
        self.history_bytes.set(signed(history.bytes));
        self.history_failing.set(i64::from(history.problem.is_some()));
        self.host_available.set(signed(host.available.0));
        self.close_watch.set(i64::from(tracking.close_watch));
        self.untracked.set(signed(tracking.untracked));
        raise(&self.missed_runs, tracking.missed_runs);
        self.degraded.set(i64::from(*degraded));
        self.queue_depth.set(signed(*queue_depth));
        self.breaker_open.set(i64::from(*breaker_open));
    }
}

/// Makes metrics of this program's name space, and registers them.
struct Maker<'a> {
    registry: &'a Registry,
}

impl Maker<'_> {
    fn options(name: &str, help: &str) -> Opts {
        Opts::new(name, help).namespace("agent_watchdog")
    }

    fn keep<M: prometheus::core::Collector + Clone + 'static>(&self, metric: M) -> Result<M, prometheus::Error> {
        self.registry.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.keep(IntCounter::with_opts(Self::options(name, help))?)
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
        self.keep(IntCounterVec::new(Self::options(name, help), labels)?)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.keep(IntGauge::with_opts(Self::options(name, help))?)
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, prometheus::Error> {
        self.keep(IntGaugeVec::new(Self::options(name, help), labels)?)
    }

    fn histogram(&self, name: &str, help: &str, buckets: Vec<f64>) -> Result<Histogram, prometheus::Error> {
        let options = HistogramOpts { common_opts: Self::options(name, help), buckets };
        self.keep(Histogram::with_opts(options)?)
    }
}

/// Brings a counter up to a total that somebody else counts.
fn raise(counter: &IntCounter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::id::Bytes;

    fn text(metrics: &Metrics, scrape: &Scrape) -> String {
        String::from_utf8(metrics.render(scrape).unwrap()).unwrap()
    }

    #[test]
    fn the_names_of_the_contract_are_there() {
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
    fn launches_are_counted_by_profile_and_outcome() {
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
    fn every_family_has_help_and_type_and_ends_as_its_type_asks() {
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
    fn a_profile_that_is_gone_is_shown_no_more_and_totals_never_fall() {
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
