//! `reap` previews and terminates the orphans of a dead agent, and nothing else.

use std::time::Instant;

use serde_json::Value;
use watchdog_api::FindingKind;
use watchdog_tests::{Daemon, ProcessKey, Snapshot, is_alive, seconds};

/// The session of orphans in which this process is.
fn left_behind(snapshot: &Snapshot, process: ProcessKey) -> Option<u64> {
    let found = !snapshot.open(FindingKind::Orphan).is_empty();
    found.then(|| snapshot.session_with(process).map(|session| session.id)).flatten()
}

fn pids(planned: &Value) -> Vec<u64> {
    let actions = planned["actions"].as_array().into_iter().flatten();
    let targets = actions.flat_map(|action| action["targets"].as_array().into_iter().flatten());
    targets.filter_map(|target| target["pid"].as_u64()).collect()
}

#[test]
fn reap_previews_terminates_reports() {
    let (mut stage, daemon) = Daemon::on_stage();
    let agent = stage.agent("spawn helper [ report wrapper fork [ report server hold ] hold ] hold");
    let [wrapper, server] = ["wrapper", "server"].map(|name| stage.reported(name));
    daemon.eventually(seconds(1.0), "the tree", |snapshot| snapshot.process(server).map(drop));
    stage.kill(agent);
    let session = daemon.eventually(seconds(2.0), "orphans", |snapshot| left_behind(snapshot, server));
    let named = format!("session:{session}");

    let shown = daemon.ctl(&["reap", &named, "--dry-run"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert_eq!(pids(&shown.json()), [u64::from(server.pid), u64::from(wrapper.pid)], "children first");
    assert!(is_alive(server) && is_alive(wrapper), "nothing is done yet");

    let refused = daemon.ctl(&["reap", &named]);
    assert_eq!(refused.code, 2, "no question was asked: {refused:?}");
    assert!(is_alive(server) && is_alive(wrapper), "nothing is done yet");

    let began = Instant::now();
    let reaped = daemon.ctl(&["reap", &named, "--yes"]);
    assert_eq!(reaped.code, 0, "{reaped:?}");
    assert!(!is_alive(server) && !is_alive(wrapper), "{reaped:?}");
    assert!(began.elapsed() < seconds(5.0), "{:?}", began.elapsed());
    let planned = reaped.json();
    assert_eq!(planned["actions"][0]["state"], "done", "{planned:#}");

    let explained = daemon.ctl(&["explain", &format!("pid:{}", server.pid)]);
    assert_eq!(explained.json()["receipts"][0]["id"], planned["actions"][0]["id"], "{explained:?}");
}

#[test]
fn reap_exempts_living_agents_helper() {
    let (mut stage, daemon) = Daemon::on_stage();
    let agent = stage.agent("spawn helper [ report server hold ] hold");
    let server = stage.reported("server");
    let session =
        daemon.eventually(seconds(1.0), "the tree", |snapshot| snapshot.session_with(server).map(|one| one.id));

    let spared = daemon.ctl(&["reap", &format!("pid:{}", server.pid), "--yes"]);
    assert_eq!(spared.code, 1, "{spared:?}");
    assert!(spared.stderr.contains("its agent is running"), "{spared:?}");
    assert!(is_alive(server));

    let ended = daemon.ctl(&["end", &session.to_string(), "--yes"]);
    assert!(!is_alive(server) && !is_alive(agent), "{ended:?}");
    assert_eq!(ended.code, 0, "{ended:?}");
}

#[test]
fn one_request_reaps_many_groups() {
    const GROUPS: usize = 120;
    let (mut stage, daemon) = Daemon::on_stage();
    let starter = stage.start(
        "helper",
        &format!(
            "report starter times {GROUPS} [ spawn AGENT [ spawn helper [ report left hold ] report agent hold ] ] hold"
        ),
    );
    let (left, agents) = (stage.all_reported("left", GROUPS), stage.all_reported("agent", GROUPS));
    daemon.eventually(seconds(10.0), "all", |snapshot| {
        left.iter().all(|it| snapshot.process(*it).is_some()).then_some(())
    });
    agents.iter().for_each(|agent| stage.kill(*agent));
    daemon.eventually(seconds(20.0), "a group for each", |snapshot| {
        (snapshot.open(FindingKind::Orphan).len() == GROUPS).then_some(())
    });

    let reaped = daemon.ctl(&["reap", "--yes"]);

    assert!(left.iter().all(|process| !is_alive(*process)), "{}", reaped.stderr);
    assert_eq!(reaped.code, 0, "{}", reaped.stderr);
    assert!(is_alive(starter));
}
