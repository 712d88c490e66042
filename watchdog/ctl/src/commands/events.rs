use std::time::Duration;

use crate::error::CtlError;
use crate::output::CommandOutput;
use crate::render::{Style, Terminal, count, escape, evidence_pairs, safe_json, short_command, size};
use watchdog_api::client::ControlClient;
use watchdog_api::{DeniedAttempt, Event, EventDetail, Events};
use watchdog_types::signals;
use watchdog_types::units::seconds;

pub(crate) fn run(
    client: &ControlClient,
    since: Option<Duration>,
    output: &mut CommandOutput<'_>,
) -> Result<(), CtlError> {
    let reply = client.get::<Events>(&path(since, false))?;
    output.show(&reply.text, |terminal| {
        let mut events = reply.document.events;
        // The kernel reports what happens on several processors not quite in order. Times of one format sort as text.
        events.sort_by(|one, other| one.at.cmp(&other.at));
        match events.as_slice() {
            [] => "no events in this period\n".into(),
            events => events.iter().map(|event| render(event, terminal)).collect(),
        }
    })
}

pub(crate) fn follow(
    client: &ControlClient,
    since: Option<Duration>,
    output: &mut CommandOutput<'_>,
) -> Result<(), CtlError> {
    let mut lines = client.get_lines(&path(since, true))?;
    loop {
        let line = lines.next_line()?;
        if output.json {
            output.line(&safe_json(&line))?;
        } else {
            output.text(&render_line(&line, &output.terminal))?;
        }
    }
}

fn path(since: Option<Duration>, follow: bool) -> String {
    let since = since.map(|since| format!("since={}s", since.as_secs()));
    let parameters: Vec<String> = since.into_iter().chain(follow.then(|| "follow=true".into())).collect();
    if parameters.is_empty() { "/v1/events".into() } else { format!("/v1/events?{}", parameters.join("&")) }
}

/// A line of the stream: an event, or a gap.
fn render_line(line: &str, terminal: &Terminal) -> String {
    match serde_json::from_str::<Event>(line) {
        Ok(Event { detail: EventDetail::Gap { missed }, .. }) => {
            let text = format!("{} missed: this client reads too slowly", count(missed, "event", "events"));
            format!("{}\n", terminal.paint(Style::Warn, text))
        }
        Ok(event) => render(&event, terminal),
        Err(_) => format!("{}\n", terminal.paint(Style::Warn, format!("unknown event: {}", escape(line)))),
    }
}

fn render(event: &Event, terminal: &Terminal) -> String {
    let at = terminal.local_time(&event.at);
    let kind = format!("{:15}", escape(event.detail.kind()));
    let kind = match event.detail {
        EventDetail::Oom { .. } => terminal.paint(Style::Bad, kind),
        EventDetail::Finding { .. } | EventDetail::Signal { .. } | EventDetail::Reconciled { .. } => {
            terminal.paint(Style::Warn, kind)
        }
        _ => kind.into(),
    };
    let session = event.session.map_or_else(|| "-".into(), |id| format!("session {id}"));
    let pid = event.pid.map_or_else(|| "-".into(), |pid| pid.to_string());
    let detail = match &event.detail {
        EventDetail::Other(other) => evidence_pairs(&other.members, terminal),
        known => escape(&detail(known)).into_owned(),
    };
    let line = format!("{}  {kind}  {session:11}  {pid:>7}  {detail}", terminal.paint(Style::Faint, at));
    terminal.fit(&format!("{}\n", line.trim_end()))
}

