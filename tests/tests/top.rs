//! `watchdogctl top` in a real terminal.
#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use watchdog_api::ActionState;
use watchdog_host::testing::TestSwap;
use watchdog_tests::{
    Daemon, DaemonOptions, ProcessKey, Stage, Tmux, anonymous_bytes, descendants, is_alive, is_stopped, poll, seconds,
};

const AGENT: &str = "anon 30 spawn helper [ report helper anon 8 hold ] hold";

/// A terminal of 100 columns in which `top` shows the stage's session.
fn top(stage: &Stage, daemon: &Daemon) -> Tmux {
    let tmux = Tmux::new(stage.directory(), 100, 30);
    tmux.type_line(&format!("{} 2>{}/stderr; echo status=$?", daemon.ctl_line("top"), stage.directory().display()));
    tmux.until("the session", |screen| {
        screen.contains("live") && screen.contains("▾ test") && screen.contains("helper")
    });
    tmux
}

/// Nothing may be written to the terminal behind the back of the screen.
fn assert_silent(stage: &Stage) {
    let written = std::fs::read_to_string(stage.directory().join("stderr")).expect("the file of stderr");
    assert_eq!(written, "");
}

/// The process in the terminal that runs `top`.
fn top_process(tmux: &Tmux) -> Pid {
    let shell = tmux.shell_pid();
    let found = descendants(shell).into_iter().find(|process| {
        std::fs::read_to_string(format!("/proc/{}/comm", process.pid)).is_ok_and(|comm| comm.starts_with("watchdogctl"))
    });
    let pid = i32::try_from(found.expect("a running top").pid).expect("a pid");
    Pid::from_raw(pid).expect("a pid")
}

#[test]
fn top_shows_sessions_live() {
    let mut stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    let agent = stage.agent("anon 30 spawn helper [ report helper await grow anon 200 hold ] hold");
    let helper = stage.reported("helper");
    let tmux = top(&stage, &daemon);
    let screen = tmux.shows(&helper.pid.to_string());
    assert!(screen.contains(&agent.pid.to_string()) && screen.contains("1 session, 2 processes"), "{screen}");
    stage.mark("grow");
    tmux.until("the growth", |screen| {
        screen.lines().any(|line| line.contains(&helper.pid.to_string()) && line.contains("20") && line.contains("█"))
    });
    tmux.keys(&["q"]);
    let screen = tmux.shows("status=0");
    assert!(!tmux.has_alternate_screen(), "{screen}");
    assert_silent(&stage);
}

#[test]
fn resized_terminal_is_redrawn() {
    let mut stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    stage.agent(AGENT);
    let tmux = top(&stage, &daemon);
    assert!(!tmux.screen().contains("VERDICT"));
    tmux.resize(140, 40);
    let screen = tmux.shows("VERDICT");
    assert_eq!(screen.matches("ID/PID").count(), 1, "{screen}");
    tmux.resize(40, 8);
    tmux.shows("too small: 40x8");
    tmux.resize(40, 24);
    let screen = tmux.shows("▾ test (2");
    assert!(screen.contains("MEM STATE") && !screen.contains("TREND"), "{screen}");
    tmux.resize(80, 24);
    let screen = tmux.shows("TREND");
    assert!(!screen.contains("too small") && screen.contains("▾ test"), "{screen}");
    assert_silent(&stage);
}

#[test]
fn suspended_top_resumes() {
    let mut stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    stage.agent(AGENT);
    for by_signal in [false, true] {
        let tmux = Tmux::new(stage.directory(), 100, 30);
        tmux.type_line(&daemon.ctl_line("top"));
        tmux.shows("▾ test");
        if by_signal {
            kill_process(top_process(&tmux), Signal::TSTP).expect("our process");
        } else {
            tmux.keys(&["C-z"]);
        }
        tmux.until("the shell", |_| !tmux.has_alternate_screen());
        tmux.type_line("echo in the $((40 + 2)) shell");
        let screen = tmux.shows("in the 42 shell");
        assert!(!screen.contains("▾ test"), "{screen}");
        tmux.type_line("fg");
        tmux.until("the session again", |screen| screen.contains("▾ test") && screen.contains("live"));
        tmux.keys(&["q"]);
        tmux.until("the end", |_| !tmux.has_alternate_screen());
    }
}

