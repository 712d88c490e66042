//! Ten thousand clients that want to be launched, while somebody else's agent forks and others begin: what becomes of the
//! clients, what do they cost the daemon, and does it miss anything meanwhile?

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use watchdog::api::{Event, Tree};

use super::super::daemon::Daemon;
use super::super::figures::Figures;
use super::super::stage::{As, Stage};
use super::super::storm::Storm;
use super::super::worker::{Fate, monotonic};
use super::launches::{Launches, Said, began};
use super::{millis, with_places};
use crate::quantile::{median, quantile};

const CLIENTS: usize = 10_000;
/// What the configuration has where it says nothing.
const MAX_QUEUE: usize = 1_000;
/// Processes that an agent beside them forks in a second.
const FORKS: u32 = 200;
/// A client that is not decided by then is lost.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lets them come, and looks at the daemon meanwhile and for as long as the storm lasts.
pub(super) fn run(stage: &Stage, quick: bool, figures: &mut Figures) -> Result<()> {
    let (clients, seconds) = if quick { (3_000, 10) } else { (CLIENTS, 30) };
    let daemon = Daemon::configured(stage, &with_places(1))?;
    let mut launches = Launches::new(stage, &daemon)?;
    launches.start(Stdio::null())?;
    while !matches!(launches.next()?.1, Said::Began(_)) {}
    println!("gate: {clients} clients while one launch runs, and an agent forks {FORKS} processes a second");
    let events = follow(&daemon)?;
    println!("  without them: RSS {} KiB", daemon.memory_kib("VmRSS")?);
    let storm = Storm::begin(stage, &daemon, &["storm", &FORKS.to_string(), &seconds.to_string()])?;
    let (cpu, start) = (daemon.cpu_by_thread()?, Instant::now());
    let mut crowd = stage
        .worker(As::Stranger, &["crowd".as_ref(), daemon.socket().as_path(), clients.to_string().as_ref()])
        .stdin(Stdio::piped())
        .spawn()
        .context("starting the clients")?;
    let fates = listen(crowd.stdout.take().context("the clients' stdout was not piped")?);
    let (mut counts, mut seen) = (BTreeMap::<Fate, usize>::new(), Vec::new());
    let mut decided = None;
    while start.elapsed() < Duration::from_secs(seconds) || decided.is_none() {
        for fate in fates.try_iter() {
            *counts.entry(fate).or_default() += 1;
        }
        if decided.is_none() && counts.values().sum::<usize>() == clients {
            decided = Some(start.elapsed());
            println!(
                "  with them:    RSS {} KiB; CPU until they are decided: {}",
                daemon.memory_kib("VmRSS")?,
                spent(&daemon, &cpu)?
            );
        }
        ensure!(decided.is_some() || start.elapsed() < PATIENCE, "of {clients} only these are decided: {counts:?}");
        seen.push(millis(new_agent(stage, &daemon, &events)?));
        thread::sleep(Duration::from_millis(100));
    }
    let decided = decided.unwrap_or_default();
    let of = |fate| counts.get(&fate).copied().unwrap_or(0);
    let (waiting, refused, turned_away) = (of(Fate::Waits), of(Fate::Refused), of(Fate::TurnedAway));
    println!(
        "  all decided after {decided:.1?}: {waiting} wait, {refused} refused by the gate, {turned_away} by a full door, {} \
         without an answer; {} wait at the end",
        of(Fate::Broken),
        daemon.queue()?.waiting.len()
    );
    figures.told(format!("gate: crowd of {clients}: all decided after"), format!("{:.1} s", decided.as_secs_f64()));
    figures.holds("gate: crowd: wait", "= 1000", waiting.to_string(), waiting == MAX_QUEUE);
    let told = format!("{refused} + {turned_away}");
    figures.holds(
        "gate: crowd: refused by gate + door",
        "all others",
        told,
        waiting + refused + turned_away == clients,
    );
    #[expect(clippy::cast_precision_loss, reason = "some ten thousand KiB")]
    let peak = daemon.memory_kib("VmHWM")? as f64 / 1024.0;
    figures.at_most("gate: crowd: the daemon's RSS, at most", 64.0, peak, 0.0, "MiB");
    let (p50, most) = (median(&seen), quantile(&seen, 1.0));
    figures.told("gate: crowd: a new agent is seen, p50", format!("{p50:.0} ms"));
    figures.at_most(format!("gate: crowd: each of {} is seen within", seen.len()), 1_000.0, most, 0.0, "ms");
    // Each agent that was started executed one program, and exited.
    let outcome = storm.end(2 * seen.len() as u64)?;
    println!("  storm: {outcome}");
    figures.holds("gate: crowd: lost", "0", outcome.lost.to_string(), outcome.lost == 0);
    outcome.judge("gate: crowd", figures);
    drop(crowd.stdin.take());
    crowd.wait().context("waiting for the clients")?;
    Ok(())
}

