use std::process::Command;
use std::time::Instant;

use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::*;
use crate::api::{
    Cancelled, Grant, Problem, Queue, RefusalReason, Refused, SessionLimits, SubagentAnswer, SubagentEvent, Waiting,
};
use crate::daemon::clients::Clients;
use crate::daemon::control::ControlSocket;
use crate::daemon::door::{Door, Sizes};
use crate::daemon::historian::Origin;
use crate::daemon::metrics::Metrics;
use crate::daemon::request;
use crate::daemon::set_aside::StateNotes;
use crate::host::testing::{Subject, eventually, identity};
use crate::host::this_process;

/// A control socket; what is asked of the engine's owner comes out at the other end, for the test to answer.
struct Fixture {
    dir: tempfile::TempDir,
    inbox: mpsc::Receiver<Request>,
    clients: Clients,
}

/// A client that has asked for a launch.
struct Client(BufReader<UnixStream>);

impl Fixture {
    fn start() -> Self {
        Self::with_queue(10)
    }

    fn with_queue(max_queue: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (asker, inbox) = request::channel();
        let origin = Origin {
            state_dir: dir.path().to_owned(),
            run: "now".to_owned(),
            boot_id: "b".to_owned(),
            notes: StateNotes::default(),
        };
        let socket = ControlSocket::bind(&dir.path().join("control.sock")).unwrap();
        let metrics = Arc::new(Metrics::new().unwrap());
        let door = Door::new(Sizes::house(max_queue, 1 << 20), Sizes::DESK);
        tokio::spawn(async move { socket.serve(door, asker, metrics, Arc::new(origin)).await });
        Self { dir, inbox, clients: Clients::default() }
    }

    async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.dir.path().join("control.sock")).await.unwrap()
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> Client {
        let mut stream = self.connect().await;
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all((head + body).as_bytes()).await.unwrap();
        Client(BufReader::new(stream))
    }

    async fn ask_for(&self, body: &serde_json::Value) -> Client {
        self.send("POST", LAUNCH, &body.to_string()).await
    }

    async fn next(&mut self) -> Request {
        tokio::time::timeout(Duration::from_secs(10), self.inbox.recv()).await.expect("somebody asks").unwrap()
    }

    /// Takes a launch into the queue.
    async fn admit(&mut self) -> Launch {
        match self.next().await {
            Request::Launch(launch, reply) => {
                reply.send(Ok(self.clients.enter(launch.process))).unwrap();
                *launch
            }
            other => panic!("{other:?} is no launch"),
        }
    }

    /// Waits until somebody tells that a client has gone.
    async fn left(&mut self) -> ProcessId {
        match self.next().await {
            Request::Left(process, ticket) => {
                assert!(self.clients.left(process, ticket), "it did wait");
                process
            }
            other => panic!("{other:?} tells of no client that has gone"),
        }
    }

    async fn nobody_asks(&mut self) {
        let asked = tokio::time::timeout(Duration::from_millis(200), self.inbox.recv()).await;
        assert!(asked.is_err(), "{asked:?}");
    }
}

