use std::process::Command;

use super::fixture::GateFixture;
use super::*;
use watchdog_api::{
    Cancelled, Grant, Problem, Queue, RefusalReason, Refused, SessionLimits, SubagentAnswer, SubagentEvent, Waiting,
};
use watchdog_host::testing::{TestProcess, eventually, identity};
use watchdog_host::this_process;

fn claude() -> serde_json::Value {
    serde_json::json!({"path": "/usr/bin/claude", "argv": ["claude", "--resume"]})
}

fn waiting(position: u64) -> LaunchUpdate {
    let detail = "1 of 1 sessions run".to_owned();
    LaunchUpdate::Waiting(Waiting { position, reason: RefusalReason::Quota, detail, estimate_seconds: None })
}

fn granted() -> LaunchUpdate {
    LaunchUpdate::Granted(Grant {
        granted: true,
        session: 7,
        profile: "claude-code".to_owned(),
        memory_bytes: 1,
        waited_seconds: 0.5,
        environment: [("NODE_OPTIONS".to_owned(), "--max-old-space-size=512".to_owned())].into(),
        oom_score_adj: 300,
        limits: SessionLimits::default(),
    })
}

fn refused() -> LaunchUpdate {
    LaunchUpdate::Refused(Refused {
        granted: false,
        reason: RefusalReason::QueueFull,
        detail: "1000 of 1000 wait".to_owned(),
        retry_after_seconds: Some(10.0),
        bound: "[gate] max_queue".to_owned(),
        holders: Vec::new(),
    })
}

fn sleeper() -> TestProcess {
    let subject = TestProcess::spawn(Command::new("sleep").arg("1000"));
    // The parent continues when the old memory is released, which is before the process has its new name.
    let comm = format!("/proc/{}/comm", subject.process.pid);
    eventually("it has its name", || std::fs::read_to_string(&comm).unwrap().trim() == "sleep");
    subject
}

#[tokio::test]
async fn launch_streams_until_its_grant() {
    let mut fixture = GateFixture::start();
    let mut client = fixture.ask_for(&claude()).await;
    let launch = fixture.admit().await;
    let own = this_process().unwrap();
    assert_eq!((launch.process, launch.image.path.as_str()), (own, "/usr/bin/claude"));
    assert_eq!(launch.uid, Uid(rustix::process::geteuid().as_raw()));
    assert_eq!(launch.ppid.0, std::os::unix::process::parent_id());
    assert!(launch.waits && launch.timeout.is_none() && launch.profile.is_none());
    fixture.waiters.update(own, waiting(2));
    assert_eq!(client.status().await, 200);
    assert_eq!(client.update().await, waiting(2));
    fixture.waiters.update(own, waiting(1));
    assert_eq!(client.update().await, waiting(1));
    fixture.waiters.take_sender(own).unwrap().send(granted());
    assert_eq!(client.update().await, granted());
    client.end().await;
    fixture.no_more_requests().await;
}

#[tokio::test]
async fn immediate_refusal_is_one_line() {
    let mut fixture = GateFixture::start();
    let mut client = fixture.ask_for(&claude()).await;
    let launch = fixture.admit().await;
    fixture.waiters.take_sender(launch.process).unwrap().send(refused());
    assert_eq!(client.status().await, 200);
    assert_eq!(client.update().await, refused());
    client.end().await;
}

#[tokio::test]
async fn disconnect_cancels_waiting_launch() {
    let mut fixture = GateFixture::start();
    let mut client = fixture.ask_for(&claude()).await;
    let launch = fixture.admit().await;
    assert_eq!(client.status().await, 200);
    // Nothing is in transit on the connection when it ends.
    fixture.no_more_requests().await;
    drop(client);
    assert_eq!(fixture.next_departure().await, launch.process);
}

