//! The OpenAPI document against the routes and types, and against the answers of a server with a real engine.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::schema_check::SchemaCheck;
use super::{openapi_document, routes};
use crate::config_state::{ConfigState, LoadedText};
use crate::connection_limit::ConnectionLimiter;
use crate::connection_limit::ConnectionLimits;
use crate::control::{ControlSocket, rejection};
use crate::metrics::Metrics;
use crate::openapi::DOCUMENT;
use crate::request::EngineRequest;
use crate::set_aside::StateNotes;
use crate::state::{DaemonFacts, DaemonState};
use crate::workers::fleet::FleetClient;
use crate::{history_filter, history_writer, request, workers};
use watchdog_api::{LaunchUpdate, Overview};
use watchdog_config::Config;
use watchdog_engine::effect::{ClientReply, Effect};
use watchdog_engine::input::Input;
use watchdog_history::{Store, codec};
use watchdog_host::{capability, clock, this_process};
use watchdog_types::{
    BootTime, Bytes, Confinement, Exec, Exit, ExitStatus, Fork, HostMemory, Image, KernelEvent, Lineage, Pid,
    ProcessId, Ticks, Uid,
};

/// An ungated agent, and a child of it.
const AGENT: ProcessId = ProcessId { pid: Pid(4_000_001), start_time: Ticks(5) };
const CHILD: ProcessId = ProcessId { pid: Pid(4_000_002), start_time: Ticks(6) };

fn document() -> Value {
    serde_json::from_str(DOCUMENT).unwrap()
}

fn operations(document: &Value) -> BTreeSet<(String, String)> {
    let paths = document["paths"].as_object().unwrap();
    let of = |(path, item): (&String, &Value)| {
        let methods = item.as_object().unwrap().keys();
        methods.map(|method| (method.clone(), path.clone())).collect::<Vec<_>>()
    };
    paths.iter().flat_map(of).collect()
}

#[test]
fn document_matches_routes_and_types() {
    let generated = openapi_document::document(&routes());
    let text = |document: &Value| serde_json::to_string_pretty(document).unwrap() + "\n";
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        return std::fs::write(file, text(&generated)).unwrap();
    }
    let (have, want) = (text(&document()), text(&generated));
    if let Some((line, (have, want))) = have.lines().zip(want.lines()).enumerate().find(|(_, (a, b))| a != b) {
        panic!(
            "docs/openapi.json differs near line {}: {have} must be {want}. Run \
             `UPDATE_OPENAPI=1 cargo test -p watchdogd document_matches`, and commit the file",
            line + 1
        );
    }
}

/// The document, and the operations that were checked against it.
struct DocumentedApi {
    document: Value,
    kept: RefCell<BTreeSet<(String, String, u16)>>,
}

impl DocumentedApi {
    fn read() -> Self {
        Self { document: document(), kept: RefCell::default() }
    }

    /// Checks an answer, line by line where it consists of lines.
    fn check(&self, method: &str, target: &str, answer: &HttpAnswer) {
        let path = target.split('?').next().unwrap();
        let HttpAnswer { status, kind, body } = answer;
        let response = &self.document["paths"][path][method]["responses"][status.to_string()];
        let schema = &response["content"][kind]["schema"];
        assert!(schema.is_object(), "{method} {target}: {status} with {kind} is not in the document: {body}");
        let schemas = SchemaCheck { document: &self.document };
        let parts: Vec<&str> = if kind == "application/x-ndjson" { body.lines().collect() } else { vec![body] };
        assert!(!parts.is_empty(), "{method} {target}: nothing to check");
        for part in parts {
            let value: Value = serde_json::from_str(part).unwrap();
            let errors = schemas.errors(schema, &value);
            assert!(errors.is_empty(), "{method} {target}: {errors:#?} in {value:#}");
        }
        self.kept.borrow_mut().insert((method.to_owned(), path.to_owned(), *status));
    }
}

#[derive(Debug)]
struct HttpAnswer {
    status: u16,
    kind: String,
    body: String,
}

