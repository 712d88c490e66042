//! `watchdogctl events`: what happened, one line each, and on request what happens next.

use std::time::Duration;

use serde_json::{Map, Value};

use super::client::Client;
use super::failure::Failure;
use super::output::Output;
use super::show::{Ink, Screen, clock, count, evidence_pairs, safe_json, short_command, size, visible};
use crate::api::{Event, Events};
use crate::signals;

pub(super) async fn run(client: &Client, since: Option<Duration>, output: &mut Output<'_>) -> Result<(), Failure> {
    let answer = client.get::<Events>(&path(since, false)).await?;
    output.show(&answer.text, |screen| match answer.document.events.as_slice() {
        [] => "no events: nothing that concerns this user happened in that time\n".into(),
        events => events.iter().map(|event| render(event, screen)).collect(),
    })
}

pub(super) async fn follow(client: &Client, since: Option<Duration>, output: &mut Output<'_>) -> Result<(), Failure> {
    let mut lines = client.follow(&path(since, true)).await?;
    loop {
        let line = lines.next().await?;
        if output.json {
            output.line(&safe_json(&line))?;
        } else {
            output.text(&render_line(&line, &output.screen))?;
        }
    }
}

fn path(since: Option<Duration>, follow: bool) -> String {
    let since = since.map(|since| format!("since={}s", since.as_secs()));
    let parameters: Vec<String> = since.into_iter().chain(follow.then(|| "follow=true".into())).collect();
    if parameters.is_empty() { "/v1/events".into() } else { format!("/v1/events?{}", parameters.join("&")) }
}

/// A line of the stream: an event, or a word about the stream itself.
fn render_line(line: &str, screen: &Screen) -> String {
    if let Ok(event) = serde_json::from_str::<Event>(line) {
        return render(&event, screen);
    }
    let missed = serde_json::from_str::<Map<String, Value>>(line)
        .ok()
        .filter(|members| members.get("type") == Some(&"gap".into()));
    let text = match missed.and_then(|members| members.get("missed")?.as_u64()) {
        Some(missed) => format!("{} missed: this reader was too slow", count(missed, "event was", "events were")),
        None => format!("not understood: {}", visible(line)),
    };
    format!("{}\n", screen.paint(Ink::Warn, text))
}

fn render(event: &Event, screen: &Screen) -> String {
    let at = clock(&event.at, (screen.zone)()).unwrap_or_else(|| visible(&event.at).into_owned());
    let kind = visible(&event.kind);
    let kind = match event.kind.as_str() {
        "oom" => screen.paint(Ink::Bad, format!("{kind:15}")),
        "finding" | "signal" | "reconciled" => screen.paint(Ink::Warn, format!("{kind:15}")),
        _ => format!("{kind:15}").into(),
    };
    let session = event.session.map_or_else(|| "-".into(), |id| format!("session {id}"));
    let pid = event.pid.map_or_else(|| "-".into(), |pid| pid.to_string());
    let detail = detail(event, screen);
    let line = format!("{}  {kind}  {session:11}  {pid:>7}  {detail}", screen.paint(Ink::Faint, at));
    format!("{}\n", line.trim_end())
}