impl Client {
    async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = tokio::time::timeout(Duration::from_secs(10), self.0.read_line(&mut line));
        read.await.expect("a line comes").unwrap();
        line
    }

    /// The status, and where the body begins.
    async fn status(&mut self) -> u16 {
        let status = self.line().await[9..12].parse().unwrap();
        while self.line().await != "\r\n" {}
        status
    }

    /// The next line of a stream that is sent in chunks.
    async fn update(&mut self) -> LaunchUpdate {
        let size = self.line().await;
        let line = self.line().await;
        assert_eq!(usize::from_str_radix(size.trim(), 16).unwrap(), line.len(), "a chunk is a line");
        assert_eq!(self.line().await, "\r\n");
        serde_json::from_str(&line).unwrap()
    }

    /// The rest of a stream, which must be its end.
    async fn end(mut self) {
        let mut rest = String::new();
        tokio::time::timeout(Duration::from_secs(10), self.0.read_to_string(&mut rest)).await.unwrap().unwrap();
        assert_eq!(rest, "0\r\n\r\n");
    }

    async fn body<T: DeserializeOwned>(&mut self) -> (u16, T) {
        let status = self.line().await[9..12].parse().unwrap();
        let mut length = 0;
        loop {
            let line = self.line().await;
            match line.strip_prefix("content-length: ") {
                Some(number) => length = number.trim().parse().unwrap(),
                None if line == "\r\n" => break,
                None => {}
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }
}

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

fn sleeper() -> Subject {
    let subject = Subject::spawn(Command::new("sleep").arg("1000"));
    // Who forked it goes on when the old program's memory is gone, which is before it has its new name.
    let comm = format!("/proc/{}/comm", subject.process.pid);
    eventually("it has its name", || std::fs::read_to_string(&comm).unwrap().trim() == "sleep");
    subject
}

#[tokio::test]
async fn a_launch_waits_line_by_line_and_ends_with_its_grant() {
    let mut fixture = Fixture::start();
    let mut client = fixture.ask_for(&claude()).await;
    let launch = fixture.admit().await;
    let own = this_process().unwrap();
    assert_eq!((launch.process, launch.image.path.as_str()), (own, "/usr/bin/claude"));
    assert_eq!(launch.uid, Uid(rustix::process::geteuid().as_raw()));
    assert_eq!(launch.ppid.0, std::os::unix::process::parent_id());
    assert!(launch.waits && launch.timeout.is_none() && launch.profile.is_none());
    fixture.clients.tell(own, waiting(2));
    assert_eq!(client.status().await, 200);
    assert_eq!(client.update().await, waiting(2));
    fixture.clients.tell(own, waiting(1));
    assert_eq!(client.update().await, waiting(1));
    fixture.clients.leave(own).unwrap().give(granted());
    assert_eq!(client.update().await, granted());
    client.end().await;
    fixture.nobody_asks().await;
}

#[tokio::test]
async fn a_refusal_is_the_only_line_where_nothing_came_before() {
    let mut fixture = Fixture::start();
    let mut client = fixture.ask_for(&claude()).await;
    let launch = fixture.admit().await;
    fixture.clients.leave(launch.process).unwrap().give(refused());
    assert_eq!(client.status().await, 200);
    assert_eq!(client.update().await, refused());
    client.end().await;
}

#[tokio::test]
async fn a_client_that_goes_away_while_it_waits_gives_up_its_place_at_once() {
    let mut fixture = Fixture::start();
    let mut client = fixture.ask_for(&claude()).await;
    let launch = fixture.admit().await;
    assert_eq!(client.status().await, 200);
    // Nothing is under way on the connection when it ends.
    fixture.nobody_asks().await;
    drop(client);
    let began = Instant::now();
    assert_eq!(fixture.left().await, launch.process);
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_client_that_goes_away_before_the_gate_hears_of_it_never_gets_a_place() {
    let mut fixture = Fixture::start();
    let client = fixture.ask_for(&claude()).await;
    let Request::Launch(launch, reply) = fixture.next().await else { panic!("no launch") };
    drop(client);
    tokio::time::timeout(Duration::from_secs(10), async {
        while !reply.is_closed() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("nobody takes the answer any more");
    assert!(reply.send(Ok(fixture.clients.enter(launch.process))).is_err());
    fixture.nobody_asks().await;
}

#[tokio::test]
async fn a_client_that_goes_away_at_the_moment_of_the_answer_gives_up_its_place() {
    let mut fixture = Fixture::start();
    for _ in 0..20 {
        let client = fixture.ask_for(&claude()).await;
        let Request::Launch(launch, reply) = fixture.next().await else { panic!("no launch") };
        drop(client);
        tokio::task::yield_now().await;
        // Either nobody takes the answer, or whoever took it tells that it has gone.
        if reply.send(Ok(fixture.clients.enter(launch.process))).is_ok() {
            assert_eq!(fixture.left().await, launch.process);
        }
    }
    fixture.nobody_asks().await;
}

#[tokio::test]
async fn a_connection_that_ends_after_the_grant_means_nothing() {
    let mut fixture = Fixture::start();
    let mut client = fixture.ask_for(&claude()).await;
    let launch = fixture.admit().await;
    assert_eq!(client.status().await, 200);
    fixture.clients.leave(launch.process).unwrap().give(granted());
    drop(client);
    fixture.nobody_asks().await;
}

#[tokio::test]
async fn a_process_that_is_launched_for_another_and_dies_leaves_the_queue() {
    let mut fixture = Fixture::start();
    let mut subject = sleeper();
    let ProcessId { pid, start_time } = subject.process;
    let mut asked = claude();
    asked["pid"] = pid.0.into();
    asked["start_time"] = start_time.0.into();
    let mut client = fixture.ask_for(&asked).await;
    let launch = fixture.admit().await;
    assert_eq!((launch.process, launch.comm.as_str()), (subject.process, "sleep"));
    assert_eq!(client.status().await, 200);
    fixture.nobody_asks().await;
    subject.child().kill().unwrap();
    assert_eq!(fixture.left().await, subject.process);
    client.end().await;
}

#[tokio::test]
async fn asking_again_takes_over_and_the_end_of_the_first_connection_takes_nothing_away() {
    let mut fixture = Fixture::start();
    let mut first = fixture.ask_for(&claude()).await;
    fixture.admit().await;
    assert_eq!(first.status().await, 200);
    let mut second = fixture.ask_for(&claude()).await;
    let launch = fixture.admit().await;
    assert_eq!(second.status().await, 200);
    first.end().await;
    fixture.nobody_asks().await;
    fixture.clients.leave(launch.process).unwrap().give(granted());
    assert_eq!(second.update().await, granted());
}

#[tokio::test]
async fn nobody_asks_for_a_process_that_is_not_its_own() {
    let mut fixture = Fixture::start();
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
        assert!(problem.error.contains(&format!("pid {pid} is no process of yours")), "{problem:?}");
    }
    fixture.nobody_asks().await;
}

#[test]
fn a_process_of_another_user_is_no_ones_to_launch_but_roots() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let subject = sleeper();
    let caller = Pinned::of(this_process().unwrap()).unwrap().unwrap().identity().unwrap().unwrap();
    let user = |uid| Peer { uid: Uid(uid), pinned: None };
    assert!(descendant(&user(1000), &caller, subject.process).is_err());
    assert!(descendant(&user(0), &caller, subject.process).is_ok());
}

#[test]
fn who_cannot_be_held_or_is_another_user_by_now_is_nobody() {
    let own = Pinned::of(this_process().unwrap()).unwrap();
    let uid = Uid(rustix::process::geteuid().as_raw());
    assert!(Peer { uid, pinned: own.clone() }.process().is_ok());
    assert!(Peer { uid: Uid(uid.0 + 1), pinned: own }.process().is_err());
    assert!(Peer { uid, pinned: None }.process().is_err());
    let mut dead = sleeper();
    let pinned = Pinned::of(dead.process).unwrap();
    dead.child().kill().unwrap();
    dead.child().wait().unwrap();
    assert!(Peer { uid, pinned }.process().is_err());
}

#[tokio::test]
async fn a_launch_that_makes_no_sense_is_refused_with_the_reason() {
    let mut fixture = Fixture::start();
    for (body, reason) in [
        ("", "expected {\"path\""),
        ("{\"path\":\"/x\",\"nonsense\":1}", "nonsense"),
        ("{}", "path is missing"),
        ("{\"path\":\"/x\",\"priority\":101}", "-100 to 100"),
        ("{\"path\":\"/x\",\"timeout_seconds\":0}", "timeout_seconds"),
        ("{\"path\":\"/x\",\"timeout_seconds\":-1}", "timeout_seconds"),
        ("{\"path\":\"/x\",\"memory_bytes\":0}", "memory_bytes"),
        ("{\"path\":\"/x\",\"pid\":1}", "start_time"),
    ] {
        let (status, problem) = fixture.send("POST", LAUNCH, body).await.body::<Problem>().await;
        assert_eq!(status, 400, "{body}");
        assert!(problem.error.contains(reason), "{body}: {}", problem.error);
    }
    fixture.nobody_asks().await;
}

#[tokio::test]
async fn a_profile_that_is_not_there_is_refused_with_those_that_are() {
    let mut fixture = Fixture::start();
    let mut asked = claude();
    asked["profile"] = "cluade".into();
    let mut client = fixture.ask_for(&asked).await;
    let Request::Launch(launch, reply) = fixture.next().await else { panic!("no launch") };
    let known = vec!["claude-code".to_owned(), "codex".to_owned()];
    reply.send(Err(NoProfile { name: launch.profile.unwrap(), known })).unwrap();
    let (status, problem) = client.body::<Problem>().await;
    assert_eq!(status, 404);
    assert_eq!(problem.error, "there is no profile \"cluade\": there are claude-code, codex");
}

#[test]
fn a_long_command_is_cut_where_it_no_longer_says_what_it_is() {
    let argv = (0..100).map(|number| format!("{number}{}", "é".repeat(1_000))).collect();
    let image = image("/".repeat(10_000), argv);
    assert!(image.truncated);
    assert_eq!((image.path.len(), image.argv.len()), (PATH_BYTES, ARGUMENTS));
    assert!(image.argv.iter().all(|argument| argument.len() <= ARGUMENT_BYTES));
    let short = self::image("/usr/bin/claude".to_owned(), vec!["claude".to_owned()]);
    assert!(!short.truncated && short.argv == ["claude"]);
}

#[tokio::test]
async fn a_place_is_cancelled_by_its_owner_and_nobody_else() {
    let mut fixture = Fixture::start();
    for (answer, status) in
        [(Ok(Cancelled { pid: 7 }), 200), (Err(CancelError::NotYours), 403), (Err(CancelError::NobodyWaits(7)), 404)]
    {
        let mut client = fixture.send("POST", "/v1/queue/cancel", "{\"pid\":7}").await;
        let Request::Cancel(_, 7, reply) = fixture.next().await else { panic!("no cancel") };
        let expected = answer.as_ref().map_or_else(ToString::to_string, |cancelled| cancelled.pid.to_string());
        reply.send(answer).unwrap();
        let (got, body) = client.body::<serde_json::Value>().await;
        assert_eq!(got, status);
        let told = body.get("error").or(body.get("pid")).unwrap();
        assert_eq!(told.as_str().map_or_else(|| told.to_string(), str::to_owned), expected);
    }
}

#[tokio::test]
async fn the_queue_is_told() {
    let mut fixture = Fixture::start();
    let mut client = fixture.send("GET", "/v1/queue", "").await;
    let Request::Queue(_, reply) = fixture.next().await else { panic!("no queue") };
    reply.send(Queue::default()).unwrap();
    assert_eq!(client.body::<Queue>().await, (200, Queue::default()));
}

#[tokio::test]
async fn a_hook_is_known_by_its_process() {
    let mut fixture = Fixture::start();
    let mut client = fixture.send("POST", "/v1/subagent", "{\"event\":\"start\",\"call\":\"a\"}").await;
    let Request::Subagent(call, reply) = fixture.next().await else { panic!("no subagent") };
    let caller = this_process().unwrap();
    assert_eq!(call, Subagent { caller, event: SubagentEvent::Start, call: Some("a".to_owned()) });
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
async fn a_crowd_that_waits_for_launches_keeps_nobody_else_from_being_served() {
    let mut fixture = Fixture::with_queue(300);
    // One process can wait only once, so these are many connections of which the last counts.
    let mut crowd = Vec::new();
    for _ in 0..300 {
        crowd.push(fixture.ask_for(&claude()).await);
        fixture.admit().await;
    }
    let mut client = fixture.send("GET", "/v1/queue", "").await;
    let Request::Queue(_, reply) = fixture.next().await else { panic!("no queue") };
    reply.send(Queue::default()).unwrap();
    assert_eq!(client.body::<Queue>().await.0, 200);
}

#[tokio::test]
async fn who_finds_no_room_is_told_in_words_that_a_launch_understands() {
    let mut fixture = Fixture::with_queue(0);
    let mut crowd = Vec::new();
    for _ in 0..64 {
        // Not answered: an idle connection would give way.
        crowd.push((fixture.send("GET", "/v1/queue", "").await, fixture.next().await));
    }
    let mut client = fixture.ask_for(&claude()).await;
    let (status, body) = client.body::<serde_json::Value>().await;
    assert_eq!(status, 503);
    let refused: Refused = serde_json::from_value(body.clone()).unwrap();
    assert_eq!((refused.granted, refused.reason), (false, RefusalReason::QueueFull));
    serde_json::from_value::<Problem>(body).expect("for everybody else it is a problem like any other");
}
