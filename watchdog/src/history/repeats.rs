//! Which events get a record of their own, and which are counted.
//!
//! Of everyday events that are the same (one session, one program, one way of exiting) the first has a record; those that
//! follow are counted, and a period later one record tells how many there were. Events that matter have a record each, as
//! long as their session and their user stay within their [budgets](super::budgets); beyond that they are counted too.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Map, Value};

use super::budgets::{Budgets, Part};
use crate::api::Past;
use crate::engine::id::BootTime;

/// The first period; each is twice as long as the one before.
const FIRST_PERIOD: Duration = Duration::from_secs(60);
/// The longest period. Events that do not repeat in it have a record of their own again.
const LONGEST_PERIOD: Duration = Duration::from_secs(150);
/// What is counted for a session that has ended is written after this time.
const AFTER_SESSION: Duration = Duration::from_secs(3);
/// Counts of one session, and of one user. Further events are counted without telling them apart.
const OF_SESSION: usize = 64;
const OF_USER: usize = 256;
/// Bytes of a record besides its content. A count takes as many again.
const FRAME: u64 = 128;

/// What an event is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Repeats are counted.
    Everyday,
    /// Has a record of its own, in half of the budget.
    Notable,
    /// Has a record of its own, in the whole budget.
    Lasting,
}

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub struct Occurrence<'a> {
    /// When.
    pub at: BootTime,
    /// The user whose it is.
    pub owner: Option<u32>,
    /// The session that it concerns.
    pub session: Option<u64>,
    /// The type of its record.
    pub kind: &'static str,
    /// What it has in common with events that are the same.
    pub way: &'a str,
    /// What it is worth.
    pub urgency: Urgency,
    /// The memory that it tells of, in bytes.
    pub peak_bytes: u64,
}

/// Events that were counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// The user whose they are.
    pub owner: Option<u32>,
    /// How many.
    pub count: u64,
    /// When the first of them happened.
    pub first: BootTime,
    /// When the last of them happened.
    pub last: BootTime,
    /// One of them, without what concerns that one alone, and with the highest peak of all.
    pub what: Past,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sameness {
    owner: Option<u32>,
    session: Option<u64>,
    kind: &'static str,
    urgency: Urgency,
    way: Box<str>,
}

#[derive(Debug)]
struct Streak {
    count: u64,
    first: BootTime,
    last: BootTime,
    peak_bytes: u64,
    /// The longest that the next period may be.
    longest: Duration,
    period: Duration,
    due: BootTime,
    what: Past,
}

impl Streak {
    fn new(now: BootTime, what: Past) -> Self {
        let (longest, period, due) = (LONGEST_PERIOD, FIRST_PERIOD, now.plus(FIRST_PERIOD));
        Self { count: 0, first: now, last: now, peak_bytes: 0, longest, period, due, what }
    }

    fn add(&mut self, occurrence: &Occurrence<'_>) {
        if self.count == 0 {
            self.first = occurrence.at;
            self.peak_bytes = 0;
        }
        self.count += 1;
        self.first = self.first.min(occurrence.at);
        self.last = occurrence.at.max(self.first);
        self.peak_bytes = self.peak_bytes.max(occurrence.peak_bytes);
    }

    /// What was counted, if anything was.
    fn counted(&self, owner: Option<u32>) -> Option<Counted> {
        if self.count == 0 {
            return None;
        }
        let mut what = self.what.clone();
        if let Past::Death(death) = &mut what
            && let Some(Value::Object(memory)) = death.get_mut("memory")
        {
            memory.insert("peak_bytes".to_owned(), self.peak_bytes.into());
        }
        Some(Counted { owner, count: self.count, first: self.first, last: self.last, what })
    }
}

/// Counts what repeats, and what is too much.
#[derive(Debug)]
pub struct RepeatCounter {
    budgets: Budgets,
    streaks: BTreeMap<Sameness, Streak>,
}

impl RepeatCounter {
    /// One for a history of this size.
    #[must_use]
    pub fn new(max_bytes: u64) -> Self {
        Self { budgets: Budgets::of(max_bytes), streaks: BTreeMap::new() }
    }

    /// The history has become larger or smaller.
    pub fn resize(&mut self, max_bytes: u64) {
        self.budgets.resize(max_bytes);
    }

    /// What is to be written of an event now; `None` when it is counted. `record` is called only where it is needed.
    pub fn take(&mut self, now: BootTime, occurrence: &Occurrence<'_>, record: impl FnOnce() -> Past) -> Option<Past> {
        let Occurrence { at: _, owner, session, kind, way, urgency, peak_bytes: _ } = *occurrence;
        let key = Sameness { owner, session, kind, urgency, way: way.into() };
        if let Some(streak) = self.streaks.get_mut(&key) {
            streak.add(occurrence);
            return None;
        }
        let what = record();
        let part = if urgency == Urgency::Lasting { Part::Whole } else { Part::Half };
        if self.budgets.spend(now, owner, session, size_of(&what), part) {
            if urgency == Urgency::Everyday && self.has_room(&key) {
                self.streaks.insert(key, Streak::new(now, sample(what.clone())));
            }
            return Some(what);
        }
        let key = self.nearest(key);
        let what = |several: bool| if several { of_several(sample(what)) } else { sample(what) };
        let several = key.way.is_empty();
        self.streaks.entry(key).or_insert_with(|| Streak::new(now, what(several))).add(occurrence);
        None
    }

