use super::*;
use crate::api::{
    Adopted, Event, Explanation, Findings, Postmortem, Problem, Record, Session, SessionState, Subject, Tree,
};
use crate::daemon::door::Sizes;
use crate::daemon::journal::{Audience, Journal};
use crate::daemon::request::{self, AdoptError};
use crate::daemon::set_aside::StateNotes;
use crate::engine::effect::{Happening, JournalEntry};
use crate::engine::id::BootTime;
use crate::history::{Store, line};
use serde::de::DeserializeOwned;
use std::time::Instant;

const NOBODY: u32 = 65_534;
/// Few enough that a thousand connections are too many.
const MAX_QUEUE: usize = 10;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

/// A control socket with a core behind it that says what a test expects; it also takes events for its journal.
struct Fixture {
    dir: tempfile::TempDir,
    events: mpsc::Sender<u64>,
    asker: Asker,
}

fn session(id: u64) -> Session {
    Session {
        id,
        profile: "p".to_owned(),
        state: SessionState::Running,
        gated: false,
        user: "u".to_owned(),
        uid: 1000,
        started_at: String::new(),
        memory_bytes: 0,
        parent_session: None,
        zombies: 0,
        processes: Vec::new(),
    }
}

impl Fixture {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (asker, mut inbox) = request::channel();
        let (events, mut happened) = mpsc::channel(1);
        let origin = Origin {
            state_dir: dir.path().to_owned(),
            run: "now".to_owned(),
            boot_id: "b".to_owned(),
            notes: StateNotes::default(),
        };
        tokio::spawn(async move {
            let mut journal = Journal::new(100);
            loop {
                tokio::select! {
                    Some(at) = happened.recv() => {
                        let what = Happening::SessionEnded;
                        let entry = JournalEntry { at: BootTime(at), process: None, session: None, what };
                        journal.write(&entry, String::new(), Audience::Everyone);
                    }
                    Some(request) = inbox.recv() => answer(request, &mut journal),
                    else => break,
                }
            }
        });
        let socket = ControlSocket::bind(&dir.path().join("control.sock")).unwrap();
        let front = asker.clone();
        let metrics = Arc::new(Metrics::new().unwrap());
        let door = Door::new(Sizes::house(MAX_QUEUE, 1 << 20), Sizes::DESK);
        tokio::spawn(async move { socket.serve(door, front, metrics, Arc::new(origin)).await });
        Self { dir, events, asker }
    }

    /// One whose history holds something.
    async fn with_history() -> Self {
        let fixture = Self::start().await;
        write_history(fixture.dir.path());
        fixture
    }

    async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.dir.path().join("control.sock")).await.unwrap()
    }

    /// Sends raw bytes, and reads until the daemon closes.
    async fn raw(&self, request: &[u8]) -> String {
        let mut stream = self.connect().await;
        // A daemon that has heard enough may close while we still write.
        let _ = stream.write_all(request).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn ask<T: DeserializeOwned>(&self, method: &str, path: &str, body: &str) -> (u16, T) {
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
        let answer = self.raw((head + body).as_bytes()).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let body = if head.contains("transfer-encoding: chunked") { unchunk(body) } else { body.to_owned() };
        let value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error} in {body}"));
        (head[9..12].parse().unwrap(), value)
    }

    /// What the engine's owner takes to answer, while something goes on outside.
    async fn is_unharmed(&self) {
        let began = Instant::now();
        self.asker.ask(Request::Ready).await.unwrap();
        assert!(began.elapsed() < Duration::from_millis(500), "the engine was kept for {:?}", began.elapsed());
    }
}

