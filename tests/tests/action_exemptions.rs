//! With the strictest policy, kept and uncertain processes and processes outside of sessions are exempt.

use std::time::Duration;

use serde_json::{Value, json};
use watchdog_api::{ActionState, FindingKind, ProcessState};
use watchdog_tests::{
    Daemon, NOBODY, ProcessKey, Stage, as_user, is_alive, is_stopped, living, poll, post, seconds, sent,
};

/// Every kind as hard as is allowed, at once, and an emergency at every moment.
const HARD: &str = "[orphans]\ngrace = \"0s\"\nkeep = [\"*/my-own-service\"]
[actions]\nenforce = true\ngrace = \"0s\"\nkill_after = \"1s\"\nsettle = \"1s\"\nmax_kills_per_minute = 1000
emergency_term = \"100%\"\nemergency_kill = \"99%\"
orphan = \"terminate\"\nstale = \"terminate\"\nleak = \"terminate\"\noverlimit = \"terminate\"\nfanout = \"throttle\"\n";

#[test]
fn only_orphan_is_terminated() {
    let mut stage = Stage::new();
    for program in ["tmux", "SCREEN", "java", "ssh-agent", "my-own-service"] {
        stage.install(program);
    }
    let daemon = Daemon::configured(&stage, HARD);
    let outside = stage.start("helper", "hold");
    let other = stage.agent("spawn helper [ report others hold ] hold");
    // By the time of the nohup the agent has been looked at, and it does not ignore SIGHUP itself.
    let agent = stage.agent(
        "spawn helper [ report orphan hold ]
         fork [ ignore-hup sleep 0.5 exec helper [ report nohup hold ] ]
         fork [ fork [ setsid exec helper [ listen-tcp report service hold ] ] ]
         fork [ fork [ setsid exec tmux [ rename tmux:~server fork [ setsid exec helper [ report pane hold ] ] report tmux hold ] ] ]
         fork [ fork [ setsid exec SCREEN [ rename screen report screen hold ] ] ]
         fork [ spawn-as java [ -Xmx512m -cp gradle-launcher.jar org.gradle.launcher.daemon.bootstrap.GradleDaemon 8.5 ] [ setsid report gradle hold ] ]
         fork [ fork [ setsid exec ssh-agent [ listen-unix agent.sock report ssh-agent hold ] ] ]
         spawn my-own-service [ report listed hold ]
         spawn helper [ listen-tcp report in-doubt hold ]
         spawn helper [ report adopted hold ] hold",
    );
    let names = [
        "nohup",
        "service",
        "tmux",
        "pane",
        "screen",
        "gradle",
        "ssh-agent",
        "listed",
        "in-doubt",
        "adopted",
        "others",
    ];
    let mut meant_to_stay: Vec<ProcessKey> = names.map(|name| stage.reported(name)).into();
    let (orphan, adopted) = (stage.reported("orphan"), meant_to_stay[9]);
    daemon.eventually(seconds(2.0), "everyone", |snapshot| {
        let shown = |process: &ProcessKey| snapshot.process(*process).is_some();
        (shown(&orphan) && meant_to_stay.iter().all(shown)).then_some(())
    });
    let this_test = ProcessKey::now(std::process::id());
    let above = [ProcessKey::now(stage.pid()), ProcessKey::now(daemon.pid()), this_test, Some(outside), Some(other)];
    meant_to_stay.extend(above.into_iter().flatten());
    assert_eq!(meant_to_stay.len(), names.len() + above.len());
    let answer = daemon.ctl(&["adopt", &format!("pid:{}", adopted.pid)]);
    assert_eq!(answer.code, 0, "{answer:?}");

    stage.kill(agent);

    let state = || daemon.describe(Some(&daemon.snapshot()));
    assert!(poll(seconds(3.0), || (!is_alive(orphan)).then_some(())).is_some(), "the orphan lives\n{}", state());
    let died = poll(Duration::from_secs(3), || {
        let alive = living(&meant_to_stay);
        (alive != meant_to_stay).then_some(alive)
    });
    assert_eq!(died, None, "not all of {meant_to_stay:?} live\n{}", state());
    let targets = daemon.receipts().into_iter().flat_map(|receipt| receipt.targets);
    let targets: Vec<u32> = targets.map(|target| target.pid).collect();
    assert_eq!(targets, [orphan.pid], "{}", state());
}