#[tokio::test]
async fn early_disconnect_requests_nothing() {
    let mut fixture = GateFixture::start();
    let client = fixture.ask_for(&claude()).await;
    let EngineRequest::Launch(launch, reply) = fixture.next().await else { panic!("no launch") };
    drop(client);
    tokio::time::timeout(Duration::from_secs(10), async {
        while !reply.is_closed() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("the answer has no receiver");
    assert!(reply.send(Ok(fixture.waiters.join(launch.process))).is_err());
    fixture.no_more_requests().await;
}

#[tokio::test]
async fn disconnect_during_answer_cancels_launch() {
    let mut fixture = GateFixture::start();
    for _ in 0..20 {
        let client = fixture.ask_for(&claude()).await;
        let EngineRequest::Launch(launch, reply) = fixture.next().await else { panic!("no launch") };
        drop(client);
        tokio::task::yield_now().await;
        // Either the answer has no receiver, or its receiver reports the disconnect.
        if reply.send(Ok(fixture.waiters.join(launch.process))).is_ok() {
            assert_eq!(fixture.next_departure().await, launch.process);
        }
    }
    fixture.no_more_requests().await;
}

#[tokio::test]
async fn disconnect_after_grant_is_ignored() {
    let mut fixture = GateFixture::start();
    let mut client = fixture.ask_for(&claude()).await;
    let launch = fixture.admit().await;
    assert_eq!(client.status().await, 200);
    fixture.waiters.take_sender(launch.process).unwrap().send(granted());
    drop(client);
    fixture.no_more_requests().await;
}

#[tokio::test]
async fn exit_of_named_process_cancels() {
    let mut fixture = GateFixture::start();
    let mut subject = sleeper();
    let ProcessId { pid, start_time } = subject.process;
    let mut asked = claude();
    asked["pid"] = pid.0.into();
    asked["start_time"] = start_time.0.into();
    let mut client = fixture.ask_for(&asked).await;
    let launch = fixture.admit().await;
    assert_eq!((launch.process, launch.comm.as_str()), (subject.process, "sleep"));
    assert_eq!(client.status().await, 200);
    fixture.no_more_requests().await;
    subject.child().kill().unwrap();
    assert_eq!(fixture.next_departure().await, subject.process);
    client.end().await;
}

#[tokio::test]
async fn second_request_takes_over() {
    let mut fixture = GateFixture::start();
    let mut first = fixture.ask_for(&claude()).await;
    fixture.admit().await;
    assert_eq!(first.status().await, 200);
    let mut second = fixture.ask_for(&claude()).await;
    let launch = fixture.admit().await;
    assert_eq!(second.status().await, 200);
    first.end().await;
    fixture.no_more_requests().await;
    fixture.waiters.take_sender(launch.process).unwrap().send(granted());
    assert_eq!(second.update().await, granted());
}

#[tokio::test]
async fn only_descendants_can_be_named() {
    let mut fixture = GateFixture::start();
    let own = this_process().unwrap();
    let parent = identity(Pid(std::os::unix::process::parent_id()));
    let subject = sleeper();
    for (pid, start_time) in [
        (parent.pid, parent.start_time),
        (subject.process.pid, Ticks(subject.process.start_time.0 + 1)),
        (own.pid, Ticks(own.start_time.0 + 1)),
        (Pid(0), Ticks(0)),
        (Pid(u32::MAX), Ticks(0)),
    ] {
        let mut asked = claude();
        asked["pid"] = pid.0.into();
        asked["start_time"] = start_time.0.into();
        let (status, problem) = fixture.ask_for(&asked).await.body::<Problem>().await;
        assert_eq!(status, 403, "{pid}: {problem:?}");
        assert!(problem.error.contains(&format!("pid {pid} is not a child of the calling process")), "{problem:?}");
    }
    fixture.no_more_requests().await;
}

#[test]
fn only_root_launches_for_others() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let subject = sleeper();
    let caller = PidFd::of(this_process().unwrap()).unwrap().unwrap().identity().unwrap().unwrap();
    let user = |uid| ClientProcess { uid: Uid(uid), pinned: None };
    assert!(descendant(&user(1000), &caller, subject.process).is_err());
    assert!(descendant(&user(0), &caller, subject.process).is_ok());
}

#[test]
fn unidentified_client_is_refused() {
    let own = PidFd::of(this_process().unwrap()).unwrap();
    let uid = Uid(rustix::process::geteuid().as_raw());
    assert!(ClientProcess { uid, pinned: own.clone() }.process().is_ok());
    assert!(ClientProcess { uid: Uid(uid.0 + 1), pinned: own }.process().is_err());
    assert!(ClientProcess { uid, pinned: None }.process().is_err());
    let mut dead = sleeper();
    let pinned = PidFd::of(dead.process).unwrap();
    dead.child().kill().unwrap();
    dead.child().wait().unwrap();
    assert!(ClientProcess { uid, pinned }.process().is_err());
}

#[tokio::test]
async fn invalid_launch_names_its_error() {
    let mut fixture = GateFixture::start();
    for (body, reason) in [
        ("", "expected {\"path\""),
        ("{\"path\":\"/x\",\"nonsense\":1}", "nonsense"),
        ("{}", "path: missing"),
        ("{\"path\":\"/x\",\"priority\":101}", "-100 and 100"),
        ("{\"path\":\"/x\",\"timeout_seconds\":0}", "timeout_seconds"),
        ("{\"path\":\"/x\",\"timeout_seconds\":-1}", "timeout_seconds"),
        ("{\"path\":\"/x\",\"memory_bytes\":0}", "memory_bytes"),
        ("{\"path\":\"/x\",\"pid\":1}", "start_time"),
    ] {
        let (status, problem) = fixture.send("POST", LAUNCH, body).await.body::<Problem>().await;
        assert_eq!(status, 400, "{body}");
        assert!(problem.error.contains(reason), "{body}: {}", problem.error);
    }
    fixture.no_more_requests().await;
}

#[tokio::test]
async fn unknown_profile_lists_known_ones() {
    let mut fixture = GateFixture::start();
    let mut asked = claude();
    asked["profile"] = "cluade".into();
    let mut client = fixture.ask_for(&asked).await;
    let EngineRequest::Launch(launch, reply) = fixture.next().await else { panic!("no launch") };
    let known = vec!["claude-code".to_owned(), "codex".to_owned()];
    reply.send(Err(UnknownProfile { name: launch.profile.unwrap(), known })).unwrap();
    let (status, problem) = client.body::<Problem>().await;
    assert_eq!(status, 404);
    assert_eq!(problem.error, "there is no profile \"cluade\"; available: claude-code, codex");
}

#[test]
fn long_command_is_cut() {
    let argv = (0..100).map(|number| format!("{number}{}", "é".repeat(1_000))).collect();
    let image = image("/".repeat(10_000), argv);
    assert!(image.truncated);
    assert_eq!((image.path.len(), image.argv.len()), (PATH_BYTES, ARGUMENTS));
    assert!(image.argv.iter().all(|argument| argument.len() <= ARGUMENT_BYTES));
    let short = self::image("/usr/bin/claude".to_owned(), vec!["claude".to_owned()]);
    assert!(!short.truncated && short.argv == ["claude"]);
}

#[tokio::test]
async fn only_owner_cancels_launch() {
    let mut fixture = GateFixture::start();
    for (answer, status) in
        [(Ok(Cancelled { pid: 7 }), 200), (Err(CancelError::OtherUser), 403), (Err(CancelError::NotQueued(7)), 404)]
    {
        let mut client = fixture.send("POST", "/v1/queue/cancel", "{\"pid\":7}").await;
        let EngineRequest::Cancel(_, 7, reply) = fixture.next().await else { panic!("no cancel") };
        let expected = answer.as_ref().map_or_else(ToString::to_string, |cancelled| cancelled.pid.to_string());
        reply.send(answer).unwrap();
        let (got, body) = client.body::<serde_json::Value>().await;
        assert_eq!(got, status);
        let answer_text = body.get("error").or(body.get("pid")).unwrap();
        assert_eq!(answer_text.as_str().map_or_else(|| answer_text.to_string(), str::to_owned), expected);
    }
}

#[tokio::test]
async fn queue_is_reported() {
    let mut fixture = GateFixture::start();
    let mut client = fixture.send("GET", "/v1/queue", "").await;
    let EngineRequest::Queue(_, reply) = fixture.next().await else { panic!("no queue") };
    reply.send(Queue::default()).unwrap();
    assert_eq!(client.body::<Queue>().await, (200, Queue::default()));
}

#[tokio::test]
async fn hook_is_identified_by_process() {
    let mut fixture = GateFixture::start();
    let mut client = fixture.send("POST", "/v1/subagent", "{\"event\":\"start\",\"call\":\"a\"}").await;
    let EngineRequest::Subagent(call, reply) = fixture.next().await else { panic!("no subagent") };
    let caller = this_process().unwrap();
    assert_eq!(call, SubagentHook { caller, event: SubagentEvent::Start, call: Some("a".to_owned()) });
    let answer = SubagentAnswer {
        allowed: false,
        reason: Some(RefusalReason::Quota),
        detail: "3 of 3 subagents run".to_owned(),
        running: 3,
        max_subagents: Some(3),
        retry_after_seconds: Some(40.0),
        session: Some(1),
    };
    reply.send(answer.clone()).unwrap();
    assert_eq!(client.body::<SubagentAnswer>().await, (200, answer));
}

#[tokio::test]
async fn waiting_launches_block_no_requests() {
    let mut fixture = GateFixture::with_queue(300);
    // A process waits only once, so of these many connections the last counts.
    let mut crowd = Vec::new();
    for _ in 0..300 {
        crowd.push(fixture.ask_for(&claude()).await);
        fixture.admit().await;
    }
    let mut client = fixture.send("GET", "/v1/queue", "").await;
    let EngineRequest::Queue(_, reply) = fixture.next().await else { panic!("no queue") };
    reply.send(Queue::default()).unwrap();
    assert_eq!(client.body::<Queue>().await.0, 200);
}

#[tokio::test]
async fn rejected_connection_refuses_a_launch() {
    let mut fixture = GateFixture::with_queue(0);
    let mut crowd = Vec::new();
    for _ in 0..64 {
        // Unanswered: an idle connection would be closed.
        crowd.push((fixture.send("GET", "/v1/queue", "").await, fixture.next().await));
    }
    let mut client = fixture.ask_for(&claude()).await;
    let (status, body) = client.body::<serde_json::Value>().await;
    assert_eq!(status, 503);
    let refused: Refused = serde_json::from_value(body.clone()).unwrap();
    assert_eq!((refused.granted, refused.reason), (false, RefusalReason::QueueFull));
    serde_json::from_value::<Problem>(body).expect("for other requests it is a problem");
}