#[test]
fn termination_restores_the_terminal() {
    let mut stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    stage.agent(AGENT);
    let tmux = top(&stage, &daemon);
    tmux.keys(&["m"]);
    kill_process(top_process(&tmux), Signal::TERM).expect("our process");
    let screen = tmux.shows("status=143");
    assert!(!tmux.has_alternate_screen(), "{screen}");
    tmux.type_line("stty -a | tr ' ' '\\n' | grep -x -e 'echo;*' -e '-*icanon'");
    tmux.until("a cooked terminal", |screen| screen.contains("\nicanon\n") && screen.contains("\necho\n"));
}

#[test]
fn restarted_daemon_is_found_again() {
    let mut stage = Stage::new();
    let mut daemon = Daemon::watching(&stage);
    stage.agent(AGENT);
    let tmux = top(&stage, &daemon);
    daemon.end(Signal::TERM);
    let screen = tmux.shows("trying again every second");
    assert!(screen.contains("no connection") && screen.contains("▾ test"), "{screen}");
    daemon.restart();
    let screen = tmux.until("the daemon", |screen| screen.contains("live") && !screen.contains("trying again"));
    assert!(screen.contains("▾ test"), "{screen}");
    assert_silent(&stage);
}

#[test]
fn missing_daemon_is_a_banner() {
    let stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    let tmux = Tmux::new(stage.directory(), 100, 30);
    let line = daemon.ctl_line("top").replace(&daemon.socket().display().to_string(), "/nonexistent/control.sock");
    tmux.type_line(&line);
    tmux.shows("cannot reach the daemon at /nonexistent/control.sock");
    tmux.keys(&["q"]);
    tmux.until("the end", |_| !tmux.has_alternate_screen());
}

#[test]
fn orphans_are_reaped_with_receipt() {
    let mut stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    let agent = stage.agent("spawn helper [ report helper anon 20 hold ] hold");
    let helper = stage.reported("helper");
    let tmux = top(&stage, &daemon);
    stage.kill(agent);
    tmux.until("the finding after its grace", |screen| screen.contains("findings 1") && screen.contains("orphaned"));
    std::thread::sleep(Duration::from_secs(3));
    tmux.keys(&["Home", "r"]);
    let screen = tmux.shows("Terminate 1 process");
    assert!(screen.contains(&helper.pid.to_string()), "{screen}");
    tmux.keys(&["n"]);
    tmux.until("no question", |screen| !screen.contains("Terminate 1 process"));
    assert!(is_alive(helper));
    tmux.keys(&["r"]);
    tmux.shows("Terminate 1 process");
    tmux.keys(&["y"]);
    let screen = tmux.until("the receipt", |screen| screen.contains("receipt") && screen.contains("done:"));
    assert!(screen.contains("TERM"), "{screen}");
    assert!(!is_alive(helper));
    tmux.keys(&["Escape"]);
    tmux.until("no session", |screen| screen.contains("0 sessions"));
    assert_silent(&stage);
}

/// Presses a key, and refuses what it asks. Returns the screen with the question.
fn refused(tmux: &Tmux, key: &str, question: &str) -> String {
    tmux.keys(&[key]);
    let screen = tmux.shows(question);
    tmux.keys(&["n"]);
    tmux.until("no question", |screen| !screen.contains(question));
    screen
}

fn confirmed(tmux: &Tmux, key: &str, question: &str) {
    tmux.keys(&[key]);
    tmux.shows(question);
    tmux.keys(&["y"]);
}

/// Selects the only helper of the only session, whose agent is dead.
fn select_orphan(tmux: &Tmux, orphan: ProcessKey) {
    tmux.until("the orphan", |screen| screen.contains("findings 1") && screen.contains("orphaned"));
    tmux.keys(&["End"]);
    tmux.shows(&format!("process {}", orphan.pid));
}

/// Waits until the row of a process has this state.
fn has_state(tmux: &Tmux, process: ProcessKey, state: &str) {
    let pid = process.pid.to_string();
    tmux.until(state, |screen| screen.lines().any(|line| line.contains(&pid) && line.contains(state)));
}

