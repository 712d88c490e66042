//! Requests that act, on the real routes with a real engine; the test chooses each client.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tower::Service;

use super::super::history_writer::{self, RunContext};
use super::super::metrics::Metrics;
use super::super::state::{DaemonFacts, DaemonState};
use super::super::{history_filter, request};
use super::*;
use crate::gate_api::ClientProcess;
use crate::routes::openapi_tests::own;
use crate::set_aside::StateNotes;
use watchdog_config::Config;
use watchdog_engine::actions::{BatchResult, Operation, OperationOutcome, Permissions};
use watchdog_engine::input::Input;
use watchdog_host::clock;
use watchdog_types::{
    ActionId, BootTime, Bytes, Exec, Exit, ExitStatus, Fork, HostMemory, Image, Inspection, KernelEvent, Lineage, Pid,
    ProcessId, Signal, Ticks, Uid, Viewer,
};

const OWNER: u32 = 1_000;
const OTHER: u32 = 1_001;
const AGENT: ProcessId = ProcessId { pid: Pid(4_100_001), start_time: Ticks(5) };
const WRAPPER: ProcessId = ProcessId { pid: Pid(4_100_002), start_time: Ticks(6) };
const SERVER: ProcessId = ProcessId { pid: Pid(4_100_003), start_time: Ticks(7) };
const WATCHDOG: ProcessId = ProcessId { pid: Pid(4_100_009), start_time: Ticks(1) };

/// The API of a daemon whose clock and workers are the test.
struct ActionsFixture {
    _dir: tempfile::TempDir,
    router: Router,
    happens: mpsc::Sender<(BootTime, Input)>,
    now: BootTime,
}

fn image(path: &str) -> Image {
    Image::new(path, [path])
}

impl ActionsFixture {
    /// A user's agent with a helper behind a wrapper.
    async fn with_an_agent() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::default();
        let (history, _) =
            history_writer::start(RunContext::now(dir.path(), StateNotes::default()), history_filter::limits(&config))
                .unwrap();
        let origin = Arc::clone(history.origin());
        let (engine, inbox) = request::channel();
        let (happens, inputs) = mpsc::channel(1);
        let metrics = Arc::new(Metrics::new().unwrap());
        let state = DaemonState::new(Arc::new(config), metrics, history, DaemonFacts::default());
        tokio::task::spawn_local(own(state, inbox, inputs));
        let fixture = Self { _dir: dir, router: router(engine, origin), happens, now: clock::now() };
        let memory = HostMemory { total: Bytes(16 << 30), available: Bytes(12 << 30), ..HostMemory::default() };
        fixture.feed(Input::Host(memory)).await;
        fixture.feed(Input::OwnProcess(WATCHDOG)).await;
        let root = Lineage { root: AGENT, parent: None, depth: 0, provisional: true, forked: false, witness: false };
        fixture.exec(AGENT, root, "/usr/bin/claude").await;
        fixture.helper(WRAPPER, AGENT, 1).await;
        fixture.helper(SERVER, WRAPPER, 2).await;
        fixture
    }

    /// The same, with a dead agent and inspected orphans.
    async fn with_orphans() -> Self {
        let mut fixture = Self::with_an_agent().await;
        fixture.dies(AGENT).await;
        fixture.looks().await;
        fixture.waits(2).await;
        fixture
    }

    async fn feed(&self, input: Input) {
        self.happens.send((self.now, input)).await.unwrap();
        // The capacity is 1: with room for the next input this one was handled.
        drop(self.happens.reserve().await.unwrap());
    }

    async fn waits(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now = self.now.plus(Duration::from_secs(1));
            self.feed(Input::Tick).await;
        }
    }

    async fn exec(&self, process: ProcessId, lineage: Lineage, path: &str) {
        let (at, uid, comm) = (self.now, Uid(OWNER), path.rsplit('/').next().unwrap().to_owned());
        let exec = Exec { at, process, lineage, uid, ppid: Pid(1), comm, image: image(path) };
        self.feed(Input::Kernel(KernelEvent::Exec(exec))).await;
    }

    async fn helper(&self, process: ProcessId, parent: ProcessId, depth: u32) {
        let lineage =
            Lineage { root: AGENT, parent: Some(parent), depth, provisional: false, forked: true, witness: false };
        let fork = Fork { at: self.now, process, lineage, uid: Uid(OWNER), comm: "parent".to_owned() };
        self.feed(Input::Kernel(KernelEvent::Fork(fork))).await;
        self.exec(process, Lineage { forked: false, ..lineage }, "/usr/bin/helper").await;
    }

    async fn dies(&self, process: ProcessId) {
        let exit = Exit { at: self.now, process, status: Some(ExitStatus::Signal(15)), peak: None };
        self.feed(Input::Kernel(KernelEvent::Exit(exit))).await;
    }

    /// RequestedAction /proc would show of the helpers.
    async fn looks(&self) {
        for process in [WRAPPER, SERVER] {
            let seen = Inspection { sid: AGENT.pid.0, comm: "helper".to_owned(), ..Inspection::default() };
            self.feed(Input::Inspected(process, Some(seen))).await;
        }
    }

    async fn ask(&mut self, uid: u32, method: &str, target: &str, body: &str) -> (u16, Value) {
        let uid = Uid(uid);
        let viewer = if uid == Uid::ROOT { Viewer::Root } else { Viewer::User(uid) };
        let request = axum::http::Request::builder().method(method).uri(target).body(Body::from(body.to_owned()));
        let mut request = request.unwrap();
        request.extensions_mut().insert(viewer);
        request.extensions_mut().insert(ClientProcess { uid, pinned: None });
        let response = self.router.call(request).await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_else(|error| panic!("{error} in {body:?}")))
    }
}

