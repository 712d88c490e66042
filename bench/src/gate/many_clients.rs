//! Ten thousand launch requests while another agent forks and new agents start: the outcome of each client, its cost for
//! the daemon, and lost events.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use watchdog_api::{Event, EventDetail, Tree};

use super::super::daemon::BenchDaemon;
use super::super::figures::Figures;
use super::super::stage::{As, BenchStage};
use super::super::storm::Storm;
use super::super::worker::{Fate, monotonic};
use super::launches::{Launches, Said, began};
use super::{millis, with_places};
use crate::quantile::{median, quantile};

const CLIENTS: usize = 10_000;
/// Default of `[gate] max_queue`.
const MAX_QUEUE: usize = 1_000;
/// Forks per second of another agent.
const FORKS: u32 = 200;
/// Timeout for all clients.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Starts the clients, and measures the daemon until the fork storm ends.
pub(super) fn run(stage: &BenchStage, quick: bool, figures: &mut Figures) -> Result<()> {
    let (clients, seconds) = if quick { (3_000, 10) } else { (CLIENTS, 30) };
    let daemon = BenchDaemon::configured(stage, &with_places(1))?;
    let mut launches = Launches::new(stage, &daemon)?;
    launches.start(Stdio::null())?;
    while !matches!(launches.next()?.1, Said::Began(_)) {}
    println!("gate: {clients} clients with one running launch, and an agent that forks {FORKS} processes per second");
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
        ensure!(decided.is_some() || start.elapsed() < TIMEOUT, "timeout: decided of {clients} clients: {counts:?}");
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
    figures.info(format!("gate: {clients} clients: all decided after"), format!("{:.1} s", decided.as_secs_f64()));
    // The last hundredth of the queue is kept for users without a queued launch.
    let share = MAX_QUEUE - MAX_QUEUE / 100;
    figures.holds("gate: clients: queued", &format!("= {share}"), waiting.to_string(), waiting == share);
    let others = format!("{refused} + {turned_away}");
    figures.holds(
        "gate: clients: refused by gate + by connection limit",
        "all others",
        others,
        waiting + refused + turned_away == clients,
    );
    #[expect(clippy::cast_precision_loss, reason = "some ten thousand KiB")]
    let peak = daemon.memory_kib("VmHWM")? as f64 / 1024.0;
    figures.at_most("gate: clients: peak RSS of the daemon", 64.0, peak, 0.0, "MiB");
    let (p50, most) = (median(&seen), quantile(&seen, 1.0));
    figures.info("gate: clients: new agent detected, p50", format!("{p50:.0} ms"));
    figures.at_most(format!("gate: clients: all {} new agents detected within", seen.len()), 1_000.0, most, 0.0, "ms");
    // Each agent that was started executed one program, and exited.
    let outcome = storm.end(2 * seen.len() as u64)?;
    println!("  storm: {outcome}");
    figures.holds("gate: clients: lost events", "0", outcome.lost.to_string(), outcome.lost == 0);
    outcome.judge("gate: crowd", figures);
    drop(crowd.stdin.take());
    crowd.wait().context("waiting for the clients")?;
    Ok(())
}

/// CPU time of the daemon's threads since `before`, without idle threads.
fn spent(daemon: &BenchDaemon, before: &BTreeMap<String, Duration>) -> Result<String> {
    let threads = daemon.cpu_by_thread()?.into_iter().map(|(name, cpu)| {
        let spent = cpu.saturating_sub(before.get(&name).copied().unwrap_or_default());
        (name, spent)
    });
    let busy = threads.filter(|(_, spent)| *spent >= Duration::from_millis(10));
    Ok(busy.map(|(name, spent)| format!("{name} {spent:.0?}")).collect::<Vec<_>>().join(", "))
}

fn listen(mut from: impl Read + Send + 'static) -> Receiver<Fate> {
    let (sender, fates) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            for fate in bytes[..read].iter().filter_map(|byte| Fate::of(*byte)) {
                if sender.send(fate).is_err() {
                    return;
                }
            }
        }
    });
    fates
}

/// Events received by one follower of the daemon.
enum QueueEvent {
    Of(u32),
    /// Events were dropped because the follower was too slow.
    Gap,
}

/// Starts an agent. Returns the time from its main until a follower receives its event, or a gap and the agent is in the tree.
fn new_agent(stage: &BenchStage, daemon: &BenchDaemon, events: &Receiver<(Duration, QueueEvent)>) -> Result<Duration> {
    let before = monotonic();
    let mut agent = stage.worker(As::Agent, &["moment", "--stay"]).spawn().context("starting an agent")?;
    let mut line = String::new();
    let stdout = agent.stdout.take().context("the agent's stdout was not piped")?;
    BufReader::new(stdout).read_line(&mut line).context("reading when the agent began")?;
    let (_, began) = began(line.trim()).with_context(|| format!("unexpected output of the agent: {line:?}"))?;
    let received = loop {
        match events.recv_timeout(TIMEOUT).context("timeout: an agent was not detected")? {
            (received, QueueEvent::Of(pid)) if pid == agent.id() && received >= before => break received,
            (_, QueueEvent::Gap) if has(&daemon.tree()?, agent.id()) => break monotonic(),
            (_, QueueEvent::Of(_) | QueueEvent::Gap) => {}
        }
    };
    agent.kill().context("killing the agent")?;
    agent.wait().context("waiting for the agent")?;
    Ok(received.saturating_sub(began))
}

fn has(tree: &Tree, pid: u32) -> bool {
    tree.sessions.iter().flat_map(|session| &session.processes).any(|process| process.pid == pid)
}

/// The events with the time at which they were read.
fn follow(daemon: &BenchDaemon) -> Result<Receiver<(Duration, QueueEvent)>> {
    let lines = daemon.follow()?.lines();
    let (sender, received) = mpsc::channel();
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let now = monotonic();
            // The receiver is dropped at the end of the bench.
            let Ok(event) = serde_json::from_str::<Event>(&line) else { return };
            let what = match event.pid {
                Some(pid) => QueueEvent::Of(pid),
                None if matches!(event.detail, EventDetail::Gap { .. }) => QueueEvent::Gap,
                None => continue,
            };
            if sender.send((now, what)).is_err() {
                return;
            }
        }
    });
    Ok(received)
}
