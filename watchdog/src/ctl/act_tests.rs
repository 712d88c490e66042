use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use super::super::receipt::tests::{planned, receipt};
use super::super::show::testing::plain;
use super::*;
use crate::api::ActionState;

/// What a daemon was asked: the request line, and the body.
type Heard = Arc<Mutex<Vec<(String, Value)>>>;

/// A daemon that gives these answers, one after the other.
fn daemon(socket: &Path, answers: Vec<Value>) -> Heard {
    let listener = UnixListener::bind(socket).unwrap();
    let heard = Heard::default();
    let ear = Arc::clone(&heard);
    tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = String::new();
            while !complete(&request) {
                let mut part = [0; 4096];
                let read = stream.read(&mut part).await.unwrap();
                request.push_str(std::str::from_utf8(&part[..read]).unwrap());
            }
            let (head, body) = request.split_once("\r\n\r\n").unwrap();
            let line = head.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
            ear.lock().unwrap().push((line, serde_json::from_str(body).unwrap_or_default()));
            let (body, head) = (answer.to_string(), "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length:");
            stream.write_all(format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes()).await.unwrap();
        }
    });
    heard
}

fn complete(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let length = head.to_ascii_lowercase();
    let length = length.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

struct Told {
    result: Result<ExitCode, Failure>,
    text: String,
    heard: Vec<(String, Value)>,
}

/// Has the command run against such a daemon, with what a person types, if there is one.
async fn told(how: How, person: Option<&str>, json: bool, answers: Vec<Value>) -> Told {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("control.sock");
    let heard = daemon(&socket, answers);
    let mut text = Vec::new();
    let mut output = Output { json, screen: plain(), to: &mut text };
    let client = Client::new(socket);
    let order = Order::Reap(vec![Subject::Session(3)]);
    let mut typed = person.map(str::as_bytes);
    let person = typed.as_mut().map(|typed| typed as &mut dyn BufRead);
    let result = obey(&client, &order, how, person, &mut output).await;
    let heard = heard.lock().unwrap().clone();
    Told { result, text: String::from_utf8(text).unwrap(), heard }
}

fn value(document: impl serde::Serialize) -> Value {
    serde_json::to_value(document).unwrap()
}

/// What the daemon says when it has begun, and later.
fn begun() -> Planned {
    let running = Receipt { state: ActionState::Running, ..planned().actions.remove(0) };
    Planned { dry_run: false, actions: vec![Receipt { id: 7, ..running }], spared: Vec::new(), ..planned() }
}

fn over(receipt: Receipt) -> Value {
    value(Actions { actions: vec![receipt] })
}

const YES: How = How { yes: true, dry_run: false, no_wait: false };

#[tokio::test]
async fn whom_a_person_was_shown_is_whom_the_daemon_may_end() {
    let mut plan = planned();
    plan.spared.clear();
    let answers = vec![value(plan), value(begun()), over(begun().actions.remove(0)), over(receipt())];
    let told = told(How::default(), Some("y\n"), false, answers).await;
    assert_eq!(told.result.unwrap(), ExitCode::SUCCESS);
    let (line, body) = &told.heard[0];
    assert_eq!((line.as_str(), &body["dry_run"]), ("POST /v1/reap", &Value::Bool(true)));
    let (line, body) = &told.heard[1];
    assert_eq!((line.as_str(), &body["dry_run"]), ("POST /v1/reap", &Value::Bool(false)));
    assert_eq!(body["subjects"], serde_json::json!([{"session": 3}]));
    let shown = serde_json::json!([{"pid": 41241, "start_time": 9}, {"pid": 41240, "start_time": 8}]);
    assert_eq!(body["expect"], shown);
    assert_eq!(told.heard[2].0, "GET /v1/actions?id=7");
    assert_eq!(told.heard.len(), 4, "it waits until it is over");
    let question = told.text.find("End these 2 processes (84 MiB)? [y/N] ").expect(&told.text);
    assert!(told.text.find("41241").unwrap() < question, "{}", told.text);
    assert!(told.text.ends_with("done: 2 processes ended after 10s, 84 MiB freed\n"), "{}", told.text);
}

#[tokio::test]
async fn without_consent_nothing_is_begun() {
    for typed in ["n\n", "\n", "", "yess\n"] {
        let told = told(How::default(), Some(typed), false, vec![value(planned())]).await;
        assert_eq!(told.result.unwrap(), ExitCode::from(1));
        assert_eq!(told.heard.len(), 1, "{typed:?}");
        assert!(told.text.ends_with("nothing was done\n"), "{}", told.text);
    }
}

#[tokio::test]
async fn where_nobody_can_be_asked_and_nothing_was_said_the_command_line_is_wrong() {
    let told = told(How::default(), None, false, Vec::new()).await;
    let failure = told.result.unwrap_err();
    assert_eq!((failure.code(), told.heard.len()), (2, 0));
    assert!(failure.message().contains("--yes"), "{failure}");
}

#[tokio::test]
async fn a_dry_run_asks_nobody_and_begins_nothing() {
    let how = How { dry_run: true, yes: true, ..How::default() };
    let told = told(how, Some("y\n"), true, vec![value(planned())]).await;
    assert_eq!(told.result.unwrap(), ExitCode::SUCCESS);
    assert_eq!(told.heard.len(), 1);
    assert_eq!(told.heard[0].1["dry_run"], Value::Bool(true));
    assert_eq!(serde_json::from_str::<Value>(&told.text).unwrap(), value(planned()));
}

#[tokio::test]
async fn with_json_the_only_document_holds_the_receipts() {
    let told = told(YES, None, true, vec![value(begun()), over(receipt())]).await;
    assert_eq!(told.result.unwrap(), ExitCode::SUCCESS);
    assert!(told.heard[0].1.get("expect").is_none(), "nobody was shown anything");
    let planned: Planned = serde_json::from_str(&told.text).unwrap();
    assert_eq!(planned.actions, [receipt()]);
}

#[tokio::test]
async fn nothing_to_reap_is_well_and_nobody_but_those_who_are_left_alone_is_not() {
    let nothing = Planned::default();
    let told_nothing = told(YES, None, false, vec![value(&nothing)]).await;
    assert_eq!(told_nothing.result.unwrap(), ExitCode::SUCCESS);
    assert_eq!(told_nothing.text, "nothing to reap: nothing was left behind\n");
    let spared = Planned { actions: Vec::new(), ..planned() };
    let told_spared = told(YES, None, false, vec![value(&spared)]).await;
    assert_eq!(told_spared.result.unwrap(), ExitCode::from(1));
    assert!(told_spared.text.contains("it is meant to stay: a tmux server"), "{}", told_spared.text);
    // One who was left alone only after a closer look.
    let late = Receipt { spared: planned().spared, ..receipt() };
    let told_late = told(YES, None, false, vec![value(begun()), over(late)]).await;
    assert_eq!(told_late.result.unwrap(), ExitCode::SUCCESS, "all others are gone");
    assert!(told_late.text.contains("left alone\n"), "{}", told_late.text);
    let called_off = Receipt { state: ActionState::CalledOff, targets: Vec::new(), ..receipt() };
    let told_called_off = told(YES, None, false, vec![value(begun()), over(called_off)]).await;
    assert_eq!(told_called_off.result.unwrap(), ExitCode::from(1));
}

#[tokio::test]
async fn who_is_still_there_makes_it_a_failure() {
    let mut incomplete = receipt();
    incomplete.state = ActionState::Incomplete;
    incomplete.targets[0].died_at = None;
    let told = told(YES, None, false, vec![value(begun()), over(incomplete)]).await;
    assert_eq!(told.result.unwrap(), ExitCode::from(1));
    assert!(told.text.contains("still there"), "{}", told.text);
}

#[tokio::test]
async fn whoever_does_not_wait_is_told_where_to_look() {
    let how = How { no_wait: true, ..YES };
    let told = told(how, None, false, vec![value(begun())]).await;
    assert_eq!(told.result.unwrap(), ExitCode::SUCCESS);
    assert!(
        told.text.ends_with("action 7 is under way: `watchdogctl actions 7` tells what comes of it\n"),
        "{}",
        told.text
    );
}
