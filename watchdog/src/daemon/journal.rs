//! The journal: the last events in bounded memory, and those who follow it.
//!
//! An event is kept as the line of JSON that it is shown as: about half the size of its parts, and rendered once however
//! many look. Lines share chunks of memory: ten thousand small allocations between short-lived ones would leave the heap
//! full of holes. Whoever may see it is settled when it is written, since later the process may be forgotten.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::api::Event;
use crate::engine::effect::{Happening, JournalEntry};
use crate::engine::id::{BootTime, Uid};
use crate::engine::input::{Attempt, ExitStatus, Image};
use crate::engine::view::Viewer;

/// Lines that wait for one follower at most: a follower that is slower than this loses events, not the daemon memory.
const FOLLOWER_LINES: usize = 256;
/// Most bytes of argv that an event keeps. What `tree` shows is not cut by this.
const ARGV_BYTES: usize = 512;
/// Most bytes of any other string of an event.
const TEXT_BYTES: usize = 512;

/// Bytes of a chunk of lines, which is freed with the last of them.
const CHUNK: usize = 64 * 1024;
/// A line is begun in a chunk that has at least this much room left; few lines are longer.
const LINE: usize = 1024;

/// Who may see an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    /// Everybody: it concerns no process.
    Everyone,
    /// This user, and root.
    Owner(Uid),
    /// Root only: whose process it was is not known.
    Root,
}

#[derive(Debug)]
struct Record {
    at: BootTime,
    audience: Audience,
    line: Bytes,
}

#[derive(Debug)]
struct Follower {
    viewer: Viewer,
    lines: mpsc::Sender<Bytes>,
    gap: Option<Gap>,
}

/// What a follower was too slow for, and has not been told yet.
#[derive(Debug)]
struct Gap {
    first_seq: u64,
    since: String,
    missed: u64,
}

/// What a follower gets: the events that the journal still has, then each as it happens.
#[derive(Debug)]
pub(super) struct Feed {
    /// What the journal had; the oldest first.
    pub(super) backlog: VecDeque<Bytes>,
    /// What happens from then on.
    pub(super) live: mpsc::Receiver<Bytes>,
}

/// The last events. Lines are JSON without a line feed.
#[derive(Debug)]
pub(super) struct Journal {
    capacity: usize,
    next_seq: u64,
    records: VecDeque<Record>,
    /// Room for the next lines.
    chunk: BytesMut,
    followers: Vec<Follower>,
    dropped: u64,
}

impl Journal {
    /// An empty journal that will hold `capacity` events.
    pub(super) fn new(capacity: usize) -> Self {
        // Room for the event that makes the oldest one leave too: grown step by step, it would take up to twice as much.
        let (records, chunk) = (VecDeque::with_capacity(capacity + 1), BytesMut::new());
        Self { capacity, next_seq: 1, records, chunk, followers: Vec::new(), dropped: 0 }
    }

    /// Holds `capacity` events from now on.
    pub(super) fn resize(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.shed();
        self.records.shrink_to(capacity + 1);
        self.records.reserve_exact(capacity + 1 - self.records.len());
    }

    /// Writes an event that happened at the wall-clock time `moment`.
    pub(super) fn write(&mut self, entry: &JournalEntry, moment: String, audience: Audience) {
        let seq = self.next_seq;
        self.next_seq += 1;
        let line = self.render(seq, &moment, entry);
        for follower in &mut self.followers {
            if audience.includes(follower.viewer) && !follower.offer(&line) {
                self.dropped += 1;
                let gap = follower.gap.get_or_insert_with(|| Gap { first_seq: seq, since: moment.clone(), missed: 0 });
                gap.missed += 1;
            }
        }
        self.followers.retain(|follower| !follower.lines.is_closed());
        self.records.push_back(Record { at: entry.at, audience, line });
        self.shed();
    }