/// A server with a real engine, whose effects are executed as far as clients are concerned.
struct LiveServer {
    dir: tempfile::TempDir,
    /// Inputs of the engine, and their time.
    happens: mpsc::Sender<(BootTime, Input)>,
    config: ConfigState,
}

impl LiveServer {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config: Config = watchdog_config::parse(
            Path::new("test.toml"),
            "[gate]\nmax_sessions = 2\n[[profile]]\nname = \"other-agent\"\nexe = [\"*/other-agent\"]\n\
             max_memory = \"1GiB\"\nmax_helpers = 4\nmax_subagents = 3\nenv = { UV_THREADPOOL_SIZE = \"2\" }\n\
             [fleet]\nstore = \"redis://127.0.0.1:1\"\nhost = \"this\"\n",
        )
        .unwrap();
        let config = Arc::new(config);
        write_past(dir.path());
        let fleet = Some(FleetClient::for_test(&config, dir.path()));
        let origin =
            history_writer::RunContext { fleet, ..history_writer::RunContext::now(dir.path(), StateNotes::default()) };
        let (history, _) = history_writer::start(origin, history_filter::limits(&config)).unwrap();
        let metrics = Arc::new(Metrics::new().unwrap());
        let (engine, inbox) = request::channel();
        let (happens, inputs) = mpsc::channel(1);
        let socket = ControlSocket::bind(&dir.path().join("control.sock")).unwrap();
        let origin = Arc::clone(history.origin());
        let config_state = origin.config.clone();
        let facts = DaemonFacts { capabilities: capability::probe(), ..DaemonFacts::default() };
        let state = DaemonState::new(config, Arc::clone(&metrics), history, facts);
        let limiter = ConnectionLimiter::new(ConnectionLimits::for_queue(10, 1 << 20), ConnectionLimits::CONTROL);
        tokio::task::spawn_local(own(state, inbox, inputs));
        tokio::spawn(async move { socket.serve(limiter, engine, metrics, origin).await });
        Self { dir, happens, config: config_state }
    }

    async fn happen(&self, at: BootTime, input: Input) {
        self.happens.send((at, input)).await.unwrap();
        // The capacity is 1: with room for the next input this one was handled.
        drop(self.happens.reserve().await.unwrap());
    }

    async fn open(&self, method: &str, target: &str, body: &str) -> UnixStream {
        let mut stream = UnixStream::connect(self.dir.path().join("control.sock")).await.unwrap();
        let (method, length) = (method.to_uppercase(), body.len());
        let head = format!("{method} {target} HTTP/1.0\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all((head + body).as_bytes()).await.unwrap();
        stream
    }

    async fn ask(&self, method: &str, target: &str, body: &str) -> HttpAnswer {
        let mut stream = self.open(method, target, body).await;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answered(&answer)
    }
}

fn answered(answer: &str) -> HttpAnswer {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let kind = head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap().to_owned();
    HttpAnswer { status: head[9..12].parse().unwrap(), kind, body: body.to_owned() }
}

/// In the place of the engine's thread.
pub(crate) async fn own(
    mut state: DaemonState,
    mut inbox: mpsc::Receiver<EngineRequest>,
    mut inputs: mpsc::Receiver<(BootTime, Input)>,
) {
    loop {
        let mut effects = Vec::new();
        tokio::select! {
            Some((at, input)) = inputs.recv() => state.feed(at, input, &mut effects),
            Some(request) = inbox.recv() => state.answer(clock::now(), request, &mut effects),
            else => return,
        }
        for effect in effects {
            match effect {
                Effect::Reply(ClientReply::Granted(granted)) => {
                    if let Some(client) = state.take_granted_client(&granted) {
                        client.send(LaunchUpdate::Granted(workers::grant_answer(&granted, &Confinement::default())));
                    }
                }
                Effect::Reply(ClientReply::Refused(refused)) => state.refuse(*refused),
                Effect::Reply(ClientReply::Queued(position)) => state.update_waiting(*position),
                _ => {}
            }
        }
    }
}