fn on_one_thread(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

fn pids(planned: &Value) -> Vec<u64> {
    let actions = planned["actions"].as_array().unwrap();
    let targets = actions.iter().flat_map(|action| action["targets"].as_array().unwrap());
    targets.map(|target| target["pid"].as_u64().unwrap()).collect()
}

fn pid(process: ProcessId) -> u64 {
    u64::from(process.pid.0)
}

#[test]
fn dry_run_starts_nothing() {
    on_one_thread(async {
        let mut fixture = ActionsFixture::with_orphans().await;
        let (status, planned) = fixture.ask(OWNER, "POST", "/v1/reap", "{\"dry_run\":true}").await;
        assert_eq!((status, pids(&planned)), (200, vec![pid(SERVER), pid(WRAPPER)]), "children first: {planned:#}");
        assert_eq!((&planned["dry_run"], &planned["kill_after_seconds"]), (&json!(true), &json!(10.0)));
        let action = &planned["actions"][0];
        assert_eq!((&action["state"], &action["finding_kind"]), (&json!("planned"), &json!("orphan")));
        assert!(action["reason"].as_str().unwrap().contains("claude"), "{planned:#}");
        let (status, actions) = fixture.ask(OWNER, "GET", "/v1/actions", "").await;
        assert_eq!((status, &actions["actions"]), (200, &json!([])));
    });
}

#[test]
fn reap_runs_to_its_receipt() {
    on_one_thread(async {
        let mut fixture = ActionsFixture::with_orphans().await;
        let (status, planned) = fixture.ask(OWNER, "POST", "/v1/reap", "{}").await;
        assert_eq!((status, &planned["actions"][0]["state"]), (200, &json!("running")), "{planned:#}");
        let id = planned["actions"][0]["id"].as_u64().unwrap();
        fixture.looks().await;
        fixture.now = fixture.now.plus(Duration::from_millis(100));
        for process in [SERVER, WRAPPER] {
            let (sender, sender_comm, sender_uid) = (WATCHDOG, "watchdogd".to_owned(), Uid::ROOT);
            let (at, delivered) = (fixture.now, true);
            let sender_thread_exits = false;
            let signal = Signal {
                at,
                process,
                signal: 15,
                code: 0,
                sender,
                sender_comm,
                sender_uid,
                delivered,
                sender_thread_exits,
            };
            fixture.feed(Input::Kernel(KernelEvent::Signal(signal))).await;
        }
        let outcomes = vec![(SERVER, OperationOutcome::Sent), (WRAPPER, OperationOutcome::Sent)];
        fixture
            .feed(Input::BatchResult(BatchResult {
                action: ActionId(id),
                operation: Operation::Term,
                at: fixture.now,
                outcomes,
            }))
            .await;
        for process in [SERVER, WRAPPER] {
            fixture.dies(process).await;
        }
        fixture.waits(5).await;
        let (status, actions) = fixture.ask(OWNER, "GET", &format!("/v1/actions?id={id}"), "").await;
        let receipt = &actions["actions"][0];
        assert_eq!((status, &receipt["state"]), (200, &json!("done")), "{actions:#}");
        assert_eq!(receipt["targets"][0]["sent"][0]["what"], json!("TERM"));
        let (status, _) = fixture.ask(OTHER, "GET", &format!("/v1/actions?id={id}"), "").await;
        assert_eq!(status, 404, "another user must not see it");

        let (status, explained) = fixture.ask(OWNER, "GET", &format!("/v1/explain?pid={}", pid(SERVER)), "").await;
        assert_eq!((status, &explained["receipts"][0]["id"]), (200, &json!(id)), "{explained:#}");
        let summary = explained["summary"].as_str().unwrap();
        assert!(summary.contains(&format!("from agent-watchdog (action {id})")), "{summary}");
        assert_eq!(explained["deaths"][0]["sender"]["action"], json!(id));
        let (_, explained) = fixture.ask(0, "GET", "/v1/explain?session=1", "").await;
        assert_eq!(explained["receipts"].as_array().unwrap().len(), 1, "{explained:#}");
    });
}

#[test]
fn other_users_processes_are_refused() {
    on_one_thread(async {
        let mut fixture = ActionsFixture::with_orphans().await;
        let (status, planned) = fixture.ask(OTHER, "POST", "/v1/reap", "{}").await;
        assert_eq!((status, &planned["actions"], &planned["spared"]), (200, &json!([]), &json!([])));
        for (target, body) in [
            ("/v1/reap", format!("{{\"subjects\":[{{\"pid\":{}}}]}}", pid(SERVER))),
            ("/v1/reap", "{\"subjects\":[{\"session\":1}],\"dry_run\":true}".to_owned()),
            ("/v1/end", "{\"session\":1}".to_owned()),
            ("/v1/adopt", format!("{{\"pid\":{},\"undo\":true}}", pid(SERVER))),
        ] {
            let (status, problem) = fixture.ask(OTHER, "POST", target, &body).await;
            assert_eq!(status, 403, "{target} {body}: {problem}");
            assert!(problem["error"].as_str().unwrap().contains("another user"), "{problem}");
        }
        let (_, actions) = fixture.ask(0, "GET", "/v1/actions", "").await;
        assert_eq!(actions["actions"], json!([]), "nothing was started");
        let (status, planned) = fixture.ask(0, "POST", "/v1/reap", "{\"dry_run\":true}").await;
        assert_eq!((status, pids(&planned).len()), (200, 2), "root may");
    });
}

#[test]
fn unknown_subjects_are_not_found() {
    on_one_thread(async {
        let mut fixture = ActionsFixture::with_an_agent().await;
        for (target, body, status, reason) in [
            ("/v1/reap", "{\"subjects\":[{\"pid\":77}]}", 404, "pid 77"),
            ("/v1/reap", "{\"subjects\":[{\"session\":77}]}", 404, "session 77"),
            ("/v1/reap", "{\"subjects\":[{\"session\":1}]}", 404, "watchdogctl end 1"),
            ("/v1/reap", "{\"subjects\":[{\"pid\":4100003}]}", 409, "its agent is running"),
            ("/v1/reap", "{\"subjects\":[77]}", 400, "subjects"),
            ("/v1/reap", "{\"dryrun\":true}", 400, "dryrun"),
            ("/v1/end", "{\"session\":77}", 404, "session 77"),
            ("/v1/end", "{}", 400, "session"),
            ("/v1/thaw", "{\"subjects\":[{\"pid\":4100003}]}", 404, "frozen or throttled"),
        ] {
            let (got, problem) = fixture.ask(OWNER, "POST", target, body).await;
            assert_eq!(got, status, "{target} {body}: {problem}");
            assert!(problem["error"].as_str().unwrap().contains(reason), "{target} {body}: {problem}");
        }
        let (status, problem) = fixture.ask(OWNER, "GET", "/v1/actions?id=77", "").await;
        assert_eq!(status, 404, "{problem}");
        let (status, planned) = fixture.ask(OWNER, "POST", "/v1/thaw", "{}").await;
        assert_eq!((status, &planned["actions"]), (200, &json!([])));
        let (status, planned) = fixture.ask(OWNER, "POST", "/v1/reap", "{}").await;
        assert_eq!((status, &planned["actions"]), (200, &json!([])), "nothing was left behind");
    });
}

#[test]
fn adopted_processes_are_spared_until_released() {
    on_one_thread(async {
        let mut fixture = ActionsFixture::with_orphans().await;
        let server = format!("\"pid\":{}", pid(SERVER));
        let reap = format!("{{\"subjects\":[{{{server}}}],\"dry_run\":true}}");
        let (status, _) = fixture.ask(OWNER, "POST", "/v1/adopt", &format!("{{{server}}}")).await;
        assert_eq!(status, 200);
        let (status, problem) = fixture.ask(OWNER, "POST", "/v1/reap", &reap).await;
        assert_eq!(status, 409, "{problem}");
        assert!(problem["error"].as_str().unwrap().contains("kept: adopted"), "{problem}");

        let (status, taken_back) =
            fixture.ask(OWNER, "POST", "/v1/adopt", &format!("{{{server},\"undo\":true}}")).await;
        assert_eq!((status, &taken_back["pids"]), (200, &json!([pid(SERVER)])));
        fixture.looks().await;
        fixture.waits(2).await;
        let (status, planned) = fixture.ask(OWNER, "POST", "/v1/reap", &reap).await;
        assert_eq!((status, pids(&planned)), (200, vec![pid(SERVER)]), "{planned:#}");
    });
}

#[test]
fn end_takes_only_shown_processes() {
    on_one_thread(async {
        let mut fixture = ActionsFixture::with_an_agent().await;
        let (status, planned) = fixture.ask(OWNER, "POST", "/v1/end", "{\"session\":1,\"dry_run\":true}").await;
        assert_eq!((status, pids(&planned).last()), (200, Some(&pid(AGENT))), "the agent comes last: {planned:#}");
        let kinds: BTreeSet<&str> = planned["actions"][0]["targets"]
            .as_array()
            .unwrap()
            .iter()
            .map(|target| target["kind"].as_str().unwrap())
            .collect();
        assert!(kinds.contains("agent"));
        // The pid of one shown process has been reused.
        let shown = json!([{"pid": pid(AGENT), "start_time": 5}, {"pid": pid(SERVER), "start_time": 8}]);
        let body = json!({"session": 1, "expect": shown}).to_string();
        let (status, planned) = fixture.ask(OWNER, "POST", "/v1/end", &body).await;
        assert_eq!((status, pids(&planned)), (200, vec![pid(AGENT)]), "{planned:#}");
        let spared = planned["spared"].as_array().unwrap();
        assert_eq!(spared.len(), 2, "{planned:#}");
        assert!(spared.iter().all(|one| one["because"] == json!("it started after the confirmed list")), "{planned:#}");
    });
}

#[test]
fn unshown_child_is_spared() {
    on_one_thread(async {
        let mut fixture = ActionsFixture::with_orphans().await;
        let body = json!({"expect": [{"pid": pid(WRAPPER), "start_time": 6}]}).to_string();
        let (status, planned) = fixture.ask(OWNER, "POST", "/v1/reap", &body).await;
        assert_eq!((status, pids(&planned)), (200, vec![pid(WRAPPER)]), "{planned:#}");
        assert_eq!(planned["spared"][0]["pid"], json!(pid(SERVER)));
        let (status, planned) = fixture.ask(OWNER, "POST", "/v1/reap", "{\"expect\":[]}").await;
        assert_eq!((status, pids(&planned)), (200, Vec::new()), "{planned:#}");
    });
}

#[test]
fn missing_rights_are_reported() {
    on_one_thread(async {
        let mut fixture = ActionsFixture::with_orphans().await;
        let missing = Some("it is not root".to_owned());
        fixture.feed(Input::Permissions(Permissions { missing, ..Permissions::default() })).await;
        for (target, body) in [("/v1/reap", "{}"), ("/v1/end", "{\"session\":1}"), ("/v1/thaw", "{}")] {
            let (status, problem) = fixture.ask(0, "POST", target, body).await;
            assert_eq!(status, 501, "{problem}");
            assert!(problem["error"].as_str().unwrap().contains("it is not root"), "{problem}");
        }
    });
}

#[test]
fn long_lists_fit_floods_refused() {
    on_one_thread(async {
        let mut fixture = ActionsFixture::with_orphans().await;
        let shown: Vec<Value> = (0..10_000).map(|pid| json!({"pid": pid, "start_time": 1_000_000})).collect();
        let body = json!({"expect": shown, "dry_run": true}).to_string();
        assert!(body.len() > BODY);
        let (status, _) = fixture.ask(OWNER, "POST", "/v1/reap", &body).await;
        assert_eq!(status, 200);
        let (status, problem) = fixture.ask(OWNER, "POST", "/v1/reap", &" ".repeat(actions_api::BODY + 1)).await;
        assert_eq!(status, 413, "{problem}");
    });
}
