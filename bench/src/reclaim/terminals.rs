//! Agents in terminals, at the first menu that they show without an account: how soon a key press is answered.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::interrupt::Interrupt;
use super::orphans::OrphanReaper;
use super::paging::{MemorySum, all_done, millis, paged_out};
use crate::figures::Figures;
use crate::quantile::quantile;
use watchdog_tests::{ProcessKey, Tmux, descendants, npm, poll};
use watchdog_types::{Pid, ProcessId, Ticks};
use xtask::cargo::target_directory;

const PACKAGES: [&str; 2] = ["@google/gemini-cli@0.61.0", "@openai/codex@0.171.0"];
/// A program, and what its menu shows.
const AGENTS: [(&str, &str); 2] = [("gemini", "Do you trust"), ("codex", "Sign in")];
const PRESSES: usize = 40;
/// How long an agent may take to show its menu, and to answer a key press.
const ANSWER: Duration = Duration::from_secs(60);
/// After an answer an agent draws for some time.
const PAUSE: Duration = Duration::from_millis(300);

/// Pages out each agent before each key press.
pub(super) fn run(quick: bool, interrupt: &Interrupt, figures: &mut Figures) -> Result<()> {
    let bin = npm::installed(&target_directory().join("tmp/agents"), &PACKAGES);
    let presses = if quick { 6 } else { PRESSES };
    for (program, menu) in AGENTS {
        let home = tempfile::tempdir().context("making a home")?;
        let _orphans = OrphanReaper::new()?;
        let window = Tmux::new(home.path(), 120, 70);
        let (home, bin) = (home.path().display(), bin.display());
        window.type_line(&format!("cd {home}; exec env HOME={home} TERM=screen-256color {bin}/{program}"));
        let shown = poll(ANSWER, || window.screen().contains(menu).then_some(()));
        ensure!(shown.is_some(), "{program} does not show {menu:?}:\n{}", window.screen());
        interrupt.pause(Duration::from_secs(5))?;

        let mut warm = Vec::new();
        for press in 0..presses {
            interrupt.check()?;
            warm.push(millis(answer(&window, press)?));
        }
        let mut cold = Vec::new();
        for press in 0..presses {
            interrupt.check()?;
            let agent = processes(&window)?;
            let answer_of = paged_out(&agent);
            all_done(&answer_of)?;
            if press == 0 {
                let sum = MemorySum::of(&answer_of);
                figures.info(format!("reclaim, {program}: resident"), sum.resident());
                figures.info(format!("reclaim, {program}: anonymous"), sum.anonymous());
            }
            cold.push(millis(answer(&window, press)?));
        }
        let spread = |values: &[f64]| format!("{:.0}, {:.0} ms", quantile(values, 0.5), quantile(values, 0.95));
        figures.info(format!("reclaim, {program}: key press, warm p50, p95"), spread(&warm));
        figures.info(format!("reclaim, {program}: key press, paged out p50, p95"), spread(&cold));
        figures.at_most(format!("reclaim, {program}: key press p95"), 150.0, quantile(&cold, 0.95), 0.0, "ms");
    }
    Ok(())
}

/// The agent's processes, the youngest first.
fn processes(window: &Tmux) -> Result<Vec<ProcessId>> {
    let agent = ProcessKey::now(window.shell_pid()).context("the agent has exited")?;
    let mut all: Vec<ProcessKey> = descendants(agent.pid).into_iter().collect();
    all.push(agent);
    all.sort_by_key(|process| std::cmp::Reverse(process.start_time));
    Ok(all.into_iter().map(|key| ProcessId { pid: Pid(key.pid), start_time: Ticks(key.start_time) }).collect())
}

/// From a key press to another screen. tmux takes some milliseconds of it.
fn answer(window: &Tmux, press: usize) -> Result<Duration> {
    std::thread::sleep(PAUSE);
    let before = window.screen();
    let began = Instant::now();
    window.keys(&[if press.is_multiple_of(2) { "Down" } else { "Up" }]);
    while window.screen() == before {
        ensure!(began.elapsed() < ANSWER, "no answer to a key press:\n{before}");
    }
    Ok(began.elapsed())
}
