//! Decides which events get a record of their own, and counts the others.
//!
//! Of equal everyday events (one session, one program, one kind of exit) the first has a record. Those that follow are
//! counted, and one record per period has the count. Important events have a record each, while their session and user are
//! within their [budgets](super::budgets); beyond that they are counted too.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use serde_json::Value;

use super::budgets::{BudgetPart, Budgets};
use watchdog_api::{Evidence, Past};
use watchdog_types::BootTime;

/// The first period; each is twice as long as the one before.
const FIRST_PERIOD: Duration = Duration::from_secs(60);
/// The longest period. An event that does not repeat within it gets its own record again.
const LONGEST_PERIOD: Duration = Duration::from_secs(150);
/// Delay of the counts of an ended session.
const AFTER_SESSION: Duration = Duration::from_secs(3);
/// How long an ended session is remembered: its deaths are explained some seconds after its end.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Separate counts per session and per user. Further events share one count.
const OF_SESSION: usize = 64;
const OF_USER: usize = 256;
/// Bytes of a record besides its content; a count adds as many again.
const FRAME: u64 = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Repeats are counted.
    Everyday,
    /// A record each, within half of the budget.
    Notable,
    /// A record each, within the whole budget.
    Lasting,
}

/// An event, as far as the counter must know it.
#[derive(Clone, Copy, Debug)]
pub struct Occurrence<'a> {
    pub at: BootTime,
    pub owner: Option<u32>,
    pub session: Option<u64>,
    /// Type of the record.
    pub kind: &'static str,
    /// Equal for events that count as repeats.
    pub signature: &'a str,
    pub urgency: Urgency,
    /// Memory of the process.
    pub peak_bytes: u64,
}

/// A count of equal events.
#[derive(Clone, Debug, PartialEq)]
pub struct RepeatCount {
    pub owner: Option<u32>,
    pub count: u64,
    pub first: BootTime,
    pub last: BootTime,
    /// One of the events without its individual fields, with the highest peak of all.
    pub what: Past,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RepeatKey {
    owner: Option<u32>,
    session: Option<u64>,
    kind: &'static str,
    urgency: Urgency,
    signature: Box<str>,
}

#[derive(Debug)]
struct Streak {
    count: u64,
    first: BootTime,
    last: BootTime,
    peak_bytes: u64,
    longest: Duration,
    period: Duration,
    due: BootTime,
    what: Past,
}

impl Streak {
    fn new(now: BootTime, session_ended: bool, what: Past) -> Self {
        let (period, longest) =
            if session_ended { (AFTER_SESSION, AFTER_SESSION) } else { (FIRST_PERIOD, LONGEST_PERIOD) };
        Self { count: 0, first: now, last: now, peak_bytes: 0, longest, period, due: now.plus(period), what }
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

    /// `None` when nothing was counted.
    fn counted(&self, owner: Option<u32>) -> Option<RepeatCount> {
        if self.count == 0 {
            return None;
        }
        let mut what = self.what.clone();
        if let Past::Death(death) = &mut what
            && let Some(Value::Object(memory)) = death.get_mut("memory")
        {
            memory.insert("peak_bytes".to_owned(), self.peak_bytes.into());
        }
        Some(RepeatCount { owner, count: self.count, first: self.first, last: self.last, what })
    }
}

/// Counts events that repeat or exceed a budget.
#[derive(Debug)]
pub struct RepeatCounter {
    budgets: Budgets,
    streaks: BTreeMap<RepeatKey, Streak>,
    /// Recently ended sessions.
    ended: BTreeMap<u64, BootTime>,
}

impl RepeatCounter {
    #[must_use]
    pub fn new(max_bytes: u64) -> Self {
        Self { budgets: Budgets::of(max_bytes), streaks: BTreeMap::new(), ended: BTreeMap::new() }
    }

    pub fn resize(&mut self, max_bytes: u64) {
        self.budgets.resize(max_bytes);
    }

