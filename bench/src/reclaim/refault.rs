//! Sessions of real MCP servers that a daemon pages out while they are idle, and that are used again: one server of each kind
//! after a long pause, and one soon after each page-out, so that the daemon leaves it alone for longer each time.
//!
//! Amounts are VmSwap of the servers: it grows by a page-out, and shrinks by what returns.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::bench_servers::BenchServers;
use super::interrupt::Interrupt;
use super::orphans::OrphanReaper;
use crate::daemon::BenchDaemon;
use crate::figures::Figures;
use crate::quantile::median;
use crate::stage::BenchStage;
use watchdog_host::memory;
use watchdog_host::testing::{SwapKind, TestSwap};
use watchdog_types::{Bytes, ProcessId};

/// Each server has a session of its own, below this agent.
const AGENT: &str = "watchdog-bench-shell";
const TABLES: &str = r#"
[reclaim]
mode = "proactive"
idle = "1m"
[[profile]]
name = "shell"
exe = ["*/watchdog-bench-shell"]
"#;
/// Its `idle`, in seconds.
const IDLE: f64 = 60.0;
const SWAP_MIB: u64 = 2_048;
/// Kinds of servers.
const KINDS: usize = 3;
/// From a page-out to the use of a server, long and short.
const LONG: Duration = Duration::from_secs(600);
const QUICK_LONG: Duration = Duration::from_secs(90);
const SHORT: Duration = Duration::from_secs(30);
/// Interval of the readings.
const INTERVAL: Duration = Duration::from_millis(250);
/// A page-out swaps at least this much within a few readings.
const PAGE_OUT: Bytes = Bytes::from_mib(4);
/// Time after which a page-out has ended, also on a busy machine.
const SETTLED: Duration = Duration::from_secs(15);
/// When the swap of a used server is read again.
const LATER: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(60)];
/// The share that doubles the daemon's pause is 25 %; it sees resident memory, not swap.
const RELAPSE: f64 = 30.0;

/// A server, and what has happened to it.
struct WatchedServer {
    id: ProcessId,
    /// From a page-out to its use.
    pause: Duration,
    swap: Bytes,
    /// Readings of the last seconds, for the growth by a page-out.
    lowest: Bytes,
    page_outs: Vec<Instant>,
    /// All that has returned.
    returned: Bytes,
    uses: Vec<ServerUse>,
}

/// A use after a page-out.
struct ServerUse {
    at: Instant,
    /// In swap after the page-out, before the use and after it.
    out: Bytes,
    before: Bytes,
    after: Bytes,
    /// Returned before the use.
    returned: Bytes,
    /// First and second answer, in milliseconds.
    answers: [f64; 2],
    /// In swap after [`LATER`].
    later: Vec<Bytes>,
}

impl WatchedServer {
    fn new(id: ProcessId, pause: Duration) -> Self {
        let (swap, returned) = (Bytes(0), Bytes(0));
        Self { id, pause, swap, lowest: swap, page_outs: Vec::new(), returned, uses: Vec::new() }
    }

    fn read(&mut self, now: Instant) -> Result<()> {
        let swap = memory::memory(self.id)?.context("a server exited")?.swap;
        self.returned += less(self.swap, swap);
        self.swap = swap;
        let settles = self.page_outs.last().is_some_and(|at| now.duration_since(*at) < SETTLED);
        if settles {
            self.lowest = swap;
        } else {
            self.lowest = self.lowest.min(swap);
            if swap >= self.lowest + PAGE_OUT {
                self.page_outs.push(now);
            }
        }
        if let Some(used) = self.uses.last_mut() {
            let due = LATER.get(used.later.len()).is_some_and(|after| now.duration_since(used.at) >= *after);
            if due {
                used.later.push(swap);
            }
        }
        Ok(())
    }

    /// Whether it is used now: after its pause, counted from the first page-out since the last use.
    fn is_due(&self, now: Instant) -> bool {
        let used = self.uses.last().map(|used| used.at);
        let out = self.page_outs.iter().find(|out| used.is_none_or(|used| **out > used));
        out.is_some_and(|out| now.duration_since(*out) >= self.pause)
    }

    fn is_done(&self) -> bool {
        self.uses.last().is_some_and(|used| used.later.len() == LATER.len())
    }

    /// Seconds between its page-outs.
    fn gaps(&self) -> Vec<f64> {
        let pairs = self.page_outs.iter().zip(self.page_outs.iter().skip(1));
        pairs.map(|(one, next)| next.duration_since(*one).as_secs_f64()).collect()
    }

    /// Whether the daemon doubled its pause each time that much had returned; `None` if little had.
    fn pauses_double(&self) -> Option<bool> {
        let relapses = self.uses.iter().take_while(|used| used.returned_percent() > RELAPSE).count();
        let least = std::iter::successors(Some(2.0 * IDLE), |pause| Some(2.0 * pause));
        let gaps = self.gaps();
        let mut pauses = gaps.iter().zip(least).take(relapses).peekable();
        pauses.peek()?;
        Some(pauses.all(|(gap, least)| *gap > least - SETTLED.as_secs_f64()))
    }
}

impl ServerUse {
    /// The share that the first request brought back.
    fn returned_percent(&self) -> f64 {
        percent(less(self.before, self.after), self.out)
    }
}

