use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::*;
use crate::render::testing::{plain, planned, receipt};
use watchdog_api::ActionState;
use watchdog_api::{Actions, Subject};

/// Requests that a daemon received: the request line, and the body.
type RequestLog = Arc<Mutex<Vec<(String, Value)>>>;

/// A daemon that gives these responses, one after the other.
fn daemon(socket: &Path, responses: Vec<Value>) -> RequestLog {
    let listener = UnixListener::bind(socket).unwrap();
    let log = RequestLog::default();
    let requests = Arc::clone(&log);
    std::thread::spawn(move || {
        for response in responses {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = String::new();
            while !is_complete(&request) {
                let mut part = [0; 4096];
                let read = stream.read(&mut part).unwrap();
                request.push_str(std::str::from_utf8(&part[..read]).unwrap());
            }
            let (head, body) = request.split_once("\r\n\r\n").unwrap();
            let line = head.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
            requests.lock().unwrap().push((line, serde_json::from_str(body).unwrap_or_default()));
            let (body, head) = (response.to_string(), "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length:");
            stream.write_all(format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
        }
    });
    log
}

fn is_complete(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let length = head.to_ascii_lowercase();
    let length = length.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

struct ConfirmRun {
    result: Result<ExitCode, CtlError>,
    text: String,
    requests: Vec<(String, Value)>,
}

/// Runs `reap session:3` against such a daemon. `typed` is the user's input, if there is a user.
fn confirm(flags: ActionFlags, typed: Option<&str>, json: bool, responses: Vec<Value>) -> ConfirmRun {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("control.sock");
    let log = daemon(&socket, responses);
    let mut text = Vec::new();
    let mut output = CommandOutput { json, terminal: plain(), to: &mut text };
    let client = ControlClient::new(socket);
    let action = ConfirmedAction::Reap(vec![Subject::Session(3)]);
    let mut typed = typed.map(str::as_bytes);
    let input = typed.as_mut().map(|typed| typed as &mut dyn BufRead);
    let result = run_with(&client, &action, flags, input, &mut output);
    let requests = log.lock().unwrap().clone();
    ConfirmRun { result, text: String::from_utf8(text).unwrap(), requests }
}

fn value(document: impl serde::Serialize) -> Value {
    serde_json::to_value(document).unwrap()
}

/// The daemon's response when the action has begun.
fn begun() -> Planned {
    let running = Receipt { state: ActionState::Running, ..planned().actions.remove(0) };
    Planned { dry_run: false, actions: vec![Receipt { id: 7, ..running }], spared: Vec::new(), ..planned() }
}

fn over(receipt: Receipt) -> Value {
    value(Actions { actions: vec![receipt] })
}

const YES: ActionFlags = ActionFlags { yes: true, dry_run: false, no_wait: false };

#[test]
fn daemon_receives_the_shown_targets() {
    let mut plan = planned();
    plan.spared.clear();
    let responses = vec![value(plan), value(begun()), over(begun().actions.remove(0)), over(receipt())];
    let run = confirm(ActionFlags::default(), Some("y\n"), false, responses);
    assert_eq!(run.result.unwrap(), ExitCode::SUCCESS);
    let (line, body) = &run.requests[0];
    assert_eq!((line.as_str(), &body["dry_run"]), ("POST /v1/reap", &Value::Bool(true)));
    let (line, body) = &run.requests[1];
    assert_eq!((line.as_str(), &body["dry_run"]), ("POST /v1/reap", &Value::Bool(false)));
    assert_eq!(body["subjects"], serde_json::json!([{"session": 3}]));
    let shown = serde_json::json!([{"pid": 41241, "start_time": 9}, {"pid": 41240, "start_time": 8}]);
    assert_eq!(body["expect"], shown);
    assert_eq!(run.requests[2].0, "GET /v1/actions?id=7");
    assert_eq!(run.requests.len(), 4, "it waits until the action is over");
    let question = run.text.find("Terminate 2 processes (84 MiB)? [y/N] ").expect(&run.text);
    assert!(run.text.find("41241").unwrap() < question, "{}", run.text);
    assert!(run.text.ends_with("done: 2 processes ended after 10s, 84 MiB freed\n"), "{}", run.text);
}

#[test]
fn nothing_begins_without_consent() {
    for typed in ["n\n", "\n", "", "yess\n"] {
        let run = confirm(ActionFlags::default(), Some(typed), false, vec![value(planned())]);
        assert_eq!(run.result.unwrap(), ExitCode::from(1));
        assert_eq!(run.requests.len(), 1, "{typed:?}");
        assert!(run.text.ends_with("cancelled; nothing was changed\n"), "{}", run.text);
    }
}

#[test]
fn non_terminal_requires_a_flag() {
    let run = confirm(ActionFlags::default(), None, false, vec![value(planned())]);
    let error = run.result.unwrap_err();
    assert_eq!((error.code(), run.requests.len()), (2, 1));
    assert_eq!(run.requests[0].1["dry_run"], Value::Bool(true));
    assert!(error.message().contains("--yes"), "{error}");
}

#[test]
fn dry_run_only_previews() {
    let flags = ActionFlags { dry_run: true, yes: true, ..ActionFlags::default() };
    let run = confirm(flags, Some("y\n"), true, vec![value(planned())]);
    assert_eq!(run.result.unwrap(), ExitCode::SUCCESS);
    assert_eq!(run.requests.len(), 1);
    assert_eq!(run.requests[0].1["dry_run"], Value::Bool(true));
    assert_eq!(serde_json::from_str::<Value>(&run.text).unwrap(), value(planned()));
}

#[test]
fn json_document_holds_the_receipts() {
    let run = confirm(YES, None, true, vec![value(begun()), over(receipt())]);
    assert_eq!(run.result.unwrap(), ExitCode::SUCCESS);
    assert!(run.requests[0].1.get("expect").is_none(), "no targets were shown");
    let planned: Planned = serde_json::from_str(&run.text).unwrap();
    assert_eq!(planned.actions, [receipt()]);
}

#[test]
fn sparing_all_targets_is_a_failure() {
    let run = confirm(YES, None, false, vec![value(Planned::default())]);
    assert_eq!(run.result.unwrap(), ExitCode::SUCCESS);
    assert_eq!(run.text, "nothing to reap: no orphans\n");
    let spared = Planned { actions: Vec::new(), ..planned() };
    let run = confirm(YES, None, false, vec![value(&spared)]);
    assert_eq!(run.result.unwrap(), ExitCode::from(1));
    assert!(run.text.contains("kept: a tmux server"), "{}", run.text);
    // Spared after a later check, beside targets that exited.
    let late = Receipt { spared: planned().spared, ..receipt() };
    let run = confirm(YES, None, false, vec![value(begun()), over(late)]);
    assert_eq!(run.result.unwrap(), ExitCode::SUCCESS);
    assert!(run.text.contains("spared\n"), "{}", run.text);
    let cancelled = Receipt { state: ActionState::CalledOff, targets: Vec::new(), ..receipt() };
    let run = confirm(YES, None, false, vec![value(begun()), over(cancelled)]);
    assert_eq!(run.result.unwrap(), ExitCode::from(1));
}

#[test]
fn surviving_target_is_a_failure() {
    let mut incomplete = receipt();
    incomplete.state = ActionState::Incomplete;
    incomplete.targets[0].died_at = None;
    let run = confirm(YES, None, false, vec![value(begun()), over(incomplete)]);
    assert_eq!(run.result.unwrap(), ExitCode::from(1));
    assert!(run.text.contains("still running"), "{}", run.text);
}

#[test]
fn no_wait_names_follow_up() {
    let flags = ActionFlags { no_wait: true, ..YES };
    let run = confirm(flags, None, false, vec![value(begun())]);
    assert_eq!(run.result.unwrap(), ExitCode::SUCCESS);
    assert!(run.text.ends_with("action 7 is running; see `watchdogctl actions 7` for its result\n"), "{}", run.text);
}
