//! The journal: the last events, in bounded memory, and the clients that follow it.
//!
//! An event is kept as its line of JSON: half the size of its parts, and rendered once for all readers. Lines share chunks
//! of memory: ten thousand small allocations among short-lived ones would fragment the heap. The audience is decided when a
//! line is written, since the process may be forgotten later.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::sync::mpsc;

use super::api_event;
use watchdog_api::Event;
use watchdog_engine::effect::JournalEntry;
use watchdog_types::{BootTime, Uid, Viewer};

/// Capacity of a follower's queue. Beyond that a slow follower loses events.
const FOLLOWER_LINES: usize = 256;
/// Size of a chunk of lines, in bytes. It is freed with its last line.
const CHUNK: usize = 64 * 1024;
/// Room that a chunk must have for another line, in bytes; few lines are longer.
const LINE: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    /// The event concerns no process.
    Everyone,
    /// This user, and root.
    Owner(Uid),
    /// The process's user is unknown.
    Root,
}

/// Which events a reader wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period {
    pub(super) since: Option<BootTime>,
    /// A number of an event; those above it are wanted.
    pub(super) after: Option<u64>,
}

impl Period {
    pub(super) const ALL: Self = Self { since: None, after: None };
}

#[derive(Debug)]
struct JournalRecord {
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

/// Events that a follower missed, and that are not reported to it yet.
#[derive(Debug)]
struct Gap {
    first_seq: u64,
    since: String,
    missed: u64,
}

/// The events of a follower: those that the journal holds, then each as it happens.
#[derive(Debug)]
pub(super) struct Feed {
    /// Oldest first.
    pub(super) backlog: VecDeque<Bytes>,
    pub(super) live: mpsc::Receiver<Bytes>,
}

/// Lines are JSON without a line feed.
#[derive(Debug)]
pub(super) struct Journal {
    capacity: usize,
    next_seq: u64,
    records: VecDeque<JournalRecord>,
    chunk: BytesMut,
    followers: Vec<Follower>,
    dropped: u64,
}

impl Journal {
    pub(super) fn new(capacity: usize) -> Self {
        // One more, since the oldest leaves after the newest is added: grown step by step, it would take up to twice as
        // much.
        let (records, chunk) = (VecDeque::with_capacity(capacity + 1), BytesMut::new());
        Self { capacity, next_seq: 1, records, chunk, followers: Vec::new(), dropped: 0 }
    }

    pub(super) fn resize(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.drop_oldest();
        self.records.shrink_to(capacity + 1);
        self.records.reserve_exact(capacity + 1 - self.records.len());
    }

    /// `moment` is the wall-clock time of the event.
    pub(super) fn write(&mut self, entry: JournalEntry, moment: String, audience: Audience) {
        let seq = self.next_seq;
        self.next_seq += 1;
        let happened = entry.at;
        let event = api_event::event(seq, moment, entry);
        let line = self.render(&event);
        for follower in &mut self.followers {
            if audience.includes(follower.viewer) && !follower.offer(&line) {
                self.dropped += 1;
                let gap =
                    follower.gap.get_or_insert_with(|| Gap { first_seq: seq, since: event.at.clone(), missed: 0 });
                gap.missed += 1;
            }
        }
        self.followers.retain(|follower| !follower.lines.is_closed());
        self.records.push_back(JournalRecord { at: happened, audience, line });
        self.drop_oldest();
    }

    /// The events of this period that the viewer may see, oldest first.
    pub(super) fn read(&self, viewer: Viewer, period: Period) -> VecDeque<Bytes> {
        // Records are numbered without a gap.
        let oldest = self.next_seq - self.records.len() as u64;
        let skipped = period.after.map_or(0, |after| after.saturating_add(1).saturating_sub(oldest));
        self.records
            .iter()
            .skip(usize::try_from(skipped).unwrap_or(usize::MAX))
            .filter(|record| period.since.is_none_or(|since| record.at >= since) && record.audience.includes(viewer))
            .map(|record| record.line.clone())
            .collect()
    }

    /// Adds a follower, with the past events of this period, unless it is [`Period::ALL`].
    pub(super) fn follow(&mut self, viewer: Viewer, period: Period) -> Feed {
        let backlog = if period == Period::ALL { VecDeque::new() } else { self.read(viewer, period) };
        let (lines, live) = mpsc::channel(FOLLOWER_LINES);
        self.followers.push(Follower { viewer, lines, gap: None });
        Feed { backlog, live }
    }

    /// Removes disconnected followers, and reports gaps to those that have room again.
    pub(super) fn prune_followers(&mut self) {
        self.followers.retain_mut(|follower| {
            follower.send_gap();
            !follower.lines.is_closed()
        });
    }

    /// Lines that followers were too slow for.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    fn render(&mut self, event: &Event) -> Bytes {
        if self.chunk.capacity() < LINE {
            self.chunk = BytesMut::with_capacity(CHUNK);
        }
        line(event, &mut self.chunk)
    }

    fn drop_oldest(&mut self) {
        let excess = self.records.len().saturating_sub(self.capacity);
        self.records.drain(..excess);
    }
}

impl Follower {
    /// Sends a line; `false` when the queue is full.
    fn offer(&mut self, line: &Bytes) -> bool {
        self.send_gap() && self.lines.try_send(line.clone()).is_ok()
    }

    /// Reports a gap, if there is one; `false` when the queue is full.
    fn send_gap(&mut self) -> bool {
        let Some(gap) = &self.gap else { return true };
        let event = api_event::gap(gap.first_seq, gap.since.clone(), gap.missed);
        let sent = self.lines.try_send(line(&event, &mut BytesMut::new())).is_ok();
        if sent {
            self.gap = None;
        }
        sent
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

/// Appends a line to a chunk, which keeps the rest of its room.
fn line(event: &Event, chunk: &mut BytesMut) -> Bytes {
    // Strings, numbers and maps with string keys always serialise.
    let _ = serde_json::to_writer(chunk.writer(), event);
    chunk.split().freeze()
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
