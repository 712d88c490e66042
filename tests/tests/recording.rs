//! A recording replays to the daemon's findings, and contains no user-written argument.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, and not what they share")]

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use watchdog_api::FindingKind;
use watchdog_tests::{Daemon, DaemonOptions, Stage, poll, seconds};

/// The findings without their moments, which are as exact as the wall clock.
fn timeless(findings: &Value) -> Vec<Value> {
    let mut findings = findings["findings"].as_array().cloned().unwrap_or_default();
    for finding in findings.iter_mut().filter_map(Value::as_object_mut) {
        for moment in ["opened_at", "closed_at", "changes"] {
            finding.remove(moment);
        }
    }
    findings
}

/// The first orphan of a replay.
fn orphan(replay: &Value) -> &Value {
    let findings = replay["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["kind"] == "orphan").unwrap_or_else(|| panic!("no orphan in {replay:#}"))
}

/// Waits until the recording, which has no end yet, contains the changes up to these findings.
fn await_recorded(daemon: &Daemon, live: &Value) {
    let changes = |findings: &Value| -> Vec<[Value; 3]> {
        let findings = findings["findings"].as_array().cloned().unwrap_or_default();
        findings.iter().map(|finding| ["id", "kind", "closed_because"].map(|name| finding[name].clone())).collect()
    };
    let file = daemon.recording().display().to_string();
    let recorded = poll(seconds(10.0), || {
        let replay = daemon.ctl(&["replay", &file]);
        (replay.code == 0 && changes(&replay.json()) == changes(live)).then_some(())
    });
    assert!(recorded.is_some(), "{:?} is not\n{live:#}", daemon.ctl(&["replay", &file]));
}

/// All that the file says, uncompressed.
fn text(daemon: &Daemon) -> String {
    let output = Command::new("zcat").stdin(File::open(daemon.recording()).unwrap()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn replay_gives_daemons_findings() {
    let mut stage = Stage::new();
    let config = "# SECRET-comment\n[orphans]\ngrace = \"1s\"\n";
    let mut daemon = Daemon::with(&stage, &DaemonOptions { config, record: true, ..DaemonOptions::default() });
    let agent = stage.agent(
        "spawn-as helper [ SECRET-prompt --token=SECRET-token -pSECRET ] [ report top fork [ report leaf hold ] hold ] hold",
    );
    let leaf = stage.reported("leaf");
    daemon.eventually(seconds(2.0), "the leaf", |snapshot| snapshot.process(leaf).map(drop));
    stage.kill(agent);
    daemon.eventually(seconds(5.0), "a proposal", |snapshot| {
        snapshot.open(FindingKind::Orphan).first().filter(|finding| finding.proposed_action == "terminate").map(drop)
    });
    stage.kill(leaf);
    stage.kill(stage.reported("top"));
    daemon.eventually(seconds(5.0), "that it closes", |snapshot| {
        snapshot.findings_of(FindingKind::Orphan).first().filter(|finding| finding.closed_at.is_some()).map(drop)
    });
    let live = daemon.ctl(&["findings", "--all"]).json();
    await_recorded(&daemon, &live);
    daemon.send(Signal::TERM);
    assert!(daemon.wait(seconds(10.0)).is_some_and(|status| status.success()), "{}", daemon.log());

    let file = daemon.recording().display().to_string();
    let replay = daemon.ctl(&["replay", &file]);
    assert_eq!((replay.code, replay.stderr.as_str()), (0, ""));
    assert_eq!(timeless(&replay.json()), timeless(&live));
    let document = replay.json();
    let changes = orphan(&document)["changes"].as_array().unwrap();
    let changes: Vec<&Value> = changes.iter().map(|change| &change["change"]).collect();
    assert_eq!(changes, ["opened", "changed", "closed"]);
    assert_eq!(replay.stdout, daemon.ctl(&["replay", &file]).stdout, "the same bytes each time");
    assert_eq!(daemon.ctl_text(&["replay", &file]).stdout, daemon.ctl_text(&["replay", &file]).stdout);

    let text = text(&daemon);
    assert!(text.contains("/helper") && !text.contains("SECRET"), "{text}");
    assert_eq!(std::fs::metadata(daemon.recording()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn reloaded_configuration_is_replayed() {
    let mut stage = Stage::new();
    let mut daemon = Daemon::with(&stage, &DaemonOptions { record: true, ..DaemonOptions::default() });
    let agent = stage.agent("spawn helper [ report helper hold ] hold");
    let helper = stage.reported("helper");
    daemon.eventually(seconds(2.0), "the helper", |snapshot| snapshot.process(helper).map(drop));
    stage.kill(agent);
    daemon.eventually(seconds(2.0), "an orphan", |snapshot| snapshot.open(FindingKind::Orphan).first().map(drop));

    daemon.reload("[orphans]\nkeep = [\"*/helper\"]\n");

    let kept = daemon.eventually(seconds(3.0), "that it is kept", |snapshot| {
        snapshot.findings_of(FindingKind::Orphan).first()?.closed_because.clone()
    });
    let live = daemon.ctl(&["findings", "--all"]).json();
    await_recorded(&daemon, &live);
    daemon.send(Signal::TERM);
    assert!(daemon.wait(seconds(10.0)).is_some());
    let replay = daemon.ctl(&["replay", &daemon.recording().display().to_string()]).json();
    assert_eq!(orphan(&replay)["closed_because"], kept);
    assert_eq!(timeless(&replay), timeless(&live));
}

#[test]
fn killed_daemons_recording_is_replayed() {
    let mut stage = Stage::new();
    let mut daemon = Daemon::with(&stage, &DaemonOptions { record: true, ..DaemonOptions::default() });
    let agent = stage.agent("fork [ report helper hold ] hold");
    let helper = stage.reported("helper");
    daemon.eventually(seconds(2.0), "the helper", |snapshot| snapshot.process(helper).map(drop));
    stage.kill(agent);
    daemon.eventually(seconds(2.0), "an orphan", |snapshot| snapshot.open(FindingKind::Orphan).first().map(drop));
    await_recorded(&daemon, &daemon.ctl(&["findings", "--all"]).json());
    daemon.send(Signal::KILL);
    assert!(daemon.wait(seconds(2.0)).is_some());

    let file = daemon.recording().display().to_string();
    let replay = daemon.ctl(&["replay", &file]);
    assert_eq!(replay.code, 0);
    assert!(replay.stderr.contains("has no end marker"), "{}", replay.stderr);
    assert_eq!(orphan(&replay.json())["closed_at"], Value::Null);
    // And as a crash of the host may leave it.
    let whole = std::fs::read(daemon.recording()).unwrap();
    std::fs::write(daemon.recording(), &whole[..whole.len() - 7]).unwrap();
    let torn = daemon.ctl(&["replay", &file]);
    assert_eq!((torn.code, torn.json()["recording"]["end"].as_str()), (0, Some("torn")));
    assert!(torn.stderr.contains("is truncated after"), "{}", torn.stderr);
}