fn detail(event: &Event, screen: &Screen) -> String {
    let members = &event.detail;
    let text = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default();
    let number = |name: &str| members.get(name).and_then(Value::as_u64);
    let told = match event.kind.as_str() {
        "session_started" => format!("profile {}", text("profile")),
        "fork" => number("parent_pid").map_or_else(String::new, |pid| format!("forked by {pid}")),
        "exec" => {
            let argv = members.get("argv").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let argv: Vec<String> = argv.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect();
            short_command(&argv, text("comm"))
        }
        "exit" => {
            let how = match (number("exit_code"), number("signal")) {
                (_, Some(signal)) => format!("killed by {}", signals::name(signal)),
                (Some(code), None) => format!("exit code {code}"),
                (None, None) => "seen to be gone".into(),
            };
            match number("peak_bytes") {
                Some(peak) if peak > 0 => format!("{how}, peak {}", size(peak)),
                _ => how,
            }
        }
        "signal" => {
            let sender = number("sender_pid").map_or_else(String::new, |pid| format!(" from {pid}"));
            let ignored = members.get("delivered") == Some(&Value::Bool(false));
            let outcome = if ignored { ", ignored or pending already" } else { "" };
            let signal = number("signal").map_or_else(|| "a signal".into(), signals::name);
            format!("{signal}{sender} ({}){outcome}", text("sender_comm"))
        }
        "death" => text("summary").to_owned(),
        "finding" => {
            let id = number("finding").map_or_else(String::new, |id| format!("#{id} "));
            format!("{id}{} {}: {}", text("kind"), text("change"), text("summary"))
        }
        _ => return evidence_pairs(members, screen),
    };
    visible(&told).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::show::testing::plain;
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn line(kind: &str, detail: Value) -> String {
        let mut event = json!({
            "seq": 1, "at": "2026-01-02T11:59:58.25Z", "type": kind, "pid": 41231, "start_time": 7, "session": 3,
        });
        event.as_object_mut().unwrap().extend(detail.as_object().unwrap().clone());
        render_line(&event.to_string(), &plain())
    }

    #[test]
    fn each_event_is_one_aligned_line() {
        let lines = [
            line("session_started", json!({"profile": "claude-code"})),
            line("fork", json!({"parent_pid": 41230, "parent_start_time": 1})),
            line("exec", json!({"comm": "node", "path": "/usr/bin/node", "argv": ["node", "/x/server.js", "--key=k"]})),
            line("exit", json!({"exit_code": 1, "signal": null, "peak_bytes": 83_886_080})),
            line("exit", json!({"exit_code": null, "signal": 9, "peak_bytes": 0})),
            line("exit", json!({"exit_code": null, "signal": null, "peak_bytes": 0})),
            line("signal", json!({"signal": 15, "sender_pid": 7, "sender_comm": "bash\n", "delivered": false})),
            line("oom", json!({"comm": "node"})),
            line("finding", json!({"finding": 4, "kind": "orphan", "change": "opened", "summary": "3 helpers"})),
            line("reconciled", json!({"lost": 17, "added": 2, "removed": 0})),
            line("reclaim", json!({"stalled_seconds": 0.0015})),
            line("memory_step", json!({"memory_bytes": 4_194_304})),
            line("session_ended", json!({})),
            line("of_a_newer_daemon", json!({"new\u{1b}": "thing\u{7}"})),
        ];
        insta::assert_snapshot!(lines.concat(), @r"
        2026-01-02 11:59:58.250  session_started  session 3      41231  profile claude-code
        2026-01-02 11:59:58.250  fork             session 3      41231  forked by 41230
        2026-01-02 11:59:58.250  exec             session 3      41231  node x/server.js
        2026-01-02 11:59:58.250  exit             session 3      41231  exit code 1, peak 80 MiB
        2026-01-02 11:59:58.250  exit             session 3      41231  killed by SIGKILL
        2026-01-02 11:59:58.250  exit             session 3      41231  seen to be gone
        2026-01-02 11:59:58.250  signal           session 3      41231  SIGTERM from 7 (bash\n), ignored or pending already
        2026-01-02 11:59:58.250  oom              session 3      41231  comm node
        2026-01-02 11:59:58.250  finding          session 3      41231  #4 orphan opened: 3 helpers
        2026-01-02 11:59:58.250  reconciled       session 3      41231  added 2, lost 17, removed 0
        2026-01-02 11:59:58.250  reclaim          session 3      41231  stalled 0.002s
        2026-01-02 11:59:58.250  memory_step      session 3      41231  memory 4.0 MiB
        2026-01-02 11:59:58.250  session_ended    session 3      41231
        2026-01-02 11:59:58.250  of_a_newer_daemon  session 3      41231  new\u{1b} thing\u{7}
        ");
    }

    #[test]
    fn what_concerns_no_process_says_so() {
        let event = json!({"seq": 1, "at": "soon\u{1b}", "type": "reconciled", "lost": 1});
        insta::assert_snapshot!(render_line(&event.to_string(), &plain()), @r"soon\u{1b}  reconciled       -                  -  lost 1");
    }

    #[test]
    fn a_gap_and_a_riddle_are_said_aloud() {
        insta::assert_snapshot!(render_line(r#"{"type":"gap","missed":7}"#, &plain()), @"7 events were missed: this reader was too slow");
        insta::assert_snapshot!(render_line("<\u{1b}html>", &plain()), @r"not understood: <\u{1b}html>");
    }

    #[rstest]
    #[case(None, false, "/v1/events")]
    #[case(Some(30), false, "/v1/events?since=30s")]
    #[case(None, true, "/v1/events?follow=true")]
    #[case(Some(300), true, "/v1/events?since=300s&follow=true")]
    fn the_span_is_asked_for_in_seconds(#[case] since: Option<u64>, #[case] follow: bool, #[case] asked: &str) {
        assert_eq!(path(since.map(Duration::from_secs), follow), asked);
    }
}