/// A run that has ended, with a record of each kind.
fn write_past(state_dir: &Path) {
    let records = [
        json!({"type": "daemon_started", "version": "0", "pid": 1, "boot_id": "before"}),
        json!({"type": "host", "memory_total_bytes": 9, "memory_available_bytes": 5, "swap_total_bytes": 0,
            "swap_free_bytes": 0, "shmem_bytes": 1, "pressure_some_avg10": 0.5, "pressure_full_avg10": null,
            "sessions": [{"session": 1, "profile": "p", "uid": 0, "memory_bytes": 3, "processes": 1}],
            "processes": [{"pid": 5, "start_time": 6, "session": 1, "uid": 0, "name": "n", "memory_bytes": 3}]}),
        json!({"type": "oom", "pid": 5, "start_time": 6, "session": 1, "comm": "c"}),
        json!({"type": "action", "action": "adopt", "pids": [5], "session": null, "asked_by_uid": 0}),
        json!({"type": "oom", "pid": 5, "start_time": 6, "session": 1, "comm": "c", "count": 240,
            "first_at": "2026-01-02T00:00:00Z", "last_at": "2026-01-02T00:00:00Z"}),
        json!({"type": "daemon_stopped"}),
    ];
    // Recent enough to be kept.
    let moment = |minutes| (jiff::Timestamp::now() - jiff::SignedDuration::from_mins(minutes)).to_string();
    let (at, run) = (moment(10), moment(20));
    let uid = rustix::process::geteuid().as_raw();
    let lines = records.into_iter().flat_map(|mut record| {
        let head = json!({"at": at, "run": run, "owner_uid": uid});
        record.as_object_mut().unwrap().extend(head.as_object().cloned().unwrap_or_else(Map::new));
        codec::encode(&serde_json::from_value(record).unwrap())
    });
    let lines: Vec<u8> = lines.collect();
    Store::open(state_dir).unwrap().0.append(&lines).unwrap();
}

fn exec(process: ProcessId, at: BootTime, path: &str) -> Input {
    let lineage = Lineage { root: process, parent: None, depth: 0, provisional: true, forked: false, witness: false };
    let image = Image::new(path, [path]);
    let (uid, comm) = (Uid(rustix::process::geteuid().as_raw()), "agent".to_owned());
    Input::Kernel(KernelEvent::Exec(Exec { at, process, lineage, uid, ppid: Pid(1), comm, image }))
}

/// An ungated agent: it forks, and is killed, long enough ago for a verdict.
async fn live_and_die(server: &LiveServer) {
    let mut at = clock::now();
    let memory = HostMemory { total: Bytes(16 << 30), available: Bytes(12 << 30), ..HostMemory::default() };
    server.happen(at, Input::Host(memory)).await;
    server.happen(at, exec(AGENT, at, "/usr/bin/claude")).await;
    let lineage =
        Lineage { root: AGENT, parent: Some(AGENT), depth: 1, provisional: false, forked: true, witness: false };
    let (uid, comm) = (Uid(rustix::process::geteuid().as_raw()), "agent".to_owned());
    let fork = Fork { at, process: CHILD, lineage, uid, comm };
    server.happen(at, Input::Kernel(KernelEvent::Fork(fork))).await;
    server.happen(at, exec(ProcessId { pid: Pid(4_000_003), ..AGENT }, at, "/usr/bin/codex")).await;
    let status = Some(ExitStatus::Signal(9));
    let exit = Exit { at, process: AGENT, status, peak: Some(Bytes(1 << 20)) };
    server.happen(at, Input::Kernel(KernelEvent::Exit(exit))).await;
    for _ in 0..5 {
        at = at.plus(Duration::from_secs(1));
        server.happen(at, Input::Tick).await;
    }
}

