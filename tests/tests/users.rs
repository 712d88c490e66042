//! Each user sees and controls their own processes only, by SO_PEERCRED; root sees all.
#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use serde_json::json;
use watchdog_tests::{Daemon, HttpResponse, NOBODY, ProcessKey, Stage, as_user, get, is_alive, post, seconds};

/// A tree of root, and one of the unprivileged user.
struct Two {
    stage: Stage,
    daemon: Daemon,
    roots: ProcessKey,
    nobodys: ProcessKey,
}

fn two_users() -> Two {
    let (mut stage, daemon) = Daemon::on_stage();
    stage.agent("spawn-as helper [ --token root-secret ] [ report root hold ] hold");
    stage
        .start("helper", "uid 65534 exec AGENT [ spawn-as helper [ --token own-secret ] [ report nobody hold ] hold ]");
    let (roots, nobodys) = (stage.reported("root"), stage.reported("nobody"));
    daemon.eventually(seconds(2.0), "both trees", |snapshot| {
        snapshot.process(roots).and(snapshot.process(nobodys)).map(drop)
    });
    Two { stage, daemon, roots, nobodys }
}

impl Two {
    fn get_as_nobody(&self, path: &'static str) -> HttpResponse {
        let socket = self.daemon.socket();
        as_user(NOBODY, move || get(&socket, path)).expect("an answer")
    }

    fn adopt_as_nobody(&self, subject: serde_json::Value) -> HttpResponse {
        let socket = self.daemon.socket();
        as_user(NOBODY, move || post(&socket, "/v1/adopt", &subject)).expect("an answer")
    }
}

#[test]
fn user_sees_no_foreign_process() {
    let two = two_users();

    for path in ["/v1/tree", "/v1/findings?all=true", "/v1/events"] {
        let seen = two.get_as_nobody(path);
        assert_eq!(seen.status, 200, "{}", seen.body);
        assert!(!seen.body.contains("root-secret"), "{path} shows another user's argument: {}", seen.body);
        let pid = format!("\"pid\":{},", two.roots.pid);
        assert!(!seen.body.contains(&pid), "{path} shows another user's process: {}", seen.body);
    }
    let tree = two.get_as_nobody("/v1/tree");
    assert!(tree.body.contains("own-secret"), "{}", tree.body);
    assert!(tree.body.contains(&format!("\"pid\":{},", two.nobodys.pid)), "{}", tree.body);
    let sessions = tree.json()["sessions"].as_array().map(Vec::len);
    assert_eq!(sessions, Some(1));
    let counts = two.get_as_nobody("/v1/status").json()["counts"].clone();
    assert_eq!(counts["processes"], 2, "{counts}");
}

#[test]
fn root_sees_both() {
    let two = two_users();
    let tree = two.daemon.get("/v1/tree").to_string();
    assert!(tree.contains("root-secret") && tree.contains("own-secret"), "{tree}");
}

#[test]
fn user_adopts_no_foreign_process() {
    let two = two_users();

    let refused = two.adopt_as_nobody(json!({ "pid": two.roots.pid }));
    assert_eq!(refused.status, 403, "{}", refused.body);
    assert!(refused.json()["error"].is_string());
    let answer = two.daemon.ctl_as(NOBODY, &["adopt", &two.roots.pid.to_string()]);
    assert_eq!(answer.code, 77, "{answer:?}");

    // The answer about an unused pid is the same as about another user's process.
    let granted = two.adopt_as_nobody(json!({ "pid": two.nobodys.pid }));
    assert_eq!(granted.status, 200, "{}", granted.body);
    two.daemon.eventually(seconds(1.0), "kept: theirs, and not root's", |snapshot| {
        use watchdog_api::ProcessState::Kept;
        let state = |process| snapshot.process(process).map(|process| process.state);
        (state(two.nobodys) == Some(Kept) && state(two.roots) != Some(Kept)).then_some(())
    });
}

#[test]
fn findings_of_another_user_stay_hidden() {
    let two = two_users();
    let agents: Vec<_> =
        two.daemon.snapshot().tree.sessions.iter().map(|session| session.processes[0].clone()).collect();
    for agent in agents {
        two.stage.kill(ProcessKey { pid: agent.pid, start_time: agent.start_time });
    }
    two.daemon.eventually(seconds(2.0), "two findings", |snapshot| {
        (snapshot.open(watchdog_api::FindingKind::Orphan).len() == 2).then_some(())
    });

    let seen = two.get_as_nobody("/v1/findings");

    assert_eq!(seen.json()["findings"].as_array().map(Vec::len), Some(1), "{}", seen.body);
    assert!(seen.body.contains(&two.nobodys.pid.to_string()));
    assert!(!seen.body.contains("root-secret"));
}

/// An agent of the user nobody with a set-user-ID helper that makes itself root without another exec.
fn setuid_helper(script: &str) -> (Stage, Daemon, ProcessKey, ProcessKey, u64) {
    let mut stage = Stage::new();
    let helper = stage.copy("setuid-helper");
    std::fs::set_permissions(&helper, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).expect("set-user-ID");
    let daemon = Daemon::configured(&stage, "[actions]\nkill_after = \"1s\"\n");
    stage.start(
        "helper",
        &format!("uid 65534 exec AGENT [ report agent spawn setuid-helper [ {script} report helper hold ] hold ]"),
    );
    let (agent, helper) = (stage.reported("agent"), stage.reported("helper"));
    let session = daemon.eventually(seconds(2.0), "both", |snapshot| {
        snapshot.process(helper).and(snapshot.session_with(agent)).map(|it| it.id)
    });
    (stage, daemon, agent, helper, session)
}

#[test]
fn user_cannot_end_root_process() {
    let (stage, daemon, agent, helper, session) = setuid_helper("all-uids 0");

    let ended = daemon.ctl_as(NOBODY, &["end", &session.to_string(), "--yes"]);

    assert!(is_alive(helper) && !is_alive(agent), "{ended:?}");
    let because = format!("not permitted: process {} runs as root", helper.pid);
    assert!(ended.stdout.contains(&because), "{ended:?}");
    let again = daemon.ctl_as(NOBODY, &["end", &session.to_string(), "--yes"]);
    assert_eq!(again.code, 77, "nothing else could be done: {again:?}");
    assert!(is_alive(helper), "{}", stage.log());
    let by_root = daemon.ctl(&["end", &session.to_string(), "--yes"]);
    assert!(by_root.code == 0 && !is_alive(helper), "{by_root:?}");
}

#[test]
fn user_ends_own_setuid_program() {
    let (_stage, daemon, agent, helper, session) = setuid_helper("");

    let ended = daemon.ctl_as(NOBODY, &["end", &session.to_string(), "--yes"]);

    assert_eq!(ended.code, 0, "kill(2) permits it, by the real user id: {ended:?}");
    assert!(!is_alive(helper) && !is_alive(agent));
}

#[test]
fn user_ends_process_that_dropped_root() {
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, "[actions]\nkill_after = \"1s\"\n");
    let root = stage.agent("spawn helper [ await become all-uids 65534 report helper hold ] hold");
    let session =
        daemon.eventually(seconds(2.0), "root's agent", |snapshot| snapshot.session_with(root).map(|it| it.id));
    stage.mark("become");
    let helper = stage.reported("helper");
    let refused = daemon.ctl_as(NOBODY, &["end", &session.to_string(), "--yes"]);
    assert_eq!(refused.code, 77, "the session is root's: {refused:?}");

    let ended = daemon.ctl_as(NOBODY, &["end", "--kept", &format!("pid:{}", helper.pid), "--yes"]);

    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(!is_alive(helper) && is_alive(root));
}
