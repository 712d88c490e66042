//! What attached displays cost the daemon: `watchdogctl top`, folded and unfolded, and an open page of `watchdogctl web`.
//!
//! Each display is on and off in turn, because the daemon has work of its own every minute, which exceeds what a display
//! costs. Given the programs of another build, both builds watch the same processes, and are measured in alternating rounds.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use watchdog_tests::{Tmux, WebPage};

use super::daemon::{BenchDaemon, own_programs};
use super::figures::Figures;
use super::stage::{As, BenchStage};
use crate::quantile::median;

const SESSIONS: usize = 60;
const HELPERS: usize = 33;
/// Milliseconds of CPU per second that the daemon may use for a display.
const GOAL: f64 = 1.0;
/// How long a display is on, and off; a multiple of the next.
const SLICE: Duration = Duration::from_secs(6);
/// Comparisons in a row.
const SLICES: usize = 2;
/// A page reads its view again after this time.
const PAGE_REFRESH: Duration = Duration::from_secs(3);

struct MeasuredBuild {
    name: &'static str,
    programs: PathBuf,
    daemon: BenchDaemon,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AttachedDisplay {
    Top,
    UnfoldedTop,
    Page,
}

impl AttachedDisplay {
    const ALL: [Self; 3] = [Self::Top, Self::UnfoldedTop, Self::Page];

    const fn name(self) -> &'static str {
        match self {
            Self::Top => "top",
            Self::UnfoldedTop => "top, all sessions unfolded",
            Self::Page => "page of web",
        }
    }
}

pub(super) fn run(stage: &BenchStage, quick: bool, against: Option<&Path>, figures: &mut Figures) -> Result<()> {
    let (settle, rounds) = if quick { (5, 1) } else { (60, 3) };
    let settle = Duration::from_secs(settle);
    let mut builds = vec![MeasuredBuild::start(stage, "this build", &own_programs()?)?];
    if let Some(programs) = against {
        builds.push(MeasuredBuild::start(stage, "other build", programs)?);
    }
    println!(
        "attached: {SESSIONS} sessions with {} processes; {rounds} rounds of {SLICES} times {SLICE:?}",
        all_processes()
    );
    let mut agents = Vec::new();
    for _ in 0..SESSIONS {
        let mut worker = stage.worker(As::Agent, &["sleepers", &HELPERS.to_string()]);
        agents.push(worker.stdin(Stdio::piped()).spawn().context("starting an agent")?);
    }
    for build in &builds {
        build.wait_for_all()?;
    }
    thread::sleep(settle);
    let mut costs: BTreeMap<(usize, AttachedDisplay), Vec<f64>> = BTreeMap::new();
    for _ in 0..rounds {
        for display in AttachedDisplay::ALL {
            for (index, build) in builds.iter().enumerate() {
                costs.entry((index, display)).or_default().extend(build.measure(stage, display)?);
            }
        }
    }
    report(&builds, &costs, figures)?;
    agents.into_iter().try_for_each(end)
}

const fn all_processes() -> usize {
    SESSIONS * (HELPERS + 1)
}

/// The sleepers end with their worker, which ends with its stdin.
fn end(mut agent: Child) -> Result<()> {
    drop(agent.stdin.take());
    agent.wait().context("waiting for an agent")?;
    Ok(())
}

fn report(
    builds: &[MeasuredBuild],
    costs: &BTreeMap<(usize, AttachedDisplay), Vec<f64>>,
    figures: &mut Figures,
) -> Result<()> {
    for (index, build) in builds.iter().enumerate() {
        for display in AttachedDisplay::ALL {
            let costs = costs.get(&(index, display)).map_or(&[][..], Vec::as_slice);
            let each: Vec<String> = costs.iter().map(|cost| format!("{cost:.2}")).collect();
            println!("  {}, {}: {} ms/s", build.name, display.name(), each.join(", "));
            let what = format!("attached: {}, {}", display.name(), build.name);
            match display {
                AttachedDisplay::Top => figures.at_most(what, GOAL, median(costs), 0.0, "ms/s"),
                AttachedDisplay::UnfoldedTop | AttachedDisplay::Page => {
                    figures.info(what, format!("{:.2} ms/s", median(costs)))
                }
            }
        }
        let rss = build.daemon.memory_kib("VmRSS")? / 1024;
        figures.info(format!("attached: RSS of the daemon, {}", build.name), format!("{rss} MiB"));
    }
    Ok(())
}

impl MeasuredBuild {
    fn start(stage: &BenchStage, name: &'static str, programs: &Path) -> Result<Self> {
        let daemon = BenchDaemon::of_build(stage, programs, "")?;
        Ok(Self { name, programs: programs.to_owned(), daemon })
    }

    fn wait_for_all(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let tracked = self.daemon.status()?.counts.processes;
            if tracked == all_processes() as u64 {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "timeout: {} tracks {tracked} processes", self.name);
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// What the display costs more than none, in several comparisons.
    fn measure(&self, stage: &BenchStage, display: AttachedDisplay) -> Result<Vec<f64>> {
        if display == AttachedDisplay::Page {
            let mut command = Command::new(self.client());
            command.arg("--socket").arg(self.daemon.socket()).arg("web").stderr(Stdio::null());
            let page = WebPage::open(&mut command);
            let mut stream = page.follow();
            // What a page does with its stream: it reads whatever comes.
            thread::spawn(move || stream.read_to_end(&mut Vec::new()));
            let _ = page.get("view/overview");
            let refresh = || {
                for _ in 0..SLICE.as_secs() / PAGE_REFRESH.as_secs() {
                    let _ = page.get("view/overview");
                    thread::sleep(PAGE_REFRESH);
                }
            };
            return self.compare(|| {}, refresh);
        }
        let tmux = Tmux::new(&stage.path(""), 120, 40);
        tmux.type_line(&format!("{} --socket {} top", self.client().display(), self.daemon.socket().display()));
        tmux.shows(&format!("{SESSIONS} sessions"));
        if display == AttachedDisplay::UnfoldedTop {
            tmux.keys(&["z"]);
            tmux.shows("├─");
        }
        let pause = || tmux.keys(&["p"]);
        pause();
        let costs = self.compare(pause, || thread::sleep(SLICE));
        tmux.keys(&["q"]);
        costs
    }

    /// `on` runs for a [`SLICE`] between two calls of `switch`.
    fn compare(&self, switch: impl Fn(), on: impl Fn()) -> Result<Vec<f64>> {
        let mut costs = Vec::new();
        for _ in 0..SLICES {
            let without = self.cpu(|| thread::sleep(SLICE))?;
            switch();
            let with = self.cpu(&on)?;
            switch();
            costs.push(with - without);
        }
        Ok(costs)
    }

    /// Milliseconds of CPU per second of the threads that answer requests.
    fn cpu(&self, wait: impl FnOnce()) -> Result<f64> {
        let answering = || -> Result<Duration> {
            let threads = self.daemon.cpu_by_thread()?;
            Ok(["watchdogd", "engine"].iter().filter_map(|name| threads.get(*name)).sum())
        };
        let (before, began) = (answering()?, Instant::now());
        wait();
        let spent = answering()?.saturating_sub(before);
        Ok(spent.as_secs_f64() * 1e3 / began.elapsed().as_secs_f64())
    }

    fn client(&self) -> PathBuf {
        self.programs.join("watchdogctl")
    }
}
