use super::*;
use crate::config_state::LoadedText;
use crate::connection_limit::ConnectionLimits;
use crate::journal::{Audience, Journal};
use crate::query_api;
use crate::request::EngineRequest;
use crate::request::{self, AdoptError};
use crate::routes::BODY;
use crate::set_aside::StateNotes;
use axum::extract::Extension;
use serde::de::DeserializeOwned;
use watchdog_api::{
    Adopted, Event, Explanation, Findings, Postmortem, Problem, Record, Session, SessionState, Subject, Tree,
};
use watchdog_engine::effect::{JournalEntry, JournalEvent};
use watchdog_engine::exits;
use watchdog_history::{Store, codec};
use watchdog_types::BootTime;
use watchdog_types::SessionId;

const NOBODY: u32 = 65_534;
/// Small, so that a thousand connections exceed it.
const MAX_QUEUE: usize = 10;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

/// A control socket with a state that answers as a test expects; it also takes events for its journal.
struct ControlFixture {
    dir: tempfile::TempDir,
    events: mpsc::Sender<u64>,
    engine: EngineClient,
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
        peak_memory_bytes: 0,
        resident_bytes: 0,
        swap_bytes: 0,
        idle_since: None,
        process_count: 0,
        oom_score_adj: None,
        parent_session: None,
        zombies: 0,
        processes: Vec::new(),
    }
}

impl ControlFixture {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (engine, mut inbox) = request::channel();
        let (events, mut happened) = mpsc::channel(1);
        let state_dir = dir.path();
        let run = RunContext {
            run: "now".to_owned(),
            boot_id: "b".to_owned(),
            ..RunContext::now(state_dir, StateNotes::default())
        };
        tokio::spawn(async move {
            let mut journal = Journal::new(100);
            loop {
                tokio::select! {
                    Some(at) = happened.recv() => {
                        let what = JournalEvent::SessionEnded;
                        let entry = JournalEntry { at: BootTime(at), process: None, session: None, what };
                        journal.write(entry, String::new(), Audience::Everyone);
                    }
                    Some(request) = inbox.recv() => answer(request, &mut journal),
                    else => break,
                }
            }
        });
        let socket = ControlSocket::bind(&dir.path().join("control.sock")).unwrap();
        let front = engine.clone();
        let metrics = Arc::new(Metrics::new().unwrap());
        let limiter =
            ConnectionLimiter::new(ConnectionLimits::for_queue(MAX_QUEUE, 1 << 20), ConnectionLimits::CONTROL);
        tokio::spawn(async move { socket.serve(limiter, front, metrics, Arc::new(run)).await });
        Self { dir, events, engine }
    }

    /// With records in its history.
    async fn with_history() -> Self {
        let fixture = Self::start().await;
        write_history(fixture.dir.path());
        fixture
    }

    async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.dir.path().join("control.sock")).await.unwrap()
    }

    /// Sends raw bytes, and reads until the daemon closes the connection.
    async fn raw(&self, request: &[u8]) -> String {
        let mut stream = self.connect().await;
        // The daemon may close the connection during the write.
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

    /// The engine answers within the time limit of requests.
    async fn is_unharmed(&self) {
        self.engine.ask(EngineRequest::Ready).await.unwrap();
    }
}