/// CPU time of the daemon's threads since then, of those that took some.
fn spent(daemon: &Daemon, before: &BTreeMap<String, Duration>) -> Result<String> {
    let threads = daemon.cpu_by_thread()?.into_iter().map(|(name, cpu)| {
        let spent = cpu.saturating_sub(before.get(&name).copied().unwrap_or_default());
        (name, spent)
    });
    let busy = threads.filter(|(_, spent)| *spent >= Duration::from_millis(10));
    Ok(busy.map(|(name, spent)| format!("{name} {spent:.0?}")).collect::<Vec<_>>().join(", "))
}

fn listen(mut from: impl Read + Send + 'static) -> Receiver<Fate> {
    let (tell, fates) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            for fate in bytes[..read].iter().filter_map(|byte| Fate::of(*byte)) {
                if tell.send(fate).is_err() {
                    return;
                }
            }
        }
    });
    fates
}

/// What somebody hears who follows the daemon's events.
enum Heard {
    /// An event of this process.
    Of(u32),
    /// There were more events than a follower is kept: some are not told.
    Gap,
}

/// Starts an agent. How long it takes from its main until somebody who follows the daemon's events hears of it, or hears that
/// something was not told, and finds the agent in the tree.
fn new_agent(stage: &Stage, daemon: &Daemon, events: &Receiver<(Duration, Heard)>) -> Result<Duration> {
    let before = monotonic();
    let mut agent = stage.worker(As::Agent, &["moment", "--stay"]).spawn().context("starting an agent")?;
    let mut line = String::new();
    let stdout = agent.stdout.take().context("the agent's stdout was not piped")?;
    BufReader::new(stdout).read_line(&mut line).context("reading when the agent began")?;
    let (_, began) = began(line.trim()).with_context(|| format!("the agent said {line:?}"))?;
    let heard = loop {
        match events.recv_timeout(PATIENCE).context("an agent was never seen")? {
            (heard, Heard::Of(pid)) if pid == agent.id() && heard >= before => break heard,
            (_, Heard::Gap) if has(&daemon.tree()?, agent.id()) => break monotonic(),
            (_, Heard::Of(_) | Heard::Gap) => {}
        }
    };
    agent.kill().context("killing the agent")?;
    agent.wait().context("waiting for the agent")?;
    Ok(heard.saturating_sub(began))
}

fn has(tree: &Tree, pid: u32) -> bool {
    tree.sessions.iter().flat_map(|session| &session.processes).any(|process| process.pid == pid)
}

/// What the events tell, and when they were read.
fn follow(daemon: &Daemon) -> Result<Receiver<(Duration, Heard)>> {
    let lines = daemon.follow()?.lines();
    let (tell, heard) = mpsc::channel();
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let now = monotonic();
            // The follower has gone when the bench is over, and so goes this.
            let Ok(event) = serde_json::from_str::<Event>(&line) else { return };
            let what = match event.pid {
                Some(pid) => Heard::Of(pid),
                None if event.kind == "gap" => Heard::Gap,
                None => continue,
            };
            if tell.send((now, what)).is_err() {
                return;
            }
        }
    });
    Ok(heard)
}