    /// The events since a moment (or all that are left) that the viewer may see; the oldest first.
    pub(super) fn read(&self, viewer: Viewer, since: Option<BootTime>) -> VecDeque<Bytes> {
        self.records
            .iter()
            .filter(|record| since.is_none_or(|since| record.at >= since) && record.audience.includes(viewer))
            .map(|record| record.line.clone())
            .collect()
    }

    /// Adds a follower: with the events since a moment, or only those to come.
    pub(super) fn follow(&mut self, viewer: Viewer, since: Option<BootTime>) -> Feed {
        let backlog = since.map(|since| self.read(viewer, Some(since))).unwrap_or_default();
        let (lines, live) = mpsc::channel(FOLLOWER_LINES);
        self.followers.push(Follower { viewer, lines, gap: None });
        Feed { backlog, live }
    }

    /// Lets go of followers that left, and tells those that have room again what they missed.
    pub(super) fn tend(&mut self) {
        self.followers.retain_mut(|follower| {
            follower.tell_gap();
            !follower.lines.is_closed()
        });
    }

    /// Lines that followers were too slow for.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    fn render(&mut self, seq: u64, moment: &str, entry: &JournalEntry) -> Bytes {
        let (kind, detail) = describe(&entry.what);
        let event = Event {
            seq,
            at: moment.to_owned(),
            kind: kind.to_owned(),
            pid: entry.process.map(|process| process.pid.0),
            start_time: entry.process.map(|process| process.start_time.0),
            session: entry.session.map(|session| session.0),
            detail,
        };
        if self.chunk.capacity() < LINE {
            self.chunk = BytesMut::with_capacity(CHUNK);
        }
        line(&event, &mut self.chunk)
    }

    fn shed(&mut self) {
        let excess = self.records.len().saturating_sub(self.capacity);
        self.records.drain(..excess);
    }
}

impl Follower {
    /// Hands a line over; false when there is no room for it.
    fn offer(&mut self, line: &Bytes) -> bool {
        self.tell_gap() && self.lines.try_send(line.clone()).is_ok()
    }

    /// Says what was missed, if anything; false when there is no room even for that.
    fn tell_gap(&mut self) -> bool {
        let Some(gap) = &self.gap else { return true };
        let event = Event {
            seq: gap.first_seq,
            at: gap.since.clone(),
            kind: "gap".to_owned(),
            pid: None,
            start_time: None,
            session: None,
            detail: members(json!({ "missed": gap.missed })),
        };
        let told = self.lines.try_send(line(&event, &mut BytesMut::new())).is_ok();
        if told {
            self.gap = None;
        }
        told
    }
}

impl Audience {
    fn includes(self, viewer: Viewer) -> bool {
        match (viewer, self) {
            (Viewer::Root, _) | (_, Self::Everyone) => true,
            (Viewer::User(uid), Self::Owner(owner)) => uid == owner,
            (Viewer::User(_), Self::Root) => false,
        }
    }
}

/// Appends a line to a chunk, which keeps what room is left.
fn line(event: &Event, chunk: &mut BytesMut) -> Bytes {
    // Strings, numbers and maps with string keys: nothing here can fail to be JSON.
    let _ = serde_json::to_writer(chunk.writer(), event);
    chunk.split().freeze()
}