fn answer(request: EngineRequest, journal: &mut Journal) {
    match request {
        EngineRequest::Tree { reply, .. } => reply.send(Tree { sessions: vec![session(1), session(2)] }).unwrap(),
        EngineRequest::Findings { reply, .. } => reply.send(Findings::default()).unwrap(),
        EngineRequest::Explain(_, target, reply) => {
            let known =
                matches!(target, exits::ExplainTarget::Pid(Pid(1)) | exits::ExplainTarget::Session(SessionId(1)));
            reply
                .send(known.then(|| Explanation { summary: format!("{target:?}"), ..Explanation::default() }))
                .unwrap();
        }
        EngineRequest::Events(viewer, period, reply) => reply.send(journal.read(viewer, period)).unwrap(),
        EngineRequest::Follow(viewer, period, reply) => drop(reply.send(journal.follow(viewer, period))),
        EngineRequest::Adopt { subject, undo, reply, .. } => reply
            .send(match subject {
                Subject::Pid(1) => Ok(Adopted { pids: if undo { vec![1, 1] } else { vec![1] } }),
                Subject::Pid(2) => Err(AdoptError::OtherUser),
                Subject::Pid(pid) => Err(AdoptError::NoProcess(pid)),
                Subject::Session(id) => Err(AdoptError::NoSession(id)),
            })
            .unwrap(),
        EngineRequest::Ready(reply) => reply.send(true).unwrap(),
        other => panic!("unexpected {other:?}"),
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
        codec::encode(&serde_json::from_value(record).unwrap())
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
async fn tree_is_whole_or_one_session() {
    let fixture = ControlFixture::start().await;
    let (status, tree) = fixture.ask::<Tree>("GET", "/v1/tree", "").await;
    assert_eq!((status, tree.sessions.len()), (200, 2));
    let (status, tree) = fixture.ask::<Tree>("GET", "/v1/tree?session=2", "").await;
    assert_eq!((status, tree.sessions[0].id, tree.sessions.len()), (200, 2, 1));
    let (status, problem) = fixture.ask::<Problem>("GET", "/v1/tree?session=3", "").await;
    assert_eq!(status, 404);
    assert!(problem.error.contains('3'));
}

#[tokio::test]
async fn invalid_request_names_its_error() {
    let fixture = ControlFixture::start().await;
    for (method, path, body, status, reason) in [
        ("GET", "/v1/tree?session=x", "", 400, "session"),
        ("GET", "/v1/tree?sesion=1", "", 400, "sesion"),
        ("GET", "/v1/findings?all=maybe", "", 400, "all"),
        ("GET", "/v1/events?since=yesterday", "", 400, "30s"),
        ("GET", "/v1/explain", "", 400, "one process or one session"),
        ("GET", "/v1/explain?pid=1&session=1", "", 400, "one process or one session"),
        ("GET", "/v1/explain?pid=-1", "", 400, "pid"),
        ("GET", "/v1/explain?pid=7", "", 404, "process 7"),
        ("GET", "/v1/explain?session=7", "", 404, "session 7"),
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
async fn adopt_returns_the_pids() {
    let fixture = ControlFixture::start().await;
    let (status, adopted) = fixture.ask::<Adopted>("POST", "/v1/adopt", "{\"pid\":1}").await;
    assert_eq!((status, adopted.pids), (200, vec![1]));
    let (status, adopted) = fixture.ask::<Adopted>("POST", "/v1/adopt", "{\"pid\":1,\"undo\":true}").await;
    assert_eq!((status, adopted.pids), (200, vec![1, 1]), "it is another request");
}

#[tokio::test]
async fn explain_takes_process_or_session() {
    let fixture = ControlFixture::start().await;
    for (path, target) in [("/v1/explain?pid=1", "Pid(Pid(1))"), ("/v1/explain?session=1", "Session(SessionId(1))")] {
        let (status, explanation) = fixture.ask::<Explanation>("GET", path, "").await;
        assert_eq!((status, explanation.summary.as_str()), (200, target));
    }
}

#[tokio::test]
async fn too_long_body_is_refused() {
    let fixture = ControlFixture::start().await;
    let (status, problem) = fixture.ask::<Problem>("POST", "/v1/adopt", &" ".repeat(BODY + 1)).await;
    assert_eq!(status, 413);
    assert!(problem.error.contains("limit"), "{}", problem.error);
}

#[tokio::test]
async fn follow_sends_events_at_once() {
    let fixture = ControlFixture::start().await;
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
async fn after_selects_later_events() {
    let fixture = ControlFixture::start().await;
    for number in 1..=3 {
        fixture.events.send(number).await.unwrap();
    }
    let (status, events) = fixture.ask::<watchdog_api::Events>("GET", "/v1/events?after=2", "").await;
    assert_eq!((status, events.events.iter().map(|event| event.seq).collect()), (200, vec![3]));
}

#[tokio::test]
async fn private_configuration_is_for_root() {
    let run = Arc::new(RunContext::now(Path::new("/x"), StateNotes::default()));
    let read = async |viewer| query_api::config(Extension(Arc::clone(&run)), Extension(viewer)).await.is_ok();
    let other = Viewer::User(Uid(1000));
    for (for_everyone, expected) in [(false, [true, false]), (true, [true, true])] {
        run.config.reloaded(Ok((
            &watchdog_config::Config::default(),
            LoadedText::read_now(None, String::new(), for_everyone),
        )));
        assert_eq!([read(Viewer::Root).await, read(other).await], expected);
    }
}

#[tokio::test]
async fn past_events_are_one_document() {
    let fixture = ControlFixture::start().await;
    for number in 1..=3 {
        fixture.events.send(number).await.unwrap();
    }
    let (status, events) = fixture.ask::<watchdog_api::Events>("GET", "/v1/events", "").await;
    assert_eq!((status, events.events.len()), (200, 3));
}

#[tokio::test]
async fn garbage_costs_one_refused_connection() {
    let fixture = ControlFixture::start().await;
    let answer = fixture.raw(&[0xff; 4096]).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    fixture.is_unharmed().await;
}

#[tokio::test]
async fn huge_head_is_cut_early() {
    let fixture = ControlFixture::start().await;
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
async fn half_request_holds_one_permit() {
    let fixture = ControlFixture::start().await;
    let mut stream = fixture.connect().await;
    stream.write_all(b"POST /v1/adopt HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{\"p").await.unwrap();
    fixture.is_unharmed().await;
    let (status, _) = fixture.ask::<Tree>("GET", "/v1/tree", "").await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn thousand_idle_connections_delay_no_request() {
    let fixture = ControlFixture::start().await;
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
    let fixture = ControlFixture::start().await;
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
    tokio::time::timeout(Duration::from_secs(30), served).await.expect("permits are free again");
}

#[tokio::test]
async fn stale_socket_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let socket = ControlSocket::bind(&path).unwrap();
    UnixStream::connect(&path).await.expect("the new socket listens");
    drop(socket);
    assert!(!path.exists());
}

impl ControlFixture {
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
async fn history_is_filtered_line_by_line() {
    let fixture = ControlFixture::with_history().await;
    let all = fixture.history("").await;
    // A user other than root has one record.
    assert_eq!(all.len(), if rustix::process::geteuid().is_root() { 2_001 } else { 1 });
    assert_eq!(fixture.history("?session=77").await.len(), 1);
    assert_eq!(fixture.history("?since=2026-01-02T00:00:01Z").await, []);
    for bad in ["?since=yesterday", "?session=x", "?nonsense=1"] {
        let (status, problem) = fixture.ask::<Problem>("GET", &format!("/v1/history{bad}"), "").await;
        assert_eq!(status, 400, "{problem:?}");
    }
}

#[tokio::test]
async fn history_client_may_disconnect() {
    let fixture = ControlFixture::with_history().await;
    for _ in 0..20 {
        let mut stream = fixture.connect().await;
        stream.write_all(b"GET /v1/history HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        stream.read_exact(&mut [0; 100]).await.unwrap();
    }
    fixture.is_unharmed().await;
}

#[tokio::test]
async fn postmortem_covers_an_ended_run() {
    let fixture = ControlFixture::with_history().await;
    let (status, received) = fixture.ask::<Postmortem>("GET", "/v1/postmortem", "").await;
    assert_eq!((status, received.run.as_str()), (200, "before"));
    let (status, problem) = fixture.ask::<Problem>("GET", "/v1/postmortem?boot=-3", "").await;
    assert_eq!((status, problem.error.contains("no ended daemon run")), (404, true), "{problem:?}");
}
