//! The action log: a killed daemon resumes an action without repeating it, and no action runs unlogged.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use watchdog_api::ActionState;
use watchdog_tests::{Daemon, DaemonOptions, ProcessKey, Stage, living, poll, seconds, sent, target};

/// Starts an agent with helpers that count each SIGTERM and survive it, and kills the agent.
fn left_behind(stage: &mut Stage, daemon: &Daemon) -> Vec<ProcessKey> {
    let helper = "[ count-term terms report helper hold ]";
    let agent = stage.agent(&format!("spawn helper {helper} spawn helper {helper} spawn helper {helper} hold"));
    let helpers = stage.all_reported("helper", 3);
    daemon.eventually(seconds(1.0), "the helpers", |snapshot| {
        helpers.iter().all(|helper| snapshot.process(*helper).is_some()).then_some(())
    });
    stage.kill(agent);
    helpers
}

fn config(grace: &str, kill_after: &str) -> String {
    format!("[orphans]\ngrace = \"{grace}\"\n[actions]\nenforce = true\nkill_after = \"{kill_after}\"\n")
}

/// The directory in which the daemon writes down what it is about to do.
fn runtime_dir(daemon: &Daemon) -> std::path::PathBuf {
    daemon.socket().parent().map(Path::to_owned).unwrap_or_default()
}

#[test]
fn killed_daemon_resumes_action() {
    let mut stage = Stage::new();
    let mut daemon = Daemon::configured(&stage, &config("1s", "10s"));
    let helpers = left_behind(&mut stage, &daemon);
    let signalled = poll(seconds(5.0), || helpers.iter().any(|helper| stage.terms(*helper) > 0).then_some(()));
    assert!(signalled.is_some(), "no process received SIGTERM\n{}", daemon.describe(Some(&daemon.snapshot())));

    daemon.send(Signal::KILL);
    assert!(daemon.wait(seconds(5.0)).is_some());
    assert_eq!(living(&helpers), helpers);
    daemon.restart();

    let receipt = daemon.only_receipt(seconds(30.0));
    assert_eq!(receipt.id, 1, "the same action: {receipt:#?}");
    assert_eq!(receipt.state, ActionState::Done, "{receipt:#?}");
    assert_eq!(living(&helpers), [], "{receipt:#?}");
    for helper in &helpers {
        assert_eq!(sent(&receipt, *helper), ["TERM", "KILL"], "{receipt:#?}");
        // A target that was logged right before the daemon was killed may not have received its signal.
        assert!(stage.terms(*helper) <= 1, "{helper} received SIGTERM {} times", stage.terms(*helper));
    }
    daemon.eventually(seconds(3.0), "the receipt is remembered once", |_| {
        let remembered = daemon.remembered();
        assert!(remembered.len() < 2, "{remembered:#?}");
        remembered.first().is_some_and(|only| *only == receipt).then_some(())
    });
}

#[test]
fn actions_continue_without_state_file() {
    let mut stage = Stage::new();
    let state = stage.directory().join("a-file");
    std::fs::write(&state, "").unwrap_or_else(|error| panic!("{error}"));
    let config = config("0s", "1s");
    let daemon =
        Daemon::with(&stage, &DaemonOptions { config: &config, state: Some(&state), ..DaemonOptions::default() });

    let helpers = left_behind(&mut stage, &daemon);

    let receipt = daemon.only_receipt(seconds(6.0));
    assert_eq!(receipt.state, ActionState::Done, "{receipt:#?}");
    assert_eq!(living(&helpers), []);
    for helper in helpers {
        assert_eq!(sent(&receipt, helper), ["TERM", "KILL"]);
    }
}

#[test]
fn unlogged_action_is_not_executed() {
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, &config("0s", "4s"));
    let in_the_way = runtime_dir(&daemon).join("actions.jsonl");
    std::fs::create_dir(&in_the_way).unwrap_or_else(|error| panic!("{}: {error}", in_the_way.display()));
    let helpers = left_behind(&mut stage, &daemon);

    let receipt = daemon.only_receipt(seconds(5.0));

    assert_eq!(receipt.state, ActionState::Incomplete, "{receipt:#?}");
    assert!(receipt.result.contains("actions.jsonl"), "why is said: {receipt:#?}");
    for helper in &helpers {
        let answers: Vec<&str> = target(&receipt, *helper).sent.iter().map(|sent| sent.answer.as_str()).collect();
        assert!(matches!(answers[..], [why] if why.contains("could not be recorded")), "{receipt:#?}");
    }
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(living(&helpers), helpers);
    assert!(helpers.iter().all(|helper| stage.terms(*helper) == 0), "something was sent");

    std::fs::remove_dir(&in_the_way).unwrap_or_else(|error| panic!("{}: {error}", in_the_way.display()));
    let reaped = daemon.ctl(&["reap", "--yes"]);
    assert_eq!(reaped.code, 0, "{reaped:?}");
    assert_eq!(living(&helpers), []);
    assert!(helpers.iter().all(|helper| stage.terms(*helper) == 1));
}