fn answer(request: Request, journal: &mut Journal) {
    match request {
        Request::Tree(_, reply) => reply.send(Tree { sessions: vec![session(1), session(2)] }).unwrap(),
        Request::Findings { reply, .. } => reply.send(Findings::default()).unwrap(),
        Request::Explain(_, who, reply) => {
            let known = matches!(who, deaths::Subject::Pid(Pid(1)) | deaths::Subject::Session(SessionId(1)));
            reply.send(known.then(|| Explanation { summary: format!("{who:?}"), ..Explanation::default() })).unwrap();
        }
        Request::Events(viewer, since, reply) => reply.send(journal.read(viewer, since)).unwrap(),
        Request::Follow(viewer, since, reply) => drop(reply.send(journal.follow(viewer, since))),
        Request::Adopt { subject, undo, reply, .. } => reply
            .send(match subject {
                Subject::Pid(1) => Ok(Adopted { pids: if undo { vec![1, 1] } else { vec![1] } }),
                Subject::Pid(2) => Err(AdoptError::NotYours),
                Subject::Pid(pid) => Err(AdoptError::NoProcess(pid)),
                Subject::Session(id) => Err(AdoptError::NoSession(id)),
            })
            .unwrap(),
        Request::Ready(reply) => reply.send(true).unwrap(),
        other => panic!("nobody here answers {other:?}"),
    }
}

/// Many records of a run that has ended, and one of the present run.
fn write_history(state_dir: &Path) {
    let (mut store, _) = Store::open(state_dir).unwrap();
    let record = |run: &str, uid: u32, session: u64, comm: String| -> Vec<u8> {
        let record = serde_json::json!({
            "at": "2026-01-02T00:00:00Z", "run": run, "owner_uid": uid, "type": "oom", "pid": 1, "start_time": 1,
            "session": session, "comm": comm,
        });
        line::encode(&serde_json::from_value(record).unwrap())
    };
    let many = (0..2_000).flat_map(|number| record("before", NOBODY, number % 10, format!("{number:0100}")));
    store.append(&many.collect::<Vec<u8>>()).unwrap();
    store.append(&record("now", rustix::process::geteuid().as_raw(), 77, "mine".to_owned())).unwrap();
}

fn unchunk(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        text.push_str(&rest[..size]);
        body = &rest[size + 2..];
        if size == 0 {
            break;
        }
    }
    text
}

#[tokio::test]
async fn the_tree_can_be_asked_for_whole_or_by_session() {
    let fixture = Fixture::start().await;
    let (status, tree) = fixture.ask::<Tree>("GET", "/v1/tree", "").await;
    assert_eq!((status, tree.sessions.len()), (200, 2));
    let (status, tree) = fixture.ask::<Tree>("GET", "/v1/tree?session=2", "").await;
    assert_eq!((status, tree.sessions[0].id, tree.sessions.len()), (200, 2, 1));
    let (status, problem) = fixture.ask::<Problem>("GET", "/v1/tree?session=3", "").await;
    assert_eq!(status, 404);
    assert!(problem.error.contains('3'));
}

#[tokio::test]
async fn a_request_that_makes_no_sense_is_refused_with_the_reason() {
    let fixture = Fixture::start().await;
    for (method, path, body, status, reason) in [
        ("GET", "/v1/tree?session=x", "", 400, "session"),
        ("GET", "/v1/tree?sesion=1", "", 400, "sesion"),
        ("GET", "/v1/findings?all=maybe", "", 400, "all"),
        ("GET", "/v1/events?since=yesterday", "", 400, "30s"),
        ("GET", "/v1/explain", "", 400, "one process or one session"),
        ("GET", "/v1/explain?pid=1&session=1", "", 400, "one process or one session"),
        ("GET", "/v1/explain?pid=-1", "", 400, "pid"),
        ("GET", "/v1/explain?pid=7", "", 404, "a process 7"),
        ("GET", "/v1/explain?session=7", "", 404, "a session 7"),
        ("POST", "/v1/adopt", "", 400, "pid"),
        ("POST", "/v1/adopt", "{\"pid\":-1}", 400, "pid"),
        ("POST", "/v1/adopt", "{\"pid\":1,\"undoo\":true}", 400, "undoo"),
        ("POST", "/v1/adopt", "{\"pid\":1,\"session\":1}", 400, "one process or one session"),
        ("POST", "/v1/adopt", "{\"undo\":true}", 400, "one process or one session"),
        ("POST", "/v1/adopt", "{\"pid\":2}", 403, "another user"),
        ("POST", "/v1/adopt", "{\"pid\":3}", 404, "pid 3"),
        ("POST", "/v1/adopt", "{\"session\":4}", 404, "session 4"),
        ("GET", "/v1/adopt", "", 405, "POST /v1/adopt"),
        ("GET", "/", "", 404, "/v1/status"),
        ("GET", "/v2/tree", "", 404, "/v1/tree"),
    ] {
        let (got, problem) = fixture.ask::<Problem>(method, path, body).await;
        assert_eq!(got, status, "{method} {path} {body}");
        assert!(problem.error.contains(reason), "{method} {path} {body}: {}", problem.error);
    }
}

