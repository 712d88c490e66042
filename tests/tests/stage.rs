//! The harness itself, checked against /proc.

use rustix::process::Signal;
use watchdog_tests::{ProcessKey, Stage, descendants, is_alive, poll, seconds};

#[test]
fn script_reports_identity() {
    let mut stage = Stage::new();
    let agent = stage.agent("report agent spawn helper [ report helper hold ] hold");
    assert_eq!(stage.reported("agent"), agent);
    let helper = stage.reported("helper");
    assert_eq!(ProcessKey::now(helper.pid), Some(helper));
    assert!(descendants(stage.pid()).is_superset(&[agent, helper].into()));
}

#[test]
fn stage_end_kills_escaped_processes() {
    let mut stage = Stage::new();
    stage.agent(
        "fork [ setsid fork [ rename other report daemon hold ] ]
         fork [ subreaper ignore-hup report subreaper fork [ fork [ report inner hold ] ] hold ]
         hold",
    );
    let all = ["daemon", "subreaper", "inner"].map(|name| stage.reported(name));
    assert!(all.iter().all(|process| is_alive(*process)));

    drop(stage);

    assert!(all.iter().all(|process| !is_alive(*process)), "something of {all:?} is left");
}

#[test]
fn sigterm_survivor_counts_signals() {
    let mut stage = Stage::new();
    stage.agent("count-term terms report stubborn hold");
    let stubborn = stage.reported("stubborn");
    let counted = stage.directory().join(format!("terms-{}", stubborn.pid));

    for times in 1..=2 {
        stage.signal(stubborn, Signal::TERM);
        let seen = poll(seconds(5.0), || (std::fs::read(&counted).ok()?.len() == times).then_some(()));
        assert!(seen.is_some(), "not {times} signals: {:?}", std::fs::read(&counted));
    }

    assert!(is_alive(stubborn));
}

#[test]
fn every_fork_variant_works() {
    let mut stage = Stage::new();
    stage.agent(
        "spawn helper [ report spawned hold ] vfork helper [ report vforked hold ]
         posix-spawn helper [ report posix hold ] spawn-as helper [ --flag other ] [ report disguised hold ]
         fork [ exec-from-thread helper [ report threaded hold ] ]
         fork [ await-new-parent exec helper [ report late hold ] ] times 3 [ fork [ report thrice hold ] ]
         report agent await go",
    );
    let names = ["spawned", "vforked", "posix", "disguised", "threaded", "agent"];
    let early: Vec<_> = names.iter().map(|name| stage.reported(name)).collect();
    assert_eq!(stage.all_reported("thrice", 3).len(), 3);
    let cmdline = std::fs::read_to_string(format!("/proc/{}/cmdline", stage.reported("disguised").pid)).unwrap();
    assert!(cmdline.ends_with("helper\0--flag\0other\0"), "{cmdline:?}");

    stage.mark("go");

    assert!(is_alive(stage.reported("late")));
    let agent_ended = poll(seconds(5.0), || (!is_alive(early[5])).then_some(()));
    assert!(agent_ended.is_some(), "the agent's script is done, but it is there");
}
