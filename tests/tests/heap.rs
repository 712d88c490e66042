//! A full V8 heap is reported as such, not as an OOM kill.
//!
//! Needs node.
#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use watchdog_api::Process;
use watchdog_tests::{Daemon, MIB, Stage, seconds};

/// How long a heap may take to be full.
const FULL: Duration = Duration::from_secs(60);
/// Takes some 80 MiB of heap in a second.
const LEAK: &str = "
const kept = [];
setInterval(() => { for (let i = 0; i < 20; i++) kept.push(new Array(25000).fill(i)); }, 50);
";

/// A daemon, and an agent that runs these words as a program.
fn run(program: &str) -> (Stage, Daemon) {
    let node = Command::new("node").arg("--version").stdout(Stdio::null()).status();
    assert!(node.expect("node is needed: install it, or `--skip heap`").success(), "node does not run");
    let mut stage = Stage::new();
    std::fs::write(stage.directory().join("leak.js"), LEAK).expect("the program");
    let daemon = Daemon::watching(&stage);
    let program = program.replace("LEAK", &stage.directory().join("leak.js").display().to_string());
    stage.agent(&format!("program - [ {program} ] hold"));
    (stage, daemon)
}

/// The process that runs the leak, or the shell around it.
fn started(daemon: &Daemon, what: &str, is_it: impl Fn(&Process) -> bool) -> u32 {
    daemon.eventually(seconds(10.0), what, |snapshot| {
        let processes = snapshot.tree.sessions.iter().flat_map(|session| &session.processes);
        processes.into_iter().find(|process| is_it(process)).map(|process| process.pid)
    })
}

fn runs_node(process: &Process) -> bool {
    process.argv.first().is_some_and(|argv0| argv0.ends_with("node"))
        && process.argv.iter().any(|argument| argument.ends_with("leak.js"))
}

fn is_a_full_heap_of_200_mib(death: &Value) {
    assert_eq!(death["cause"], "heap_limit", "{death:#}");
    assert_eq!(death["signal"], 6, "{death:#}");
    assert_eq!(death["heap"]["limit_bytes"], 200 * MIB, "{death:#}");
    assert_eq!(death["heap"]["stated"], true, "{death:#}");
    assert_eq!(death["oom"], Value::Null, "{death:#}");
    let peak = death["memory"]["peak_bytes"].as_u64().expect("a peak");
    assert!((200 * MIB..400 * MIB).contains(&peak), "{death:#}");
}

#[test]
fn argument_heap_limit_explains_death() {
    let (_stage, daemon) = run("node --max-old-space-size=200 LEAK");
    let pid = started(&daemon, "node", runs_node);
    is_a_full_heap_of_200_mib(&daemon.death(pid, FULL));

    let text = daemon.ctl_text(&["explain", &pid.to_string()]);
    assert_eq!(text.code, 0, "{text:?}");
    assert!(text.stdout.contains("ran out of V8 heap and aborted (SIGABRT): heap limit 200 MiB"), "{text:?}");
    let oom = daemon.events().into_iter().find(|event| event.detail.kind() == "oom" && event.pid == Some(pid));
    assert_eq!(oom, None);
}

#[test]
fn environment_heap_limit_explains_death() {
    let (_stage, daemon) = run("env NODE_OPTIONS=--max-old-space-size=200 node LEAK");
    let pid = started(&daemon, "node", runs_node);
    is_a_full_heap_of_200_mib(&daemon.death(pid, FULL));
}

#[test]
fn shell_around_node_reports_heap() {
    let mut stage = Stage::new();
    let (leak, script) = (stage.directory().join("leak.js"), stage.directory().join("run.sh"));
    std::fs::write(&leak, LEAK).expect("the program");
    // Not the last command: a shell would become that.
    let command = format!("node --max-old-space-size=200 {}; exit $?\n", leak.display());
    std::fs::write(&script, command).expect("the script");
    let daemon = Daemon::watching(&stage);
    stage.agent(&format!("program - [ /bin/sh {} ] hold", script.display()));
    let is_shell =
        |process: &Process| process.argv.first().is_some_and(|argv0| argv0 == "/bin/sh") && process.argv.len() == 2;
    let shell = started(&daemon, "the shell", is_shell);
    let node = started(&daemon, "node", runs_node);

    let death = daemon.death(shell, FULL);
    assert_eq!((&death["cause"], &death["exit_code"]), (&"passed_on".into(), &134.into()), "{death:#}");
    assert_eq!(death["passed_on_from"]["pid"], node, "{death:#}");
    assert_eq!(death["passed_on_from"]["cause"], "heap_limit", "{death:#}");
}