/// An event's type, and the members that only this type has.
fn describe(what: &Happening) -> (&'static str, Map<String, Value>) {
    let (kind, detail) = match what {
        Happening::SessionStarted { profile } => ("session_started", json!({ "profile": profile })),
        Happening::SessionEnded => ("session_ended", json!({})),
        Happening::Fork { parent } => (
            "fork",
            json!({
                "parent_pid": parent.map(|parent| parent.pid.0),
                "parent_start_time": parent.map(|parent| parent.start_time.0),
            }),
        ),
        Happening::Exec { comm, image } => {
            let (argv, cut) = bounded_argv(image);
            let path = bounded(&image.path, TEXT_BYTES);
            ("exec", json!({ "comm": comm, "path": path, "argv": argv, "argv_truncated": cut }))
        }
        Happening::Exit { status, peak_bytes } => {
            let (code, signal) = match status {
                Some(ExitStatus::Code(code)) => (Some(code), None),
                Some(ExitStatus::Signal(signal)) => (None, Some(signal)),
                None => (None, None),
            };
            ("exit", json!({ "exit_code": code, "signal": signal, "peak_bytes": peak_bytes }))
        }
        Happening::Signal { signal, sender, sender_comm, sender_uid, delivered } => (
            "signal",
            json!({
                "signal": signal,
                "sender_pid": sender.pid.0,
                "sender_start_time": sender.start_time.0,
                "sender_comm": sender_comm,
                "sender_uid": sender_uid,
                "delivered": delivered,
            }),
        ),
        Happening::Oom { comm } => ("oom", json!({ "comm": comm })),
        Happening::Died { cause, summary } => {
            ("death", json!({ "cause": cause, "summary": bounded(summary, TEXT_BYTES) }))
        }
        Happening::Finding { finding, kind, change, summary } => (
            "finding",
            json!({ "finding": finding.0, "kind": kind, "change": change, "summary": bounded(summary, TEXT_BYTES) }),
        ),
        Happening::Action { action, kind, change, summary } => (
            "action",
            json!({
                "action": action.0,
                "kind": kind,
                "change": change,
                "summary": bounded(summary, TEXT_BYTES),
            }),
        ),
        Happening::ActionsHeldBack { detail } => ("actions_held_back", json!({ "detail": detail })),
        Happening::LaunchGranted { profile, waited_ms } => {
            ("launch_granted", json!({ "profile": profile, "waited_ms": waited_ms }))
        }
        Happening::Breaker { open, detail } => ("breaker", json!({ "open": open, "detail": detail })),
        Happening::Reconciled { lost, added, removed } => {
            ("reconciled", json!({ "lost": lost, "added": added, "removed": removed }))
        }
        Happening::Reclaim { stalled_us } => {
            #[expect(clippy::cast_precision_loss, reason = "a stall of 2^53 microseconds is 285 years")]
            let seconds = *stalled_us as f64 / 1e6;
            ("reclaim", json!({ "stalled_seconds": seconds }))
        }
        Happening::Denied { comm, what: Attempt::Fork { root, live, bound, refused } } => (
            "denied",
            json!({
                "attempt": "fork",
                "comm": comm,
                "root_pid": root.pid.0,
                "root_start_time": root.start_time.0,
                "live": live,
                "bound": bound,
                "refused": refused,
            }),
        ),
        Happening::Denied { comm, what: Attempt::Exec { ppid, path, killed } } => (
            "denied",
            json!({
                "attempt": "exec",
                "comm": comm,
                "ppid": ppid.0,
                "path": bounded(path, TEXT_BYTES),
                "killed": killed,
            }),
        ),
        Happening::MemoryStep { memory_bytes } => ("memory_step", json!({ "memory_bytes": memory_bytes })),
    };
    (kind, members(detail))
}

fn members(object: Value) -> Map<String, Value> {
    match object {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// As many arguments as fit, the last one cut; and whether any of it is missing.
fn bounded_argv(image: &Image) -> (Vec<&str>, bool) {
    let mut room = ARGV_BYTES;
    let mut cut = image.truncated;
    let mut argv = Vec::new();
    for argument in &image.argv {
        if room == 0 {
            cut = true;
            break;
        }
        let kept = bounded(argument, room);
        cut |= kept.len() < argument.len();
        // An empty argument costs something too.
        room = room.saturating_sub(kept.len().max(1));
        argv.push(kept);
    }
    (argv, cut)
}

/// The longest beginning of a text that is no longer than `most` bytes and ends between two characters.
fn bounded(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
