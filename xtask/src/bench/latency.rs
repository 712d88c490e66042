//! From the kernel's time of an agent's death to the finding that its helpers are orphans.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use watchdog::api::Event;

use super::daemon::Daemon;
use super::figures::Figures;
use super::stage::{As, Stage};
use crate::quantile::{median, quantile};

const HELPERS: usize = 3;
/// A finding that takes longer is missing.
const PATIENCE: Duration = Duration::from_secs(10);

/// Lets agents die one after the other, and compares the times of the daemon's events.
pub(super) fn run(stage: &Stage, quick: bool, figures: &mut Figures) -> Result<()> {
    let deaths = if quick { 50 } else { 1_000 };
    let daemon = Daemon::start(stage)?;
    let events = follow(&daemon)?;
    println!("latency: {deaths} agents with {HELPERS} helpers each, killed one after the other");
    let (mut found, mut heard) = (Vec::new(), Vec::new());
    for _ in 0..deaths {
        let death = one_death(stage, &events)?;
        found.push(death.found.as_secs_f64() * 1e3);
        heard.push(death.heard.as_secs_f64() * 1e3);
    }
    let (p50, p99, most) = (median(&found), quantile(&found, 0.99), quantile(&found, 1.0));
    figures.told("latency: death to finding, p50", format!("{p50:.2} ms"));
    figures.at_most("latency: death to finding, p99", 20.0, p99, 0.0, "ms");
    figures.told("latency: death to finding, max", format!("{most:.2} ms"));
    let (p50, p99) = (median(&heard), quantile(&heard, 0.99));
    figures.told("latency: death to a follower's ear, p50 / p99", format!("{p50:.2} / {p99:.2} ms"));
    Ok(())
}

/// How long after the kernel's time of the death.
struct Death {
    /// The daemon made its finding.
    found: Duration,
    /// Somebody who follows the events had it.
    heard: Duration,
}

/// An event, and when it was read.
type Heard = (SystemTime, Event);

fn follow(daemon: &Daemon) -> Result<Receiver<Heard>> {
    let lines = daemon.follow()?.lines();
    let (tell, events) = mpsc::channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let now = SystemTime::now();
            // The follower has gone when the bench is over, and so goes this.
            let Ok(event) = serde_json::from_str(&line) else { return };
            if tell.send((now, event)).is_err() {
                return;
            }
        }
    });
    Ok(events)
}

fn one_death(stage: &Stage, events: &Receiver<Heard>) -> Result<Death> {
    let helper = stage.program(As::Stranger);
    let mut agent = stage
        .worker(As::Agent, &["agent".as_ref(), helper.as_path()])
        .stdin(Stdio::piped())
        .spawn()
        .context("starting an agent")?;
    // Held until the finding is there: the helpers end with it.
    let stdin = agent.stdin.take();
    let stdout = agent.stdout.take().context("the agent's stdout was not piped")?;
    let mut lines = BufReader::new(stdout).lines();
    let mut helpers = Vec::new();
    for _ in 0..HELPERS {
        let line = lines.next().context("a helper did not start")?.context("reading from a helper")?;
        helpers.push(line.parse().context("a helper did not say its pid")?);
    }
    agent.kill().context("killing the agent")?;
    agent.wait().context("waiting for the agent")?;
    let death = listen(agent.id(), &helpers, events);
    drop(stdin);
    // The last helper's end is the end of this pipe: the next agent starts with nobody around.
    lines.for_each(drop);
    death
}

/// Reads events until there was the agent's exit and a finding about one of its helpers.
fn listen(agent: u32, helpers: &[u32], events: &Receiver<Heard>) -> Result<Death> {
    let mut exits: HashMap<u32, String> = HashMap::new();
    loop {
        let (heard, event) = events.recv_timeout(PATIENCE).context("no finding about the helpers")?;
        let Some(pid) = event.pid else {
            if event.kind == "gap" {
                bail!("events came faster than they were read");
            }
            continue;
        };
        if event.kind == "exit" {
            exits.insert(pid, event.at);
        } else if event.kind == "finding"
            && helpers.contains(&pid)
            && event.detail.get("change").is_some_and(|change| change == "opened")
        {
            let died = moment(exits.get(&agent).context("a finding came before the death")?)?;
            let found = moment(&event.at)?;
            let heard = heard.duration_since(SystemTime::UNIX_EPOCH).context("the clock is before 1970")?;
            return Ok(Death { found: found.saturating_sub(died), heard: heard.saturating_sub(died) });
        }
    }
}

/// An RFC 3339 moment, as time since 1970.
fn moment(text: &str) -> Result<Duration> {
    let moment: jiff::Timestamp = text.parse().with_context(|| format!("{text} is not a moment"))?;
    Duration::try_from(moment.as_duration()).context("a moment before 1970")
}