fn detail(detail: &EventDetail) -> String {
    match detail {
        EventDetail::SessionStarted { profile } => format!("profile {profile}"),
        EventDetail::Fork { parent_pid, .. } => {
            parent_pid.map_or_else(String::new, |parent| format!("forked by {parent}"))
        }
        EventDetail::Exec { argv, comm, .. } => short_command(argv, comm),
        EventDetail::Exit { exit_code, signal, peak_bytes } => {
            let how = match (exit_code, signal) {
                (_, Some(signal)) => format!("killed by {}", signals::name((*signal).into())),
                (Some(code), None) => format!("exit code {code}"),
                (None, None) => "exit not observed".into(),
            };
            if *peak_bytes > 0 { format!("{how}, peak {}", size(*peak_bytes)) } else { how }
        }
        EventDetail::Signal { signal, sender_pid, sender_comm, delivered, .. } => {
            let outcome = if *delivered { "" } else { ", ignored or already pending" };
            format!("{} from {sender_pid} ({sender_comm}){outcome}", signals::name((*signal).into()))
        }
        EventDetail::Oom { comm } => format!("comm {comm}"),
        EventDetail::Death { summary, .. } => summary.clone(),
        EventDetail::Finding { finding, kind, change, summary } => format!("#{finding} {kind} {change}: {summary}"),
        EventDetail::Action { action, kind, change, summary } => {
            format!("#{action} {} {change}: {summary}", kind.name())
        }
        EventDetail::ActionsHeldBack { detail } => detail.clone(),
        EventDetail::LaunchGranted { profile, waited_ms } => {
            format!("profile {profile}, waited {}", seconds(*waited_ms as f64 / 1e3))
        }
        EventDetail::Breaker { open, detail } => format!("{}: {detail}", if *open { "open" } else { "closed" }),
        EventDetail::PagedOut { run, summary } => format!("#{run}: {summary}"),
        EventDetail::Reconciled { lost, added, removed } => format!("added {added}, lost {lost}, removed {removed}"),
        EventDetail::Reclaim { stalled_seconds } => format!("stalled {}", seconds(*stalled_seconds)),
        EventDetail::Denied { comm, attempt: DeniedAttempt::Fork { live, bound, .. } } => {
            format!("fork of {comm} failed: {live} of {bound} processes in the session")
        }
        EventDetail::Denied { attempt: DeniedAttempt::Exec { path, killed, .. }, .. } => {
            format!("{path} {}", if *killed { "was killed" } else { "was not executed" })
        }
        EventDetail::MemoryStep { memory_bytes } => format!("memory {}", size(*memory_bytes)),
        EventDetail::SessionEnded | EventDetail::Gap { .. } | EventDetail::Other(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::testing::plain;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn line(kind: &str, detail: Value) -> String {
        let mut event = json!({
            "seq": 1, "at": "2026-01-02T11:59:58.25Z", "type": kind, "pid": 41231, "start_time": 7, "session": 3,
        });
        event.as_object_mut().unwrap().extend(detail.as_object().unwrap().clone());
        render_line(&event.to_string(), &plain())
    }

    #[test]
    fn event_is_one_aligned_line() {
        let lines = [
            line("session_started", json!({"profile": "claude-code"})),
            line("fork", json!({"parent_pid": 41230, "parent_start_time": 1})),
            line(
                "exec",
                json!({"comm": "node", "path": "/usr/bin/node", "argv": ["node", "/x/server.js", "--key=k"], "argv_truncated": false}),
            ),
            line("exit", json!({"exit_code": 1, "signal": null, "peak_bytes": 83_886_080})),
            line("exit", json!({"exit_code": null, "signal": 9, "peak_bytes": 0})),
            line("exit", json!({"exit_code": null, "signal": null, "peak_bytes": 0})),
            line(
                "signal",
                json!({
                    "signal": 15, "sender_pid": 7, "sender_start_time": 1, "sender_comm": "bash\n", "sender_uid": 0,
                    "delivered": false,
                }),
            ),
            line("oom", json!({"comm": "node"})),
            line("finding", json!({"finding": 4, "kind": "orphan", "change": "opened", "summary": "3 helpers"})),
            line("reconciled", json!({"lost": 17, "added": 2, "removed": 0})),
            line("reclaim", json!({"stalled_seconds": 0.0015})),
            line("memory_step", json!({"memory_bytes": 4_194_304})),
            line("death", json!({"cause": "oom", "summary": "killed by the OOM killer"})),
            line("action", json!({"action": 2, "kind": "terminate", "change": "begun", "summary": "orphans"})),
            line("actions_held_back", json!({"detail": "too many"})),
            line("launch_granted", json!({"profile": "codex", "waited_ms": 1_500})),
            line("breaker", json!({"open": true, "detail": "memory is short"})),
            line("paged_out", json!({"run": 1, "summary": "80 MiB of session 3"})),
            line(
                "denied",
                json!({
                    "comm": "node", "attempt": "fork", "root_pid": 7, "root_start_time": 1, "live": 9, "bound": 9,
                    "refused": 1,
                }),
            ),
            line(
                "denied",
                json!({"comm": "sh", "attempt": "exec", "ppid": 7, "path": "/usr/bin/codex", "killed": false}),
            ),
            line("session_ended", json!({})),
            line("of_a_newer_daemon", json!({"new\u{1b}": "thing\u{7}"})),
        ];
        insta::assert_snapshot!(lines.concat(), @r"
        2026-01-02 11:59:58.250  session_started  session 3      41231  profile claude-code
        2026-01-02 11:59:58.250  fork             session 3      41231  forked by 41230
        2026-01-02 11:59:58.250  exec             session 3      41231  node x/server.js
        2026-01-02 11:59:58.250  exit             session 3      41231  exit code 1, peak 80 MiB
        2026-01-02 11:59:58.250  exit             session 3      41231  killed by SIGKILL
        2026-01-02 11:59:58.250  exit             session 3      41231  exit not observed
        2026-01-02 11:59:58.250  signal           session 3      41231  SIGTERM from 7 (bash\n), ignored or already pending
        2026-01-02 11:59:58.250  oom              session 3      41231  comm node
        2026-01-02 11:59:58.250  finding          session 3      41231  #4 orphan opened: 3 helpers
        2026-01-02 11:59:58.250  reconciled       session 3      41231  added 2, lost 17, removed 0
        2026-01-02 11:59:58.250  reclaim          session 3      41231  stalled 0.002s
        2026-01-02 11:59:58.250  memory_step      session 3      41231  memory 4.0 MiB
        2026-01-02 11:59:58.250  death            session 3      41231  killed by the OOM killer
        2026-01-02 11:59:58.250  action           session 3      41231  #2 terminate begun: orphans
        2026-01-02 11:59:58.250  actions_held_back  session 3      41231  too many
        2026-01-02 11:59:58.250  launch_granted   session 3      41231  profile codex, waited 1.5s
        2026-01-02 11:59:58.250  breaker          session 3      41231  open: memory is short
        2026-01-02 11:59:58.250  paged_out        session 3      41231  #1: 80 MiB of session 3
        2026-01-02 11:59:58.250  denied           session 3      41231  fork of node failed: 9 of 9 processes in the session
        2026-01-02 11:59:58.250  denied           session 3      41231  /usr/bin/codex was not executed
        2026-01-02 11:59:58.250  session_ended    session 3      41231
        2026-01-02 11:59:58.250  of_a_newer_daemon  session 3      41231  new\u{1b} thing\u{7}
        ");
    }

    #[test]
    fn missing_process_is_a_dash() {
        let event = json!({"seq": 1, "at": "soon\u{1b}", "type": "reconciled", "lost": 1, "added": 0, "removed": 0});
        insta::assert_snapshot!(render_line(&event.to_string(), &plain()), @r"soon\u{1b}  reconciled       -                  -  added 0, lost 1, removed 0");
    }

    #[test]
    fn gap_and_unknown_event_are_shown() {
        insta::assert_snapshot!(line("gap", json!({"missed": 7})), @"7 events missed: this client reads too slowly");
        insta::assert_snapshot!(render_line("<\u{1b}html>", &plain()), @r"unknown event: <\u{1b}html>");
    }

    #[rstest]
    #[case(None, false, "/v1/events")]
    #[case(Some(30), false, "/v1/events?since=30s")]
    #[case(None, true, "/v1/events?follow=true")]
    #[case(Some(300), true, "/v1/events?since=300s&follow=true")]
    fn period_is_sent_in_seconds(#[case] since: Option<u64>, #[case] follow: bool, #[case] asked: &str) {
        assert_eq!(path(since.map(Duration::from_secs), follow), asked);
    }
}