#[test]
fn other_users_process_is_exempt() {
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, HARD);
    let agent = stage.start(
        "helper",
        &format!(
            "real-uid {NOBODY} exec AGENT [
                fork [ uid {NOBODY} exec helper [ report orphan hold ] ]
                spawn helper [ report waits fork [ uid 0 exec helper [ report roots hold ] ] hold ]
                report agent hold ]"
        ),
    );
    stage.reported("agent");
    let [orphan, waits, roots] = ["orphan", "waits", "roots"].map(|name| stage.reported(name));
    daemon.eventually(seconds(2.0), "all of them", |snapshot| {
        [orphan, waits, roots].iter().all(|process| snapshot.process(*process).is_some()).then_some(())
    });

    stage.kill(agent);

    let state = || daemon.describe(Some(&daemon.snapshot()));
    assert!(poll(seconds(3.0), || (!is_alive(orphan)).then_some(())).is_some(), "the orphan lives\n{}", state());
    let stayed = [waits, roots];
    let died = poll(Duration::from_secs(3), || (living(&stayed) != stayed).then_some(()));
    assert_eq!(died, None, "{}", state());
    let found = daemon
        .snapshot()
        .findings_of(FindingKind::Orphan)
        .first()
        .map(|found| found.evidence.to_map()["processes"].clone());
    let processes = found.as_ref().and_then(Value::as_array).expect("an open finding");
    let because = |process: ProcessKey| {
        let listed = processes.iter().find(|listed| listed["pid"] == process.pid);
        listed.map(|listed| listed["because"].clone())
    };
    assert_eq!(because(roots), Some(json!("runs as uid 0, and its session as uid 65534")), "{}", state());
    assert_eq!(
        because(waits),
        Some(json!(format!("related to helper (pid {}), which is uncertain", roots.pid))),
        "{}",
        state()
    );
}

/// Posts as another user, and says with what status that was answered.
fn post_as_nobody(daemon: &Daemon, path: &'static str, body: Value) -> u16 {
    let socket = daemon.socket();
    let answer = as_user(NOBODY, move || post(&socket, path, &body));
    answer.unwrap_or_else(|error| panic!("POST {path}: {error}")).status
}

#[test]
fn user_ends_own_processes_only() {
    let mut stage = Stage::new();
    let config = "[orphans]\ngrace = \"0s\"\n[actions]\nenforce = true\norphan = \"freeze\"\nkill_after = \"10s\"\n";
    let daemon = Daemon::configured(&stage, config);
    let agent = stage.agent("spawn helper [ report frozen hold ] hold");
    let roots = [stage.agent("spawn helper [ report root hold ] hold"), stage.reported("root")];
    stage.start("helper", "uid 65534 exec AGENT [ report agent spawn helper [ report nobody hold ] hold ]");
    let (frozen, nobodys) = (stage.reported("frozen"), [stage.reported("agent"), stage.reported("nobody")]);
    let session = |process: ProcessKey| {
        daemon.eventually(seconds(2.0), "its session", |snapshot| snapshot.session_with(process).map(|one| one.id))
    };
    let [root_session, nobody_session, frozen_session] = [roots[1], nobodys[1], frozen].map(session);
    stage.kill(agent);
    daemon.eventually(seconds(4.0), "it is frozen", |_| is_stopped(frozen).then_some(()));

    for (path, body) in [
        ("/v1/reap", json!({ "subjects": [{ "pid": frozen.pid }] })),
        ("/v1/reap", json!({ "subjects": [{ "session": frozen_session }] })),
        ("/v1/end", json!({ "session": root_session })),
        ("/v1/thaw", json!({ "subjects": [{ "pid": frozen.pid }] })),
        ("/v1/thaw", json!({})),
    ] {
        assert_eq!(post_as_nobody(&daemon, path, body.clone()), 403, "{path} {body}");
    }
    let (pid, session) = (format!("pid:{}", frozen.pid), root_session.to_string());
    for arguments in [&["reap", &pid, "--yes"][..], &["end", &session, "--yes"], &["thaw", &pid]] {
        let answer = daemon.ctl_as(NOBODY, arguments);
        assert_eq!(answer.code, 77, "{arguments:?}: {answer:?}");
    }
    let all = daemon.ctl_as(NOBODY, &["reap", "--yes"]);
    assert_eq!(all.code, 0, "nothing of theirs was left behind: {all:?}");
    assert!(is_stopped(frozen) && living(&roots) == roots);

    let ended = daemon.ctl_as(NOBODY, &["end", &nobody_session.to_string(), "--yes"]);

    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(living(&nobodys), []);
    let seen = daemon.ctl_as(NOBODY, &["actions"]).json()["actions"].clone();
    assert_eq!(seen.as_array().map(Vec::len), Some(1), "their own receipt, and none of root's: {seen:#}");
    assert_eq!(seen[0]["asked_by_uid"], NOBODY, "{seen:#}");
    assert!(is_stopped(frozen) && living(&roots) == roots);

    let thawed = daemon.ctl(&["reap", &pid, "--yes"]);
    assert_eq!(thawed.code, 0, "a frozen process is resumed so that it can exit: {thawed:?}");
    let receipts = daemon.receipts();
    let last = receipts.last().filter(|receipt| receipt.state == ActionState::Done);
    assert_eq!(last.map(|receipt| sent(receipt, frozen)), Some(vec!["TERM"]), "{receipts:#?}");
    let snapshot = daemon.snapshot();
    assert_eq!(snapshot.process(roots[1]).map(|process| process.state), Some(ProcessState::Running));
}
