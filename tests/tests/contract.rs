//! The contract with scripts: names and exit codes, to which new ones may be added.

use serde_json::Value;
use watchdog_api::FindingKind;
use watchdog_tests::{Daemon, ProcessKey, Stage, seconds};

/// The names of an object that must be there.
fn has(object: &Value, names: &[&str]) {
    let fields = object.as_object().unwrap_or_else(|| panic!("no object: {object}"));
    let missing: Vec<_> = names.iter().filter(|name| !fields.contains_key(**name)).collect();
    assert!(missing.is_empty(), "no {missing:?} in {object}");
}

/// An orphaned session: a helper whose agent was killed.
fn orphaned() -> (Stage, Daemon, ProcessKey) {
    let (mut stage, daemon) = Daemon::on_stage();
    let agent = stage.agent("spawn helper [ report helper anon 8 hold ] hold");
    let helper = stage.reported("helper");
    daemon.eventually(seconds(3.0), "the helper, with its memory", |snapshot| {
        (snapshot.process(helper)?.anon_bytes >= 8 << 20).then_some(())
    });
    stage.kill(agent);
    daemon.eventually(seconds(1.0), "an orphan", |snapshot| snapshot.open(FindingKind::Orphan).first().map(drop));
    (stage, daemon, helper)
}

/// The one finding of an orphan: an agent that was not started through the gate may be one of its own.
fn orphan(findings: &Value) -> &Value {
    let all = findings["findings"].as_array().into_iter().flatten();
    let orphans: Vec<&Value> = all.filter(|finding| finding["kind"] == "orphan").collect();
    let [orphan] = orphans[..] else { panic!("not one orphan: {findings}") };
    orphan
}

#[test]
fn tree_in_json() {
    let (_stage, daemon, helper) = orphaned();

    let answer = daemon.ctl(&["tree"]);

    assert_eq!(answer.code, 0, "{answer:?}");
    let tree = answer.json();
    let session = &tree["sessions"][0];
    has(session, &["id", "profile", "state", "gated", "user", "uid", "started_at", "memory_bytes", "processes"]);
    assert_eq!(session["profile"], "test");
    assert_eq!(session["state"], "orphaned");
    assert_eq!(session["gated"], false);
    assert_eq!((&session["user"], &session["uid"]), (&"root".into(), &0.into()));
    assert!(session["started_at"].as_str().is_some_and(|at| at.ends_with('Z') && at.contains('T')), "{session}");
    let processes = session["processes"].as_array().expect("processes");
    let process = processes.iter().find(|process| process["pid"] == helper.pid).expect("the helper");
    has(
        process,
        &[
            "pid",
            "start_time",
            "ppid",
            "parent_pid",
            "depth",
            "kind",
            "comm",
            "argv",
            "state",
            "rss_bytes",
            "anon_bytes",
            "shmem_bytes",
            "swap_bytes",
            "peak_bytes",
        ],
    );
    assert_eq!(process["start_time"], helper.start_time);
    assert_eq!(process["state"], "orphaned");
    assert_eq!(process["comm"], "helper");
    assert!(process["anon_bytes"].as_u64().is_some_and(|bytes| bytes >= 8 << 20), "{process}");
}

#[test]
fn one_session_by_its_number() {
    let (_stage, daemon, _) = orphaned();
    let id = daemon.ctl(&["tree"]).json()["sessions"][0]["id"].to_string();

    let one = daemon.ctl(&["tree", &id]);
    let none = daemon.ctl(&["tree", "999999"]);

    assert_eq!(one.json()["sessions"].as_array().map(Vec::len), Some(1));
    assert_eq!(none.code, 1, "{none:?}");
}

#[test]
fn findings_in_json() {
    let (stage, daemon, helper) = orphaned();

    let answer = daemon.ctl(&["findings"]);

    assert_eq!(answer.code, 0, "{answer:?}");
    let findings = answer.json();
    let finding = orphan(&findings);
    has(
        finding,
        &[
            "id",
            "kind",
            "severity",
            "session",
            "pid",
            "start_time",
            "opened_at",
            "closed_at",
            "evidence",
            "proposed_action",
            "action_taken",
        ],
    );
    assert_eq!(finding["kind"], "orphan");
    assert_eq!((&finding["pid"], &finding["start_time"]), (&helper.pid.into(), &helper.start_time.into()));
    assert_eq!((&finding["closed_at"], &finding["action_taken"]), (&Value::Null, &Value::Null));

    stage.kill(helper);
    daemon.eventually(seconds(2.0), "closed", |snapshot| {
        snapshot.findings.iter().all(|finding| finding.closed_at.is_some()).then_some(())
    });
    assert_eq!(daemon.ctl(&["findings"]).json()["findings"].as_array().map(Vec::len), Some(0), "only the open ones");
    let all = daemon.ctl(&["findings", "--all"]).json();
    assert!(orphan(&all)["closed_at"].is_string(), "{all}");
}

#[test]
fn status_in_json() {
    let (_stage, daemon, _) = orphaned();

    let answer = daemon.ctl(&["status"]);

    assert_eq!(answer.code, 0, "{answer:?}");
    let status = answer.json();
    has(&status, &["version", "pid", "degraded", "capabilities", "counts", "host", "breaker_open", "lost_events"]);
    assert_eq!(status["pid"], daemon.pid());
    assert_eq!(status["counts"]["findings_open"], 1);
    assert!(status["host"]["memory_total_bytes"].as_u64() > status["host"]["memory_available_bytes"].as_u64());
}

#[test]
fn events_in_json() {
    let (_stage, daemon, helper) = orphaned();

    let events = daemon.ctl(&["events"]);
    let none = daemon.ctl(&["events", "--since", "0s"]);

    assert_eq!(events.code, 0, "{events:?}");
    let events = events.json();
    let events = events["events"].as_array().expect("events");
    for event in events {
        has(event, &["seq", "at", "type"]);
    }
    let of_helper = |kind: &str| events.iter().any(|event| event["type"] == kind && event["pid"] == helper.pid);
    assert!(of_helper("fork") && of_helper("exec"), "{events:?}");
    assert!(events.iter().any(|event| event["type"] == "finding"), "{events:?}");
    assert_eq!(none.json()["events"].as_array().map(Vec::len), Some(0), "{none:?}");
}

#[test]
fn tables_have_no_colour_in_pipes() {
    let (_stage, daemon, helper) = orphaned();

    for command in [&["tree"][..], &["findings"], &["status"], &["events"], &["doctor"]] {
        let answer = daemon.ctl_text(command);
        assert_eq!(answer.code, 0, "{answer:?}");
        assert!(!answer.stdout.is_empty() && !answer.stdout.contains('\u{1b}'), "{answer:?}");
    }
    let tree = daemon.ctl_text(&["tree"]).stdout;
    assert!(tree.contains(&helper.pid.to_string()) && tree.contains("orphaned"), "{tree}");
}

#[test]
fn unknown_target_is_error() {
    let (_stage, daemon, _) = orphaned();

    // No process has this pid: it is above the highest that the kernel allows.
    let missing = daemon.ctl(&["adopt", "4194305"]);
    let nonsense = daemon.ctl(&["adopt", "everything"]);

    assert_eq!(missing.code, 1, "{missing:?}");
    assert!(missing.stderr.contains("4194305"), "{missing:?}");
    assert_eq!(nonsense.code, 2, "{nonsense:?}");
}