/// Measures servers of each kind.
pub(crate) fn run(stage: &BenchStage, quick: bool, figures: &mut Figures) -> Result<()> {
    let interrupt = Interrupt::new();
    let Some(_swap) = TestSwap::of(SwapKind::Zram, SWAP_MIB) else {
        println!("refault: skipped: this machine cannot have zram");
        return Ok(());
    };
    let _orphans = OrphanReaper::new()?;
    let home = tempfile::tempdir().context("making a home")?;
    let agent = stage.path(AGENT);
    std::fs::copy("/bin/sh", &agent).context("copying a shell")?;
    let daemon = BenchDaemon::configured(stage, TABLES)?;
    let mut servers = BenchServers::start(2 * KINDS, home.path(), Some(&agent))?;
    let mut warm = Vec::new();
    for kind in 0..KINDS {
        let answers: Vec<f64> = (0..5).filter_map(|_| servers.answer(kind as u64)).collect();
        warm.push(median(&answers));
    }
    let long = if quick { QUICK_LONG } else { LONG };
    println!(
        "refault: MCP servers below a daemon, used {} s after a page-out, or {} s",
        long.as_secs(),
        SHORT.as_secs()
    );
    let pause = |at| if at < KINDS { long } else { SHORT };
    let mut watched: Vec<WatchedServer> =
        servers.ids().into_iter().enumerate().map(|(at, id)| WatchedServer::new(id, pause(at))).collect();

    let began = Instant::now();
    while !watched.iter().take(KINDS).all(WatchedServer::is_done) {
        ensure!(began.elapsed() < 3 * long, "the daemon did not page out all servers");
        interrupt.pause(INTERVAL)?;
        for (at, server) in watched.iter_mut().enumerate() {
            let now = Instant::now();
            server.read(now)?;
            if server.is_due(now) && (at >= KINDS || server.uses.is_empty()) {
                use_server(&mut servers, at as u64, server)?;
            }
        }
    }
    for (at, warm) in warm.iter().enumerate() {
        let name = servers.name(at as u64);
        let [Some(rested), Some(busy)] = [watched.get(at), watched.get(at + KINDS)] else { continue };
        report(name, *warm, rested, long, figures);
        report_pauses(name, busy, figures);
    }
    let metrics = daemon.metrics()?;
    let total = |name: &str| metrics.get(name).copied().unwrap_or_default() / f64::from(1 << 20);
    let [out, back] = ["reclaimed", "refaulted"].map(|what| total(&format!("agent_watchdog_{what}_bytes_total")));
    figures.info("refault, the daemon's: paged out, returned", format!("{out:.0}, {back:.0} MiB"));
    Ok(())
}

/// Two requests, one after the other.
fn use_server(servers: &mut BenchServers, at: u64, server: &mut WatchedServer) -> Result<()> {
    let swap =
        |server: &WatchedServer| Ok::<_, anyhow::Error>(memory::memory(server.id)?.context("a server exited")?.swap);
    let (before, returned) = (swap(server)?, server.returned);
    let at_use = Instant::now();
    let first = servers.answer(at).context("no answer after a page-out")?;
    let after = swap(server)?;
    let second = servers.answer(at).context("no second answer after a page-out")?;
    let earlier = server.uses.last().map_or(Bytes(0), |used| used.returned);
    let out = before + less(returned, earlier);
    let later = Vec::new();
    server.uses.push(ServerUse { at: at_use, out, before, after, returned, answers: [first, second], later });
    Ok(())
}

fn report(name: &str, warm: f64, server: &WatchedServer, long: Duration, figures: &mut Figures) {
    let Some(used) = server.uses.last() else { return };
    let ServerUse { out, before, after, returned, answers: [first, second], later, at } = used;
    let minutes = long.as_secs_f64() / 60.0;
    let page_outs = server.page_outs.iter().filter(|out| *out < at).count();
    figures.info(
        format!("refault, {name}: page-outs, total in {minutes:.1} min"),
        format!("{page_outs}, {} MiB", out.mib()),
    );
    let share = percent(*returned, *out);
    figures.at_most(format!("refault, {name}: returned while idle"), 10.0, share, 0.0, "%");
    let answers = format!("{warm:.0}; {first:.0}, {second:.0} ms");
    figures.info(format!("refault, {name}: answer warm; first, second"), answers);
    let rest: Vec<String> = [before, after].into_iter().chain(later).map(|swap| swap.mib().to_string()).collect();
    figures.info(format!("refault, {name}: in swap, after 0, 10, 60 s"), format!("{} MiB", rest.join(", ")));
}

fn report_pauses(name: &str, server: &WatchedServer, figures: &mut Figures) {
    let gaps: Vec<String> = server.gaps().iter().map(|gap| format!("{gap:.0}")).collect();
    let returned: Vec<String> = server.uses.iter().map(|used| format!("{:.0}", used.returned_percent())).collect();
    figures.info(format!("refault, {name}: returned by each use"), format!("{} %", returned.join(", ")));
    let (what, gaps) = (format!("refault, {name}: between page-outs"), format!("{} s", gaps.join(", ")));
    match server.pauses_double() {
        Some(double) => figures.holds(what, "doubling", gaps, double),
        None => figures.info(what, gaps),
    }
}

fn less(from: Bytes, amount: Bytes) -> Bytes {
    Bytes(from.0.saturating_sub(amount.0))
}

fn percent(part: Bytes, whole: Bytes) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "some MiB")]
    let share = part.0 as f64 * 100.0 / whole.0.max(1) as f64;
    share
}