    /// The record to write; `None` when the event is counted. Calls `record` only if needed.
    pub fn take(&mut self, now: BootTime, occurrence: &Occurrence<'_>, record: impl FnOnce() -> Past) -> Option<Past> {
        let Occurrence { at: _, owner, session, kind, signature, urgency, peak_bytes: _ } = *occurrence;
        let key = RepeatKey { owner, session, kind, urgency, signature: signature.into() };
        if let Some(streak) = self.streaks.get_mut(&key) {
            streak.add(occurrence);
            return None;
        }
        let what = record();
        let session_ended = session.is_some_and(|session| self.ended.contains_key(&session));
        let part = if urgency == Urgency::Lasting { BudgetPart::Whole } else { BudgetPart::Half };
        if self.budgets.spend(now, owner, session, size_of(&what), part) {
            if urgency == Urgency::Everyday && self.has_room(&key) {
                self.streaks.insert(key, Streak::new(now, session_ended, sample(what.clone())));
            }
            return Some(what);
        }
        let key = self.nearest(key);
        let what = |several: bool| if several { of_several(sample(what)) } else { sample(what) };
        let several = key.signature.is_empty();
        self.streaks.entry(key).or_insert_with(|| Streak::new(now, session_ended, what(several))).add(occurrence);
        None
    }

    /// Counts bytes that are written regardless of the budget, such as the end of a recorded session.
    pub fn overdraw(&mut self, now: BootTime, owner: Option<u32>, session: Option<u64>, what: &Past) {
        self.budgets.spend(now, owner, session, size_of(what), BudgetPart::Overdraft);
    }

    /// Makes the counts of an ended session due soon, and those of deaths that are explained later.
    pub fn session_ended(&mut self, now: BootTime, ended: u64) {
        let soon = now.plus(AFTER_SESSION);
        self.ended.insert(ended, now);
        for (_, streak) in self.streaks.iter_mut().filter(|(key, _)| key.session == Some(ended)) {
            streak.due = streak.due.min(soon);
            (streak.longest, streak.period) = (AFTER_SESSION, AFTER_SESSION);
        }
    }

    /// The counts whose period has ended. A count that exceeds the budget is due again a period later.
    pub fn due(&mut self, now: BootTime) -> Vec<RepeatCount> {
        let Self { budgets, streaks, ended } = self;
        ended.retain(|_, at| now < at.plus(REMEMBERED));
        let mut due = Vec::new();
        streaks.retain(|key, streak| {
            if streak.due > now {
                return true;
            }
            let counted = streak.counted(key.owner);
            if let Some(RepeatCount { owner, what, .. }) = &counted
                && !budgets.spend(now, *owner, session_of(what), size_of(what) + FRAME, BudgetPart::Whole)
            {
                streak.due = now.plus(LONGEST_PERIOD);
                return true;
            }
            let continues = key.urgency == Urgency::Everyday && (counted.is_some() || streak.period < streak.longest);
            streak.count = 0;
            streak.period = (streak.period * 2).min(streak.longest);
            streak.due = now.plus(streak.period);
            due.extend(counted);
            continues
        });
        due
    }

    /// All pending counts.
    pub fn finish(&mut self) -> Vec<RepeatCount> {
        std::mem::take(&mut self.streaks).into_iter().filter_map(|(key, streak)| streak.counted(key.owner)).collect()
    }

    fn has_room(&self, key: &RepeatKey) -> bool {
        let first = |session| RepeatKey {
            owner: key.owner,
            session,
            kind: "",
            urgency: Urgency::Everyday,
            signature: "".into(),
        };
        let of_user = self.streaks.range(first(None)..).take_while(|(other, _)| other.owner == key.owner);
        let of_session = self.streaks.range(first(key.session)..);
        let same = |other: &RepeatKey| other.owner == key.owner && other.session == key.session;
        of_user.take(OF_USER).count() < OF_USER
            && of_session.take_while(|(other, _)| same(other)).take(OF_SESSION).count() < OF_SESSION
    }

    /// Where to count an event: with equal ones, with all of its type in the session, or with all of its type of the user.
    fn nearest(&self, key: RepeatKey) -> RepeatKey {
        if self.streaks.contains_key(&key) || self.has_room(&key) {
            return key;
        }
        let of_session = RepeatKey { signature: "".into(), ..key };
        let of_user = RepeatKey { session: None, ..of_session.clone() };
        let known = |key: &RepeatKey| self.streaks.contains_key(key);
        if known(&of_session) || self.has_room(&of_user) { of_session } else { of_user }
    }
}

/// Removes the fields that differ between equal events.
fn sample(mut what: Past) -> Past {
    match &mut what {
        Past::Death(death) => {
            death.insert("died_with".to_owned(), Value::Array(Vec::new()));
            death.remove("series");
        }
        Past::Finding(finding) => finding.finding.evidence = Evidence::left_out(),
        _ => {}
    }
    what
}

/// Marks a record as one of several different events.
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
        Past::Reclaim(run) => run.session,
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
    // Cannot fail, see `codec`.
    let _ = serde_json::to_writer(&mut length, what);
    length.0
}

#[cfg(test)]
#[path = "repeats_tests.rs"]
mod tests;