#[tokio::test]
async fn adopting_names_the_processes() {
    let fixture = Fixture::start().await;
    let (status, adopted) = fixture.ask::<Adopted>("POST", "/v1/adopt", "{\"pid\":1}").await;
    assert_eq!((status, adopted.pids), (200, vec![1]));
    let (status, adopted) = fixture.ask::<Adopted>("POST", "/v1/adopt", "{\"pid\":1,\"undo\":true}").await;
    assert_eq!((status, adopted.pids), (200, vec![1, 1]), "it is another request");
}

#[tokio::test]
async fn a_process_or_a_session_is_explained() {
    let fixture = Fixture::start().await;
    for (path, who) in [("/v1/explain?pid=1", "Pid(Pid(1))"), ("/v1/explain?session=1", "Session(SessionId(1))")] {
        let (status, explanation) = fixture.ask::<Explanation>("GET", path, "").await;
        assert_eq!((status, explanation.summary.as_str()), (200, who));
    }
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused() {
    let fixture = Fixture::start().await;
    let (status, problem) = fixture.ask::<Problem>("POST", "/v1/adopt", &" ".repeat(BODY + 1)).await;
    assert_eq!(status, 413);
    assert!(problem.error.contains("limit"), "{}", problem.error);
}

#[tokio::test]
async fn following_gives_each_event_as_it_happens() {
    let fixture = Fixture::start().await;
    let mut stream = BufReader::new(fixture.connect().await);
    stream.write_all(b"GET /v1/events?follow=true HTTP/1.0\r\n\r\n").await.unwrap();
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).await.unwrap();
    }
    for number in 1..=3 {
        fixture.events.send(number).await.unwrap();
        line.clear();
        stream.read_line(&mut line).await.unwrap();
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap().seq, number);
    }
}

#[tokio::test]
async fn past_events_come_as_one_document() {
    let fixture = Fixture::start().await;
    for number in 1..=3 {
        fixture.events.send(number).await.unwrap();
    }
    let (status, events) = fixture.ask::<crate::api::Events>("GET", "/v1/events", "").await;
    assert_eq!((status, events.events.len()), (200, 3));
}

#[tokio::test]
async fn garbage_costs_one_refused_connection() {
    let fixture = Fixture::start().await;
    let answer = fixture.raw(&[0xff; 4096]).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    fixture.is_unharmed().await;
}

#[tokio::test]
async fn a_head_of_a_hundred_megabytes_is_cut_off_early() {
    let fixture = Fixture::start().await;
    let mut stream = fixture.connect().await;
    stream.write_all(b"GET /v1/tree HTTP/1.1\r\nx: ").await.unwrap();
    let block = vec![b'a'; 1 << 20];
    let mut sent = 0;
    while sent < 100 && stream.write_all(&block).await.is_ok() {
        sent += 1;
    }
    assert!(sent < 2, "the daemon took {sent} MiB of a head");
    fixture.is_unharmed().await;
}

