//! The OpenAPI document against the server: the same routes, and what a server with a real engine answers is what it promises.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::openapi_schema::Schemas;
use super::*;
use crate::api::LaunchUpdate;
use crate::config::Config;
use crate::daemon::core::{Core, Facts};
use crate::daemon::door::Sizes;
use crate::daemon::set_aside::StateNotes;
use crate::daemon::{chronicle, hands, historian, request};
use crate::engine::effect::Effect;
use crate::engine::gate::Confinement;
use crate::engine::id::{BootTime, Bytes, ProcessId, Ticks};
use crate::engine::input::{Exec, Exit, ExitStatus, Fork, HostMemory, Image, Input, KernelEvent, Lineage};
use crate::history::{Store, line};
use crate::host::{capability, clock, this_process};

/// An agent that nobody launched through the gate, and a child of it.
const AGENT: ProcessId = ProcessId { pid: Pid(4_000_001), start_time: Ticks(5) };
const CHILD: ProcessId = ProcessId { pid: Pid(4_000_002), start_time: Ticks(6) };

fn document() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
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
fn the_document_holds_every_route_and_no_other() {
    let routed = routes().map(|(method, path, _)| (method.to_owned(), path.to_owned()));
    assert_eq!(operations(&document()), routed.iter().cloned().collect());
    for (_, path, _) in routes() {
        assert!(PATHS.contains(path), "{path} is not named to those who ask for something else");
    }
}

/// The documented schemas, and what was checked against them so far.
struct Promise {
    document: Value,
    kept: RefCell<BTreeSet<(String, String, u16)>>,
}

impl Promise {
    fn read() -> Self {
        Self { document: document(), kept: RefCell::default() }
    }