#[test]
fn answers_match_the_document() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let (server, promise) = (LiveServer::start(), Rc::new(DocumentedApi::read()));
        live_and_die(&server).await;
        let contains = |answer: &HttpAnswer, what: &str| assert!(answer.body.contains(what), "no {what} in {answer:?}");
        let asked = async |method: &str, target: &str, body: &str| {
            let answer = server.ask(method, target, body).await;
            promise.check(method, target, &answer);
            answer
        };

        // A launch is granted, others are refused.
        let own = this_process().unwrap();
        let launch = r#"{"path":"/usr/bin/other-agent","argv":["other-agent"],"no_wait":true}"#;
        contains(&asked("post", "/v1/launch", launch).await, "granted\":true");
        let mut subject = watchdog_host::testing::TestProcess::spawn(std::process::Command::new("sleep").arg("1000"));
        let ProcessId { pid, start_time } = subject.process;
        let other = format!(r#""path":"/usr/bin/other-agent","pid":{pid},"start_time":{}"#, start_time.0);
        contains(&asked("post", "/v1/launch", &format!("{{{other},\"no_wait\":true}}")).await, "refused");
        let mut waits = server.open("post", "/v1/launch", &format!("{{{other}}}")).await;
        let mut line = vec![0; 4096];
        let mut got = 0;
        while !line[..got].ends_with(b"}\n") {
            got += waits.read(&mut line[got..]).await.unwrap();
        }
        contains(&asked("get", "/v1/queue", "").await, "queued_at");
        contains(&asked("post", "/v1/queue/cancel", &format!("{{\"pid\":{pid}}}")).await, &pid.to_string());
        let mut rest = String::new();
        waits.read_to_string(&mut rest).await.unwrap();
        let whole = String::from_utf8_lossy(&line[..got]).into_owned() + &rest;
        assert!(whole.contains("waiting") && whole.contains("cancelled"), "{whole}");
        promise.check("post", "/v1/launch", &answered(&whole));
        subject.child().kill().unwrap();
        asked("post", "/v1/subagent", r#"{"event":"start"}"#).await;

        // A fleet whose store is not there.
        contains(&asked("get", "/v1/fleet", "").await, "\"this_host\":\"this\"");
        contains(&asked("post", "/v1/fleet/place", "{}").await, "\"placed\":false");

        // The present and the past.
        asked("get", "/v1/status", "").await;
        let text = LoadedText::read_now(None, String::new(), true);
        server.config.reloaded(Ok((&Config::default(), text)));
        contains(&asked("get", "/v1/config", "").await, "loaded_at");
        contains(&asked("get", "/v1/tree", "").await, "other-agent");
        contains(&asked("get", "/v1/overview?findings=true&queue=true", "").await, "other-agent");
        let brief = asked("get", "/v1/overview?processes_of=", "").await;
        let brief: Overview = serde_json::from_str(&brief.body).unwrap();
        assert!(brief.tree.sessions.iter().all(|session| session.processes.is_empty()), "{brief:?}");
        assert!(!brief.tree.sessions.is_empty() && brief.findings.is_none() && brief.queue.is_none(), "{brief:?}");
        contains(&asked("get", "/v1/findings?all=true", "").await, "\"kind\"");
        contains(&asked("get", "/v1/events", "").await, "session_started");
        contains(&asked("get", &format!("/v1/explain?pid={}", AGENT.pid), "").await, "killed");
        asked("get", &format!("/v1/explain?pid={}", own.pid), "").await;
        contains(&asked("post", "/v1/adopt", &format!("{{\"pid\":{}}}", own.pid)).await, &own.pid.to_string());
        contains(&asked("post", "/v1/adopt", &format!("{{\"pid\":{},\"undo\":true}}", own.pid)).await, "pids");
        contains(&asked("get", "/v1/postmortem", "").await, "\"killed\"");

        // Actions.
        contains(&asked("post", "/v1/reap", r#"{"dry_run":true}"#).await, "planned");
        contains(&asked("post", "/v1/end", r#"{"session":1,"dry_run":true}"#).await, "planned");
        contains(&asked("post", "/v1/reap", "{}").await, "running");
        asked("post", "/v1/thaw", "{}").await;
        contains(&asked("post", "/v1/reclaim", r#"{"dry_run":true}"#).await, "sessions");
        contains(&asked("get", "/v1/reclaim", "").await, "runs");
        contains(&asked("get", "/v1/actions", "").await, "terminate");
        contains(&asked("get", &format!("/v1/explain?pid={}", CHILD.pid), "").await, "receipts");
        asked("get", "/v1/openapi.json", "").await;
        let mut history = String::new();
        for _ in 0..600 {
            history = server.ask("get", "/v1/history", "").await.body;
            if ["session_started", "\"death\"", "\"finding\"", "\"host\""].iter().all(|kind| history.contains(kind)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        contains(&asked("get", "/v1/history", "").await, "\"death\"");
        assert!(history.contains("\"finding\""), "{history}");

        // Every failure is a problem.
        for (method, target, body, status) in [
            ("get", "/v1/tree?session=99", "", 404),
            ("get", "/v1/overview?processes_of=x", "", 400),
            ("get", "/v1/findings?all=maybe", "", 400),
            ("get", "/v1/events?since=x", "", 400),
            ("get", "/v1/explain", "", 400),
            ("get", "/v1/explain?pid=1", "", 404),
            ("get", "/v1/history?since=x", "", 400),
            ("get", "/v1/postmortem?boot=-9", "", 404),
            ("post", "/v1/adopt", "", 400),
            ("post", "/v1/adopt", "{\"pid\":1}", 404),
            ("post", "/v1/reap", "[]", 400),
            ("post", "/v1/reap", "{\"subjects\":[{\"pid\":1}]}", 404),
            ("post", "/v1/end", "{}", 400),
            ("post", "/v1/end", "{\"session\":99}", 404),
            ("post", "/v1/thaw", "{\"subjects\":[{\"pid\":1}]}", 404),
            ("post", "/v1/reclaim", "[]", 400),
            ("post", "/v1/reclaim", "{\"session\":99}", 404),
            ("get", "/v1/actions?id=99", "", 404),
            ("get", "/v1/actions?id=x", "", 400),
            ("post", "/v1/launch", "{}", 400),
            ("post", "/v1/launch", "{\"path\":\"/x\",\"profile\":\"none\"}", 404),
            ("post", "/v1/launch", "{\"path\":\"/x\",\"pid\":1,\"start_time\":0}", 403),
            ("post", "/v1/queue/cancel", "{}", 400),
            ("post", "/v1/queue/cancel", "{\"pid\":1}", 404),
            ("post", "/v1/subagent", "{}", 400),
            ("post", "/v1/fleet/place", "{\"memory_bytes\":0}", 400),
            ("post", "/v1/fleet/place", "{\"labels\":[\"a b\"]}", 400),
        ] {
            assert_eq!(asked(method, target, body).await.status, status, "{method} {target} {body}");
        }

        let kept: BTreeSet<(String, String)> = promise
            .kept
            .borrow()
            .iter()
            .filter(|(_, _, status)| *status == 200)
            .map(|(method, path, _)| (method.clone(), path.clone()))
            .collect();
        assert_eq!(kept, operations(&promise.document), "every operation succeeded");
        promise.check("post", "/v1/launch", &answered(&rejection()));
    });
}

#[test]
fn undocumented_field_is_found() {
    let promise = DocumentedApi::read();
    let queue = serde_json::to_value(watchdog_api::Queue::default()).unwrap();
    let answer = |value: &Value| {
        let (kind, body) = ("application/json".to_owned(), value.to_string());
        HttpAnswer { status: 200, kind, body }
    };
    promise.check("get", "/v1/queue", &answer(&queue));
    let mut more = queue.clone();
    more["breaker"]["new"] = json!(1);
    let mut less = queue;
    less["room"].as_object_mut().unwrap().remove("free_bytes");
    for bad in [more, less] {
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            promise.check("get", "/v1/queue", &answer(&bad));
        }));
        assert!(checked.is_err(), "{bad}");
    }
}