#[tokio::test]
async fn half_a_request_holds_one_place_and_nothing_else() {
    let fixture = Fixture::start().await;
    let mut stream = fixture.connect().await;
    stream.write_all(b"POST /v1/adopt HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{\"p").await.unwrap();
    fixture.is_unharmed().await;
    let (status, _) = fixture.ask::<Tree>("GET", "/v1/tree", "").await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn thousand_idle_connections_delay_no_request() {
    let fixture = Fixture::start().await;
    let mut crowd = Vec::new();
    for _ in 0..1_000 {
        crowd.push(fixture.connect().await);
    }
    fixture.is_unharmed().await;
    let (status, _) = fixture.ask::<Tree>("GET", "/v1/tree", "").await;
    assert_eq!(status, 200);
    let mut rest = String::new();
    crowd[0].read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "", "the longest idle was closed");
}

#[tokio::test]
async fn streams_beyond_the_limit_are_refused() {
    let fixture = Fixture::start().await;
    let mut streams = Vec::new();
    let mut refused = None;
    while refused.is_none() {
        let mut stream = BufReader::new(fixture.connect().await);
        stream.write_all(b"GET /v1/events?follow=true HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut head = String::new();
        stream.read_line(&mut head).await.unwrap();
        if head.contains(" 200 ") {
            streams.push(stream);
            assert!(streams.len() < 200, "no stream is refused");
        } else {
            let mut rest = vec![0; 400];
            let read = stream.read(&mut rest).await.unwrap();
            refused = Some(head + &String::from_utf8_lossy(&rest[..read]));
        }
    }
    let refused = refused.unwrap();
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("retry-after: 1"), "{refused}");
    assert!(refused.contains("too many requests"), "{refused}");
    drop(streams);
    let served = async {
        while !fixture.raw(b"GET /v1/tree HTTP/1.0\r\n\r\n").await.contains(" 200 ") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), served).await.expect("places are free again");
}

#[tokio::test]
async fn a_socket_left_by_a_dead_daemon_is_replaced_and_ours_is_removed_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let socket = ControlSocket::bind(&path).unwrap();
    UnixStream::connect(&path).await.expect("the new socket listens");
    drop(socket);
    assert!(!path.exists());
}

impl Fixture {
    /// The history as this process's user may see it.
    async fn history(&self, query: &str) -> Vec<Record> {
        let request = format!("GET /v1/history{query} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let answer = self.raw(request.as_bytes()).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("application/x-ndjson"), "{head}");
        unchunk(body).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[tokio::test]
async fn the_history_comes_line_by_line_and_as_it_was_asked_for() {
    let fixture = Fixture::with_history().await;
    let all = fixture.history("").await;
    // Another user than root has one record of its own.
    assert_eq!(all.len(), if rustix::process::geteuid().is_root() { 2_001 } else { 1 });
    assert_eq!(fixture.history("?session=77").await.len(), 1);
    assert_eq!(fixture.history("?since=2026-01-02T00:00:01Z").await, []);
    for bad in ["?since=yesterday", "?session=x", "?nonsense=1"] {
        let (status, problem) = fixture.ask::<Problem>("GET", &format!("/v1/history{bad}"), "").await;
        assert_eq!(status, 400, "{problem:?}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_the_history_harms_nobody() {
    let fixture = Fixture::with_history().await;
    for _ in 0..20 {
        let mut stream = fixture.connect().await;
        stream.write_all(b"GET /v1/history HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        stream.read_exact(&mut [0; 100]).await.unwrap();
    }
    fixture.is_unharmed().await;
}

#[tokio::test]
async fn a_postmortem_is_of_a_run_that_has_ended() {
    let fixture = Fixture::with_history().await;
    let (status, told) = fixture.ask::<Postmortem>("GET", "/v1/postmortem", "").await;
    assert_eq!((status, told.run.as_str()), (200, "before"));
    let (status, problem) = fixture.ask::<Problem>("GET", "/v1/postmortem?boot=-3", "").await;
    assert_eq!((status, problem.error.contains("no run")), (404, true), "{problem:?}");
}