#[test]
fn session_is_ended_with_receipt() {
    let mut stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    let agent = stage.agent("spawn helper [ report helper hold ] hold");
    let both = [agent, stage.reported("helper")];
    let tmux = top(&stage, &daemon);
    tmux.keys(&["Home", "x"]);
    tmux.shows("╭ explain");
    tmux.keys(&["Escape"]);
    tmux.until("no explanation", |screen| !screen.contains("╭ explain"));
    let screen = refused(&tmux, "e", "Terminate 2 processes");
    assert!(both.iter().all(|process| screen.contains(&process.pid.to_string())), "{screen}");
    assert!(both.iter().all(|process| is_alive(*process)));
    confirmed(&tmux, "e", "Terminate 2 processes");
    let screen = tmux.until("the receipt", |screen| screen.contains("receipt") && screen.contains("done:"));
    assert!(screen.contains("TERM"), "{screen}");
    assert!(!both.iter().any(|process| is_alive(*process)));
    tmux.keys(&["Escape"]);
    tmux.until("no session", |screen| screen.contains("0 sessions"));
    assert_silent(&stage);
}

#[test]
fn orphan_is_adopted_and_released() {
    let mut stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    let agent = stage.agent("spawn helper [ report helper hold ] hold");
    let helper = stage.reported("helper");
    let tmux = top(&stage, &daemon);
    stage.kill(agent);
    select_orphan(&tmux, helper);
    let keep = format!("Keep process {}?", helper.pid);
    refused(&tmux, "a", &keep);
    has_state(&tmux, helper, "orphaned");
    confirmed(&tmux, "a", &keep);
    tmux.shows(&format!("adopted process {}", helper.pid));
    tmux.keys(&["Escape"]);
    has_state(&tmux, helper, "kept");
    let release = format!("Remove the mark of process {}?", helper.pid);
    refused(&tmux, "u", &release);
    confirmed(&tmux, "u", &release);
    tmux.shows(&format!("released process {}", helper.pid));
    tmux.keys(&["Escape"]);
    has_state(&tmux, helper, "orphaned");
    assert!(is_alive(helper));
    assert_silent(&stage);
}

#[test]
fn frozen_orphan_is_thawed() {
    let mut stage = Stage::new();
    let config = "[orphans]\ngrace = \"0s\"\n[actions]\nenforce = true\norphan = \"freeze\"\n";
    let daemon = Daemon::configured(&stage, config);
    let agent = stage.agent("spawn helper [ report helper hold ] hold");
    let helper = stage.reported("helper");
    let tmux = top(&stage, &daemon);
    stage.kill(agent);
    daemon.eventually(seconds(10.0), "it is frozen", |_| {
        let holds = daemon.receipts().iter().any(|receipt| receipt.state == ActionState::Holding);
        (holds && is_stopped(helper)).then_some(())
    });
    select_orphan(&tmux, helper);
    for (key, question) in [("t", format!("Resume process {}", helper.pid)), ("T", "Resume everything".to_owned())] {
        refused(&tmux, key, &question);
        assert!(is_stopped(helper));
    }
    confirmed(&tmux, "t", "if it is frozen or throttled?");
    tmux.shows("resumed ");
    assert!(poll(seconds(5.0), || (!is_stopped(helper)).then_some(())).is_some() && is_alive(helper));
    tmux.keys(&["Escape"]);
    confirmed(&tmux, "T", "Resume everything");
    tmux.shows("no process is frozen or throttled");
    assert_silent(&stage);
}

#[test]
fn session_is_paged_out_with_receipt() {
    let Some(_swap) = TestSwap::new(256) else { return };
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, "[reclaim]\nreserve = \"1MiB\"\n");
    stage.agent("spawn helper [ hold ] anon 64 report agent hold");
    let agent = stage.reported("agent");
    let tmux = top(&stage, &daemon);
    tmux.until("its memory", |screen| screen.contains(" 64M "));
    tmux.keys(&["Home", "o"]);
    let screen = tmux.shows("Page out session");
    assert!(screen.contains("would page out up to"), "{screen}");
    tmux.keys(&["n", "o"]);
    tmux.shows("Page out session");
    tmux.keys(&["y"]);
    tmux.until("the receipt", |screen| screen.contains("receipt") && screen.contains("paged out"));
    assert!(anonymous_bytes(agent.pid).is_some_and(|left| left < 32 << 20));
    tmux.keys(&["Escape"]);
    tmux.until("the swapped memory in its row", |screen| screen.contains(" MiB swap") || screen.contains("M swap"));
    assert_silent(&stage);
}

