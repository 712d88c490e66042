//! A grant gives a lease, which ends with its process. A launch without one waits, or is refused.

use std::time::{Duration, Instant};

use crate::{launch, queued};
use rustix::process::Signal;
use watchdog_api::{FindingKind, RefusalReason};
use watchdog_tests::{CtlOutput, Daemon, NOBODY, ProcessKey, Stage, get, is_alive, limit, poll, post, seconds};

#[test]
fn lease_ends_with_launched_command() {
    let mut stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    let launcher = launch(&mut stage, &daemon, 1, &[], "report agent spawn helper [ report helper hold ] hold")[0];
    let (agent, helper) = (stage.reported("agent"), stage.reported("helper"));

    assert_eq!(agent, launcher, "the launcher is the command: no process of ours stays behind");
    let session = daemon.eventually(seconds(2.0), "the session", |snapshot| {
        snapshot.session(agent).filter(|session| session.processes.len() == 2).cloned()
    });
    assert!(session.gated && session.processes.iter().any(|process| process.pid == helper.pid));
    let lease = &daemon.queue().leases[0];
    assert_eq!((lease.pid, lease.start_time, lease.session), (agent.pid, agent.start_time, Some(session.id)));
    let open = daemon.snapshot().open(FindingKind::Ungated).len();
    assert_eq!(open, 0);

    stage.kill(agent);
    let over = poll(seconds(1.0), || daemon.queue().leases.is_empty().then_some(()));
    assert!(over.is_some(), "{:?}", daemon.queue());
    let metrics = daemon.metrics();
    assert!(metrics.contains("agent_watchdog_launches_total{outcome=\"granted\",profile=\"test\"} 1"), "{metrics}");
}

/// A daemon that allows one session, and that session's agent.
fn with_only_place_taken() -> (Stage, Daemon, ProcessKey) {
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, "[gate]\nmax_sessions = 1\n");
    let first = launch(&mut stage, &daemon, 1, &[], "report first hold")[0];
    stage.reported("first");
    (stage, daemon, first)
}

#[test]
fn queue_order_survives_restart() {
    let (mut stage, mut daemon, first) = with_only_place_taken();
    let mut waiting = Vec::new();
    for number in 1..=5 {
        waiting.extend(launch(&mut stage, &daemon, 1, &[], "report served exit"));
        queued(&daemon, number);
    }
    daemon.send(Signal::KILL);
    daemon.wait(limit(Duration::from_secs(5)));
    daemon.restart();

    let back = poll(limit(Duration::from_secs(10)), || {
        let queue = daemon.queue();
        (queue.waiting.len() == 5 && queue.waiting.iter().all(|waiter| !waiter.away)).then_some(queue)
    });
    let queue = back.unwrap_or_else(|| panic!("{:#?}", daemon.queue()));
    let order: Vec<u32> = queue.waiting.iter().map(|waiter| waiter.pid).collect();
    assert_eq!(order, waiting.iter().map(|process| process.pid).collect::<Vec<_>>());
    assert_eq!(queue.leases[0].pid, first.pid, "the daemon knows its leases");
    assert_eq!(queue.waiting[0].detail, "1 of 1 sessions running", "{queue:#?}");
    stage.kill(first);
    assert_eq!(stage.all_reported("served", 5), waiting);
}

#[test]
fn freed_lease_is_granted_at_once() {
    let (mut stage, daemon, mut holder) = with_only_place_taken();
    // One round must take less than the tick of 1 s. The other rounds may wait for a processor.
    let times = (1..=5).map(|round| {
        let next = format!("next-{round}");
        launch(&mut stage, &daemon, 1, &[], &format!("report {next} hold"));
        queued(&daemon, 1);
        let freed = Instant::now();
        stage.kill(holder);
        holder = stage.reported(&next);
        freed.elapsed()
    });
    // The first round may begin shortly before a tick; each of the others would begin after the one that ended the last.
    let least = times.skip(1).min().expect("four rounds");
    assert!(least < limit(Duration::from_millis(500)), "{least:?}");
}

#[test]
fn refusal_names_limit_and_holders() {
    let (stage, daemon, first) = with_only_place_taken();

    let agent = stage.directory().join(stage.agent_name()).display().to_string();
    let refused: CtlOutput = daemon.ctl(&["launch", "--no-wait", "--", &agent, "exit"]);
    assert_eq!(refused.code, 75, "{refused:?}");
    let refusal: serde_json::Value = serde_json::from_str(refused.stderr.trim()).expect("one JSON object");
    assert_eq!((&refusal["granted"], &refusal["reason"]), (&false.into(), &"quota".into()));
    assert_eq!(refusal["bound"], "[gate] max_sessions");
    assert_eq!(refusal["holders"][0]["pid"], first.pid);
    assert!(refusal["retry_after_seconds"].is_number(), "{refusal}");

    let timed_out = daemon.ctl(&["launch", "--timeout", "1s", "--", &agent, "exit"]);
    assert_eq!(timed_out.code, 75, "{timed_out:?}");
    assert!(timed_out.stderr.contains("\"reason\":\"timeout\""), "{timed_out:?}");
    let remembered: Vec<RefusalReason> = daemon.queue().refused.iter().map(|refused| refused.reason).collect();
    assert!(remembered.contains(&RefusalReason::Quota), "{remembered:?}");
}

#[test]
fn other_user_cannot_use_lease() {
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, "[gate]\nmax_sessions_per_user = 1\n");
    let roots = launch(&mut stage, &daemon, 1, &[], "report root hold")[0];
    stage.reported("root");
    let waits = launch(&mut stage, &daemon, 1, &[], "hold")[0];
    queued(&daemon, 1);

    // A quota of their own.
    let agent = stage.directory().join(stage.agent_name()).display().to_string();
    let theirs = daemon.ctl_as(NOBODY, &["launch", "--no-wait", "--", &agent, "exit"]);
    assert_eq!(theirs.code, 0, "{theirs:?}");
    // Not another user's place,
    let cancelled = daemon.ctl_as(NOBODY, &["queue", "--cancel", &waits.pid.to_string()]);
    assert_eq!(cancelled.code, 77, "{cancelled:?}");
    // nor a process that is not theirs,
    let socket = daemon.socket();
    let body = serde_json::json!({ "path": "/bin/true", "pid": roots.pid, "start_time": roots.start_time });
    let foreign = watchdog_tests::as_user(NOBODY, move || post(&socket, "/v1/launch", &body));
    assert_eq!(foreign.expect("an answer").status, 403);
    // nor a look at it.
    let socket = daemon.socket();
    let seen = watchdog_tests::as_user(NOBODY, move || get(&socket, "/v1/queue")).expect("an answer").json();
    assert_eq!((seen["waiting"].as_array().map(Vec::len), seen["leases"].as_array().map(Vec::len)), (Some(0), Some(0)));
    assert!(is_alive(waits) && daemon.queue().waiting.len() == 1);

    let own = daemon.ctl(&["queue", "--cancel", &waits.pid.to_string()]);
    assert_eq!(own.code, 0, "{own:?}");
    let exited = poll(seconds(2.0), || (!is_alive(waits)).then_some(()));
    assert!(exited.is_some(), "a cancelled launch exits");
}