    /// Checks an answer: each line of it, where it is made of lines.
    fn check(&self, method: &str, target: &str, answer: &Answered) {
        let path = target.split('?').next().unwrap();
        let Answered { status, kind, body } = answer;
        let response = &self.document["paths"][path][method]["responses"][status.to_string()];
        let schema = &response["content"][kind]["schema"];
        assert!(schema.is_object(), "{method} {target}: {status} with {kind} is not in the document: {body}");
        let schemas = Schemas { document: &self.document };
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
struct Answered {
    status: u16,
    kind: String,
    body: String,
}

/// A server with a real engine, of which the effects are carried out as far as clients are concerned.
struct Server {
    dir: tempfile::TempDir,
    /// Things for the engine to be told, and the moment.
    happens: mpsc::Sender<(BootTime, Input)>,
}

impl Server {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config: Config = crate::config::parse(
            Path::new("test.toml"),
            "[gate]\nmax_sessions = 2\n[[profile]]\nname = \"other-agent\"\nexe = [\"*/other-agent\"]\n\
             max_memory = \"1GiB\"\nmax_helpers = 4\nmax_subagents = 3\nenv = { UV_THREADPOOL_SIZE = \"2\" }\n",
        )
        .unwrap();
        write_past(dir.path());
        let origin = historian::Origin::now(dir.path(), StateNotes::default());
        let (history, _) = historian::start(origin, chronicle::limits(&config)).unwrap();
        let metrics = Arc::new(Metrics::new().unwrap());
        let (asker, inbox) = request::channel();
        let (happens, told) = mpsc::channel(1);
        let socket = ControlSocket::bind(&dir.path().join("control.sock")).unwrap();
        let origin = Arc::clone(history.origin());
        let facts = Facts { capabilities: capability::probe(), ..Facts::default() };
        let core = Core::new(Arc::new(config), Arc::clone(&metrics), history, facts);
        let door = Door::new(Sizes::house(10, 1 << 20), Sizes::DESK);
        tokio::task::spawn_local(own(core, inbox, told));
        tokio::spawn(async move { socket.serve(door, asker, metrics, origin).await });
        Self { dir, happens }
    }

    async fn happen(&self, at: BootTime, input: Input) {
        self.happens.send((at, input)).await.unwrap();
        // There is room for the next one when this one was taken: what is asked after this finds it done.
        drop(self.happens.reserve().await.unwrap());
    }

    async fn open(&self, method: &str, target: &str, body: &str) -> UnixStream {
        let mut stream = UnixStream::connect(self.dir.path().join("control.sock")).await.unwrap();
        let (method, length) = (method.to_uppercase(), body.len());
        let head = format!("{method} {target} HTTP/1.0\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all((head + body).as_bytes()).await.unwrap();
        stream
    }

    async fn ask(&self, method: &str, target: &str, body: &str) -> Answered {
        let mut stream = self.open(method, target, body).await;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answered(&answer)
    }
}

fn answered(answer: &str) -> Answered {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let kind = head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap().to_owned();
    Answered { status: head[9..12].parse().unwrap(), kind, body: body.to_owned() }
}

/// The owner of the engine.
pub(super) async fn own(
    mut core: Core,
    mut inbox: mpsc::Receiver<Request>,
    mut told: mpsc::Receiver<(BootTime, Input)>,
) {
    loop {
        let mut effects = Vec::new();
        tokio::select! {
            Some((at, input)) = told.recv() => core.tell(at, input, &mut effects),
            Some(request) = inbox.recv() => core.answer(clock::now(), request, &mut effects),
            else => return,
        }
        for effect in effects {
            match effect {
                Effect::Granted(granted) => {
                    if let Some(client) = core.granted(&granted) {
                        client.give(LaunchUpdate::Granted(hands::grant(&granted, &Confinement::default())));
                    }
                }
                Effect::Refused(refused) => core.refused(*refused),
                Effect::Waits(waits) => core.waits(*waits),
                _ => {}
            }
        }
    }
}

/// A run that has ended, with a record of each kind that tells of something.
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
    // Not so long ago that it would be forgotten.
    let moment = |minutes| (jiff::Timestamp::now() - jiff::SignedDuration::from_mins(minutes)).to_string();
    let (at, run) = (moment(10), moment(20));
    let uid = rustix::process::geteuid().as_raw();
    let lines = records.into_iter().flat_map(|mut record| {
        let head = json!({"at": at, "run": run, "owner_uid": uid});
        record.as_object_mut().unwrap().extend(head.as_object().cloned().unwrap_or_else(Map::new));
        line::encode(&serde_json::from_value(record).unwrap())
    });
    let lines: Vec<u8> = lines.collect();
    Store::open(state_dir).unwrap().0.append(&lines).unwrap();
}

fn exec(process: ProcessId, at: BootTime, path: &str) -> Input {
    let lineage = Lineage { root: process, parent: None, depth: 0, provisional: true, forked: false, witness: false };
    let image = Image { path: path.to_owned(), argv: vec![path.to_owned()], truncated: false };
    let (uid, comm) = (Uid(rustix::process::geteuid().as_raw()), "agent".to_owned());
    Input::Kernel(KernelEvent::Exec(Exec { at, process, lineage, uid, ppid: Pid(1), comm, image }))
}

/// An agent that was started past the gate: it forks, and is killed, long enough ago to be judged.
async fn live_and_die(server: &Server) {
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
fn what_the_server_answers_is_what_the_document_promises() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let (server, promise) = (Server::start(), Rc::new(Promise::read()));
        live_and_die(&server).await;
        let told = |answer: &Answered, what: &str| assert!(answer.body.contains(what), "no {what} in {answer:?}");
        let asked = async |method: &str, target: &str, body: &str| {
            let answer = server.ask(method, target, body).await;
            promise.check(method, target, &answer);
            answer
        };

        // A launch is granted, and of others it is said why not.
        let own = this_process().unwrap();
        let launch = r#"{"path":"/usr/bin/other-agent","argv":["other-agent"],"no_wait":true}"#;
        told(&asked("post", "/v1/launch", launch).await, "granted\":true");
        let mut subject = crate::host::testing::Subject::spawn(std::process::Command::new("sleep").arg("1000"));
        let ProcessId { pid, start_time } = subject.process;
        let other = format!(r#""path":"/usr/bin/other-agent","pid":{pid},"start_time":{}"#, start_time.0);
        told(&asked("post", "/v1/launch", &format!("{{{other},\"no_wait\":true}}")).await, "refused");
        let mut waits = server.open("post", "/v1/launch", &format!("{{{other}}}")).await;
        let mut line = vec![0; 4096];
        let mut got = 0;
        while !line[..got].ends_with(b"}\n") {
            got += waits.read(&mut line[got..]).await.unwrap();
        }
        told(&asked("get", "/v1/queue", "").await, "queued_at");
        told(&asked("post", "/v1/queue/cancel", &format!("{{\"pid\":{pid}}}")).await, &pid.to_string());
        let mut rest = String::new();
        waits.read_to_string(&mut rest).await.unwrap();
        let whole = String::from_utf8_lossy(&line[..got]).into_owned() + &rest;
        assert!(whole.contains("waiting") && whole.contains("cancelled"), "{whole}");
        promise.check("post", "/v1/launch", &answered(&whole));
        subject.child().kill().unwrap();
        asked("post", "/v1/subagent", r#"{"event":"start"}"#).await;

        // What there is now, and what was.
        asked("get", "/v1/status", "").await;
        told(&asked("get", "/v1/tree", "").await, "other-agent");
        told(&asked("get", "/v1/findings?all=true", "").await, "\"kind\"");
        told(&asked("get", "/v1/events", "").await, "session_started");
        told(&asked("get", &format!("/v1/explain?pid={}", AGENT.pid), "").await, "killed");
        asked("get", &format!("/v1/explain?pid={}", own.pid), "").await;
        told(&asked("post", "/v1/adopt", &format!("{{\"pid\":{}}}", own.pid)).await, &own.pid.to_string());
        told(&asked("post", "/v1/adopt", &format!("{{\"pid\":{},\"undo\":true}}", own.pid)).await, "pids");
        told(&asked("get", "/v1/postmortem", "").await, "\"killed\"");

        // What is done.
        told(&asked("post", "/v1/reap", r#"{"dry_run":true}"#).await, "planned");
        told(&asked("post", "/v1/end", r#"{"session":1,"dry_run":true}"#).await, "planned");
        told(&asked("post", "/v1/reap", "{}").await, "running");
        asked("post", "/v1/thaw", "{}").await;
        told(&asked("get", "/v1/actions", "").await, "terminate");
        told(&asked("get", &format!("/v1/explain?pid={}", CHILD.pid), "").await, "receipts");
        asked("get", "/v1/openapi.json", "").await;
        let mut history = String::new();
        for _ in 0..100 {
            history = server.ask("get", "/v1/history", "").await.body;
            if ["session_started", "\"death\"", "\"finding\"", "\"host\""].iter().all(|kind| history.contains(kind)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        told(&asked("get", "/v1/history", "").await, "\"death\"");
        assert!(history.contains("\"finding\""), "{history}");

        // What goes wrong is a problem of the same form everywhere.
        for (method, target, body, status) in [
            ("get", "/v1/tree?session=99", "", 404),
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
            ("get", "/v1/actions?id=99", "", 404),
            ("get", "/v1/actions?id=x", "", 400),
            ("post", "/v1/launch", "{}", 400),
            ("post", "/v1/launch", "{\"path\":\"/x\",\"profile\":\"none\"}", 404),
            ("post", "/v1/launch", "{\"path\":\"/x\",\"pid\":1,\"start_time\":0}", 403),
            ("post", "/v1/queue/cancel", "{}", 400),
            ("post", "/v1/queue/cancel", "{\"pid\":1}", 404),
            ("post", "/v1/subagent", "{}", 400),
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
        assert_eq!(kept, operations(&promise.document), "every operation was seen to succeed");
        promise.check("post", "/v1/launch", &answered(&no_room()));
    });
}

#[test]
fn a_field_that_the_document_does_not_name_would_be_found() {
    let promise = Promise::read();
    let queue = serde_json::to_value(crate::api::Queue::default()).unwrap();
    let answer = |value: &Value| {
        let (kind, body) = ("application/json".to_owned(), value.to_string());
        Answered { status: 200, kind, body }
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
