//! Latency from the kernel's time of an agent's exit to the orphan finding.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use watchdog_api::{Event, EventDetail};

use super::daemon::BenchDaemon;
use super::figures::Figures;
use super::stage::{As, BenchStage};
use crate::quantile::{median, quantile};

const HELPERS: usize = 3;
/// Timeout for a finding.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Kills agents one after the other, and compares the times of the daemon's events.
pub(super) fn run(stage: &BenchStage, quick: bool, figures: &mut Figures) -> Result<()> {
    let deaths = if quick { 50 } else { 1_000 };
    let daemon = BenchDaemon::start(stage)?;
    let events = follow(&daemon)?;
    println!("latency: {deaths} agents with {HELPERS} helpers each, killed one after the other");
    let (mut found, mut heard) = (Vec::new(), Vec::new());
    for _ in 0..deaths {
        let death = one_death(stage, &events)?;
        found.push(death.found.as_secs_f64() * 1e3);
        heard.push(death.heard.as_secs_f64() * 1e3);
    }
    let (p50, p99, most) = (median(&found), quantile(&found, 0.99), quantile(&found, 1.0));
    figures.info("latency: death to finding, p50", format!("{p50:.2} ms"));
    figures.at_most("latency: death to finding, p99", 20.0, p99, 0.0, "ms");
    figures.info("latency: death to finding, max", format!("{most:.2} ms"));
    let (p50, p99) = (median(&heard), quantile(&heard, 0.99));
    figures.info("latency: death to follower, p50 / p99", format!("{p50:.2} / {p99:.2} ms"));
    Ok(())
}

/// Times since the exit.
struct DeathLatency {
    /// The finding opened.
    found: Duration,
    /// A follower of the events received it.
    heard: Duration,
}

/// An event, and the time at which it was read.
type EventReceipt = (SystemTime, Event);

fn follow(daemon: &BenchDaemon) -> Result<Receiver<EventReceipt>> {
    let lines = daemon.follow()?.lines();
    let (sender, events) = mpsc::channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let now = SystemTime::now();
            // The receiver is dropped at the end of the bench.
            let Ok(event) = serde_json::from_str(&line) else { return };
            if sender.send((now, event)).is_err() {
                return;
            }
        }
    });
    Ok(events)
}

fn one_death(stage: &BenchStage, events: &Receiver<EventReceipt>) -> Result<DeathLatency> {
    let helper = stage.program(As::Stranger);
    let mut agent = stage
        .worker(As::Agent, &["agent".as_ref(), helper.as_path()])
        .stdin(Stdio::piped())
        .spawn()
        .context("starting an agent")?;
    // Open until the finding exists: the helpers exit with it.
    let stdin = agent.stdin.take();
    let stdout = agent.stdout.take().context("the agent's stdout was not piped")?;
    let mut lines = BufReader::new(stdout).lines();
    let mut helpers = Vec::new();
    for _ in 0..HELPERS {
        let line = lines.next().context("a helper did not start")?.context("reading from a helper")?;
        helpers.push(line.parse().context("a helper did not print its pid")?);
    }
    agent.kill().context("killing the agent")?;
    agent.wait().context("waiting for the agent")?;
    let death = listen(agent.id(), &helpers, events);
    drop(stdin);
    // The pipe ends with the last helper, so the next agent starts alone.
    lines.for_each(drop);
    death
}

/// Reads events until there was the agent's exit and a finding about one of its helpers.
fn listen(agent: u32, helpers: &[u32], events: &Receiver<EventReceipt>) -> Result<DeathLatency> {
    let mut exits: HashMap<u32, String> = HashMap::new();
    loop {
        let (heard, event) = events.recv_timeout(TIMEOUT).context("timeout: no finding about the helpers")?;
        let Some(pid) = event.pid else {
            if let EventDetail::Gap { .. } = event.detail {
                bail!("events were dropped: the reader is too slow");
            }
            continue;
        };
        if let EventDetail::Exit { .. } = event.detail {
            exits.insert(pid, event.at);
        } else if let EventDetail::Finding { change, .. } = &event.detail
            && helpers.contains(&pid)
            && change == "opened"
        {
            let died = moment(exits.get(&agent).context("a finding before the exit")?)?;
            let found = moment(&event.at)?;
            let heard = heard.duration_since(SystemTime::UNIX_EPOCH).context("the clock is before 1970")?;
            return Ok(DeathLatency { found: found.saturating_sub(died), heard: heard.saturating_sub(died) });
        }
    }
}

/// An RFC 3339 time as time since the Unix epoch.
fn moment(text: &str) -> Result<Duration> {
    let moment: jiff::Timestamp = text.parse().with_context(|| format!("{text} is not a time"))?;
    Duration::try_from(moment.as_duration()).context("a time before 1970")
}
