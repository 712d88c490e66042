//! The stream of a page: it says when something has changed, and whether the daemon answers.
//!
//! The page then reads its view again. Events are collected for a moment, so that a storm of forks costs one message.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, recv};
use serde::Serialize;
use watchdog_api::client::{ClientError, ControlClient, LineStream};
use watchdog_api::{Event, Status};

use crate::request::WebRequest;
use crate::response::WebResponse;

/// How long events are collected.
const COLLECT: Duration = Duration::from_millis(250);
/// How often the stream looks whether its page is still open.
const TICK: Duration = Duration::from_secs(1);
/// Pause between two messages, at most: proxies close silent connections.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Pause between two attempts to reach the daemon.
const RETRY: Duration = Duration::from_secs(1);
/// The daemon answers this, or the page says that it is down.
const DAEMON_TIMEOUT: Duration = Duration::from_secs(2);

/// Events since the last message.
#[derive(Debug, Default, Serialize)]
struct LiveChange {
    events: u64,
    /// Their kinds, each once.
    kinds: Vec<String>,
}

#[derive(Debug, Serialize)]
struct DaemonNotice<'a> {
    up: bool,
    /// The host belongs to a fleet.
    fleet: bool,
    why: &'a str,
}

/// Where a page has read to: a run of the daemon, and an event in it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Position {
    run: String,
    seq: u64,
}

impl Position {
    /// `RUN/SEQ`, as the browser sends it back.
    fn parse(text: &str) -> Option<Self> {
        let (run, seq) = text.rsplit_once('/')?;
        Some(Self { run: run.into(), seq: seq.parse().ok()? })
    }
}

/// Serves until the page is closed.
pub(crate) fn serve(stream: &mut TcpStream, request: &WebRequest, client: &ControlClient) {
    let resume = request.last_event_id.clone().or_else(|| request.parameter("after"));
    let position = resume.as_deref().and_then(Position::parse);
    let mut page = LivePage { stream, client: client.limited_to(DAEMON_TIMEOUT), position, last_sent: Instant::now() };
    // The page was closed.
    let _ = page.run();
}

struct LivePage<'a> {
    stream: &'a mut TcpStream,
    client: ControlClient,
    position: Option<Position>,
    /// The last message.
    last_sent: Instant,
}

impl LivePage<'_> {
    fn run(&mut self) -> io::Result<()> {
        WebResponse::new(200, "text/event-stream", "").start_stream(self.stream)?;
        self.send("retry: 1000\n\n")?;
        // What the page was sent: the daemon's answer, with the fleet if it is up.
        let mut sent = None;
        loop {
            match self.connect() {
                Ok((lines, fleet)) => {
                    if sent != Some(Some(fleet)) {
                        self.notice(&DaemonNotice { up: true, fleet, why: "" })?;
                    }
                    sent = Some(Some(fleet));
                    // Without its stream the daemon is down, or restarts: the next attempt shows which.
                    self.follow(lines)?;
                    self.pause()?;
                }
                Err(error) => {
                    if sent != Some(None) {
                        self.notice(&DaemonNotice { up: false, fleet: false, why: &error.to_string() })?;
                    }
                    sent = Some(None);
                    self.pause()?;
                }
            }
        }
    }

    /// Continues after the last event of this run, or begins with what happens now. Says too whether there is a fleet.
    fn connect(&mut self) -> Result<(LineStream, bool), ClientError> {
        let status = self.client.get::<Status>("/v1/status")?.document;
        let (run, fleet) = (status.started_at, status.fleet.is_some());
        let known = self.position.take().filter(|position| position.run == run);
        let after = known.as_ref().filter(|position| position.seq > 0);
        let after = after.map_or_else(String::new, |position| format!("&after={}", position.seq));
        self.position = Some(known.unwrap_or(Position { run, seq: 0 }));
        Ok((self.client.get_lines(&format!("/v1/events?follow=true{after}"))?, fleet))
    }

    /// Forwards events until the daemon ends its stream.
    fn follow(&mut self, mut lines: LineStream) -> io::Result<()> {
        let mut change = LiveChange::default();
        let mut due = None;
        loop {
            let now = Instant::now();
            match lines.next_before(Some(due.unwrap_or(now + TICK))) {
                Ok(Some(line)) => {
                    self.collect(&line, &mut change);
                    let end = *due.get_or_insert(now + COLLECT);
                    if now < end {
                        continue;
                    }
                }
                Ok(None) => {}
                Err(_) => return self.change(&change),
            }
            self.change(&change)?;
            (change, due) = (LiveChange::default(), None);
        }
    }

    fn collect(&mut self, line: &str, change: &mut LiveChange) {
        let Ok(event) = serde_json::from_str::<Event>(line) else { return };
        if let Some(position) = &mut self.position {
            position.seq = position.seq.max(event.seq);
        }
        change.events += 1;
        let kind = event.detail.kind();
        if !change.kinds.iter().any(|known| known == kind) {
            change.kinds.push(kind.to_owned());
        }
    }

    fn change(&mut self, change: &LiveChange) -> io::Result<()> {
        let id = self.position.as_ref().map_or_else(String::new, |at| format!("id: {}/{}\n", at.run, at.seq));
        match change.events {
            0 => self.check(),
            _ => self.send(&format!("{id}event: change\ndata: {}\n\n", serde_json::to_string(change)?)),
        }
    }

    fn notice(&mut self, notice: &DaemonNotice<'_>) -> io::Result<()> {
        let id = self.position.as_ref().map_or_else(String::new, |at| format!("id: {}/{}\n", at.run, at.seq));
        self.send(&format!("{id}event: daemon\ndata: {}\n\n", serde_json::to_string(notice)?))
    }

    /// Fails if the page has closed the connection.
    fn check(&mut self) -> io::Result<()> {
        match recv(&*self.stream, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(io::ErrorKind::ConnectionAborted.into()),
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if self.last_sent.elapsed() >= HEARTBEAT {
            self.send(": still here\n\n")?;
        }
        Ok(())
    }

    fn pause(&mut self) -> io::Result<()> {
        std::thread::sleep(RETRY);
        self.check()
    }

    fn send(&mut self, message: &str) -> io::Result<()> {
        self.last_sent = Instant::now();
        self.stream.write_all(message.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_position_has_run_and_number() {
        let expected = Position { run: "2026-01-02T03:04:05.1Z".into(), seq: 7 };
        assert_eq!(Position::parse("2026-01-02T03:04:05.1Z/7"), Some(expected));
        for wrong in ["", "7", "run/", "run/-1", "run/x"] {
            assert_eq!(Position::parse(wrong), None, "{wrong}");
        }
    }
}