    /// Counts bytes that are written in any case, as the end of something whose beginning was written.
    pub fn overdraw(&mut self, now: BootTime, owner: Option<u32>, session: Option<u64>, what: &Past) {
        self.budgets.spend(now, owner, session, size_of(what), Part::Overdraft);
    }

    /// A session has ended: what was counted for it is due soon, and so are deaths that are judged later.
    pub fn session_ended(&mut self, now: BootTime, ended: u64) {
        let soon = now.plus(AFTER_SESSION);
        for (_, streak) in self.streaks.iter_mut().filter(|(key, _)| key.session == Some(ended)) {
            streak.due = streak.due.min(soon);
            (streak.longest, streak.period) = (AFTER_SESSION, AFTER_SESSION);
        }
    }

    /// The counts of periods that are over. A count that exceeds the budget stays, and is due again a period later.
    pub fn due(&mut self, now: BootTime) -> Vec<Counted> {
        let Self { budgets, streaks } = self;
        let mut due = Vec::new();
        streaks.retain(|key, streak| {
            if streak.due > now {
                return true;
            }
            let counted = streak.counted(key.owner);
            if let Some(Counted { owner, what, .. }) = &counted
                && !budgets.spend(now, *owner, session_of(what), size_of(what) + FRAME, Part::Whole)
            {
                streak.due = now.plus(LONGEST_PERIOD);
                return true;
            }
            let goes_on = key.urgency == Urgency::Everyday && (counted.is_some() || streak.period < streak.longest);
            streak.count = 0;
            streak.period = (streak.period * 2).min(streak.longest);
            streak.due = now.plus(streak.period);
            due.extend(counted);
            goes_on
        });
        due
    }

    /// All that was counted and not written.
    pub fn finish(&mut self) -> Vec<Counted> {
        std::mem::take(&mut self.streaks).into_iter().filter_map(|(key, streak)| streak.counted(key.owner)).collect()
    }

    fn has_room(&self, key: &Sameness) -> bool {
        let first =
            |session| Sameness { owner: key.owner, session, kind: "", urgency: Urgency::Everyday, way: "".into() };
        let of_user = self.streaks.range(first(None)..).take_while(|(other, _)| other.owner == key.owner);
        let of_session = self.streaks.range(first(key.session)..);
        let same = |other: &Sameness| other.owner == key.owner && other.session == key.session;
        of_user.take(OF_USER).count() < OF_USER
            && of_session.take_while(|(other, _)| same(other)).take(OF_SESSION).count() < OF_SESSION
    }

    /// Where an event is counted: with those that are the same, with all of its type in the session, or with all of its type
    /// of the user.
    fn nearest(&self, key: Sameness) -> Sameness {
        if self.streaks.contains_key(&key) || self.has_room(&key) {
            return key;
        }
        let of_session = Sameness { way: "".into(), ..key };
        let of_user = Sameness { session: None, ..of_session.clone() };
        let known = |key: &Sameness| self.streaks.contains_key(key);
        if known(&of_session) || self.has_room(&of_user) { of_session } else { of_user }
    }
}

/// What is told of several: nothing that only one of them did.
fn sample(mut what: Past) -> Past {
    match &mut what {
        Past::Death(death) => {
            death.insert("died_with".to_owned(), Value::Array(Vec::new()));
        }
        Past::Finding(finding) => finding.finding.evidence = Map::from_iter([("left_out".to_owned(), true.into())]),
        _ => {}
    }
    what
}

/// What is told of events that are not the same.
fn of_several(mut what: Past) -> Past {
    match &mut what {
        Past::Death(death) => {
            let one = death.get("summary").and_then(Value::as_str).unwrap_or_default();
            let summary = format!("processes of several programs died; one of them: {one}");
            death.insert("summary".to_owned(), summary.into());
            for name in ["comm", "name"] {
                death.insert(name.to_owned(), "several programs".into());
            }
        }
        Past::Finding(finding) => {
            let finding = &mut finding.finding;
            finding.summary = format!("several findings; one of them: {}", finding.summary);
        }
        _ => {}
    }
    what
}

fn session_of(what: &Past) -> Option<u64> {
    match what {
        Past::Death(death) => death.get("session").and_then(Value::as_u64),
        Past::Finding(finding) => finding.finding.session,
        Past::Oom(oom) => oom.session,
        Past::Action(action) => action.session,
        Past::SessionStarted(start) => Some(start.session),
        Past::SessionEnded(summary) => Some(summary.start.session),
        Past::DaemonStarted { .. } | Past::DaemonStopped | Past::Host(_) | Past::Unknown => None,
    }
}

/// Bytes of a record.
fn size_of(what: &Past) -> u64 {
    struct Length(u64);
    impl Write for Length {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut length = Length(FRAME);
    // Nothing here can fail to be JSON, as in `line`.
    let _ = serde_json::to_writer(&mut length, what);
    length.0
}

#[cfg(test)]
#[path = "repeats_tests.rs"]
mod tests;
