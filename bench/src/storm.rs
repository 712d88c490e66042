//! Many short-lived tracked processes: is anything lost, are losses counted exactly, and is the table right at the end?

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use super::daemon::BenchDaemon;
use super::figures::Figures;
use super::ground_truth::agree;
use super::stage::{As, BenchStage};

const PER_SECOND: u32 = 1_000;
/// How long the daemon may take to agree with /proc again: a reconcile begins at most once a second.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Runs a paced storm and a flood, each against a separate daemon.
pub(super) fn run(stage: &BenchStage, quick: bool, figures: &mut Figures) -> Result<()> {
    let seconds = if quick { 10 } else { 60 };
    let paced = storm(stage, &["storm", &PER_SECOND.to_string(), &seconds.to_string()])?;
    println!("storm: {paced}");
    let wanted = f64::from(PER_SECOND);
    figures.holds(
        "storm: tracked processes a second",
        "≥ 990",
        format!("{:.0} of {wanted} for {seconds} s", paced.rate()),
        paced.rate() >= 0.99 * wanted,
    );
    figures.holds("storm: lost", "0", paced.lost.to_string(), paced.lost == 0);
    paced.judge("storm", figures);

    let flood = storm(stage, &["flood", "10"])?;
    println!("flood: {flood}");
    figures.info("flood: tracked processes a second", format!("{:.0}", flood.rate()));
    figures.info("flood: lost", flood.lost.to_string());
    flood.judge("flood", figures);
    Ok(())
}

/// The events of a storm, and those that the daemon recorded.
pub(super) struct StormOutcome {
    forks: u64,
    execs: u64,
    exits: u64,
    seconds: f64,
    /// fork, exec and exit events that the daemon got.
    received: u64,
    pub(super) lost: u64,
    agreed: Option<Duration>,
    cpu: Duration,
}

impl StormOutcome {
    #[expect(clippy::cast_precision_loss, reason = "some hundred thousand processes")]
    fn rate(&self) -> f64 {
        self.forks as f64 / self.seconds
    }

    /// The daemon's CPU time for each process, in microseconds. What it does at rest meanwhile is included.
    pub(super) fn micros_per_process(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / (self.rate() * self.seconds)
    }

    fn expected(&self) -> u64 {
        self.forks + self.execs + self.exits
    }

    /// Whether all events are accounted for, and the table is right; what that cost.
    pub(super) fn judge(&self, name: &str, figures: &mut Figures) {
        self.judge_events(name, figures);
        figures.info(format!("{name}: daemon's CPU for each process"), format!("{:.0} µs", self.micros_per_process()));
    }

    /// Whether all events are accounted for, and the table is right.
    pub(super) fn judge_events(&self, name: &str, figures: &mut Figures) {
        let accounted = self.received + self.lost;
        let counted = format!("{accounted} of {}", self.expected());
        // Signals and OOM kills elsewhere on the host come on top.
        let all = accounted >= self.expected();
        figures.holds(format!("{name}: events received + counted as lost"), "all", counted, all);
        let agreed = self.agreed.map_or("no".to_owned(), |took| format!("after {:.0} ms", took.as_secs_f64() * 1e3));
        figures.holds(format!("{name}: table equals /proc"), "≤ 2 s", agreed, self.agreed.is_some());
    }
}

impl std::fmt::Display for StormOutcome {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { forks, execs, exits, seconds, received, lost, agreed, cpu } = self;
        write!(
            out,
            "{forks} forks, {execs} execs and {exits} exits in {seconds:.1} s; {received} events received, {lost} lost; \
             table and /proc agree after {agreed:.0?}; the daemon took {cpu:.1?} of CPU"
        )
    }
}

fn storm(stage: &BenchStage, work: &[&str]) -> Result<StormOutcome> {
    let daemon = BenchDaemon::start(stage)?;
    Storm::begin(stage, &daemon, work)?.end(0)
}

pub(super) struct Storm<'a> {
    daemon: &'a BenchDaemon,
    worker: Child,
    cpu_before: Duration,
    received_before: u64,
}

impl<'a> Storm<'a> {
    /// Has the worker do this work, as an agent.
    pub(super) fn begin(stage: &BenchStage, daemon: &'a BenchDaemon, work: &[&str]) -> Result<Self> {
        let (cpu_before, received_before) = (daemon.cpu()?, received(&daemon.metrics()?));
        let worker = stage.worker(As::Agent, work).stdin(Stdio::piped()).spawn().context("starting the worker")?;
        Ok(Self { daemon, worker, cpu_before, received_before })
    }

    /// Waits for its end. The daemon got so many other events meanwhile.
    pub(super) fn end(mut self, other_events: u64) -> Result<StormOutcome> {
        let mut line = String::new();
        let stdout = self.worker.stdout.take().context("the worker's stdout was not piped")?;
        BufReader::new(stdout).read_line(&mut line).context("reading what the worker forked")?;
        let mut words = line.split_whitespace().skip(1);
        let mut next = || words.next().with_context(|| format!("the worker said {line:?}"));
        let (forks, execs, exits) = (next()?.parse()?, next()?.parse()?, next()?.parse()?);
        let seconds = next()?.parse()?;
        let agreed = agree(self.daemon, self.worker.id(), TIMEOUT)?;
        // The daemon reads the counters once a second.
        std::thread::sleep(Duration::from_millis(2_100));
        let cpu = self.daemon.cpu()?.saturating_sub(self.cpu_before);
        let metrics = self.daemon.metrics()?;
        // The worker's own exec was one too.
        let received = received(&metrics).saturating_sub(self.received_before + other_events + 1);
        let lost = self.daemon.status()?.lost_events;
        drop(self.worker.stdin.take());
        self.worker.wait().context("waiting for the worker")?;
        Ok(StormOutcome { forks, execs, exits, seconds, received, lost, agreed, cpu })
    }
}

fn received(metrics: &BTreeMap<String, f64>) -> u64 {
    let count = |kind: &str| metrics.get(&format!("agent_watchdog_events_total{{type=\"{kind}\"}}")).copied();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counters")]
    let whole = |value: f64| value as u64;
    ["fork", "exec", "exit"].into_iter().filter_map(count).map(whole).sum()
}