#[test]
fn hostile_names_are_harmless() {
    let mut stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    let evil = "\u{1b}[2J\u{1b}]0;x\u{7}";
    stage.install(&format!("a{evil}"));
    stage.install("日本語\u{202e}gpj");
    stage.agent(&format!(
        "spawn a{evil} [ report one hold ] spawn 日本語\u{202e}gpj [ report two hold ] spawn helper [ hold ] hold"
    ));
    let (_one, two) = (stage.reported("one"), stage.reported("two"));
    let tmux = top(&stage, &daemon);
    let screen = tmux.shows(r"a\u{1b}[2J");
    let line = screen.lines().find(|line| line.contains(&two.pid.to_string())).expect("the row");
    assert!(line.contains(r"日本語\u{202e}gpj"), "{screen}");
    assert!(screen.contains("ID/PID") && !screen.contains('\u{202e}'), "{screen}");
    tmux.keys(&["/"]);
    tmux.type_line("日本");
    tmux.until("the selection", |screen| screen.contains(&format!("process {}", two.pid)));
    assert_silent(&stage);
}

#[test]
fn ten_thousand_processes_are_shown() {
    const COUNT: usize = 10_000;
    let mut stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    let agent = stage.agent(&format!("times {COUNT} [ fork [ hold ] ] report agent hold"));
    stage.reported("agent");
    let tmux = Tmux::new(stage.directory(), 100, 30);
    tmux.type_line(&format!("{} 2>{}/stderr; echo status=$?", daemon.ctl_line("top"), stage.directory().display()));
    // Above 60 processes, sessions start folded.
    tmux.shows(&format!("1 session, {} processes", COUNT + 1));
    tmux.keys(&["Right"]);
    tmux.until("the processes", |screen| screen.matches("└─").count() + screen.matches("├─").count() > 10);
    let asked = Instant::now();
    tmux.keys(&["End"]);
    tmux.until("the last process", |screen| screen.contains("└─"));
    let shown = asked.elapsed();
    tmux.keys(&["Home"]);
    tmux.shows(&agent.pid.to_string());
    tmux.keys(&["q"]);
    tmux.shows("status=0");
    assert!(shown < seconds(5.0), "{shown:?}");
    assert_silent(&stage);
}

#[test]
fn history_and_recording_are_shown() {
    let mut stage = Stage::new();
    let mut daemon = Daemon::with(&stage, &DaemonOptions { record: true, ..DaemonOptions::default() });
    stage.agent(AGENT);
    let tmux = top(&stage, &daemon);
    daemon.eventually(seconds(25.0), "a record of the host", |_| {
        daemon.ctl_text(&["history", "--host"]).stdout.contains("test").then_some(())
    });
    tmux.keys(&["h"]);
    tmux.until("the history", |screen| screen.contains("history") && screen.contains("memory in use"));
    tmux.keys(&["@"]);
    tmux.type_line("yesterday 03:00");
    tmux.shows("03:00:00");
    tmux.keys(&["h"]);
    tmux.shows("live");
    tmux.keys(&["q"]);
    tmux.shows("status=0");
    daemon.end(Signal::TERM);
    tmux.type_line(&daemon.ctl_line(&format!("top --replay {}", daemon.recording().display())));
    tmux.shows("recording");
    tmux.keys(&["}"]);
    tmux.until("the recorded session", |screen| screen.contains("▾ test"));
    tmux.keys(&["q"]);
}

#[test]
fn top_needs_a_terminal() {
    let stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    let output = daemon.ctl_text(&["top"]);
    assert_eq!((output.code, output.stdout.as_str()), (2, ""));
    assert!(output.stderr.contains("`top` needs a terminal"), "{output:?}");
    assert_eq!(daemon.ctl(&["top"]).code, 2, "no JSON");
}
