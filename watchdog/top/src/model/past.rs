//! The past of the host: what the history says about one moment.

use std::collections::BTreeMap;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};
use watchdog_api::{
    Counts, Finding, HostRecord, Past, Process, ProcessKind, ProcessState, Record, Session, SessionState, Tree,
};

use super::observation::Observation;

/// How far a window reaches to both sides of the requested moment.
pub(crate) const HALF_WINDOW: SignedDuration = SignedDuration::from_mins(30);
/// How long a record of the host is valid. After that nothing was recorded.
const VALID: SignedDuration = SignedDuration::from_secs(30);

/// Records of a span of time, and the moment that is shown.
#[derive(Clone, Debug)]
pub(crate) struct HistoryWindow {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    pub(crate) cursor: Timestamp,
    /// Oldest first. `None` until they have arrived.
    pub(crate) records: Option<Vec<Record>>,
}

fn at(record: &Record) -> Option<Timestamp> {
    record.at.parse().ok()
}

impl HistoryWindow {
    /// A window around a moment, without records.
    pub(crate) fn around(moment: Timestamp, now: Timestamp) -> Self {
        let cursor = moment.min(now);
        let from = cursor.checked_sub(HALF_WINDOW).unwrap_or(cursor);
        let to = cursor.checked_add(HALF_WINDOW).unwrap_or(cursor).min(now);
        Self { from, to, cursor, records: None }
    }

    pub(crate) fn records(&self) -> &[Record] {
        self.records.as_deref().unwrap_or_default()
    }

    /// Host records with their times.
    pub(crate) fn hosts(&self) -> impl DoubleEndedIterator<Item = (Timestamp, &HostRecord)> {
        self.records().iter().filter_map(|record| match &record.what {
            Past::Host(host) => Some((at(record)?, host)),
            _ => None,
        })
    }

    /// The moment of the host record that is `steps` further; `None` outside the window.
    pub(crate) fn step(&self, steps: i32) -> Option<Timestamp> {
        let distance = usize::try_from(steps.unsigned_abs()).unwrap_or(usize::MAX).saturating_sub(1);
        if steps < 0 {
            self.hosts().rev().map(|(at, _)| at).filter(|at| *at < self.cursor).nth(distance)
        } else {
            self.hosts().map(|(at, _)| at).filter(|at| *at > self.cursor).nth(distance)
        }
    }

    /// What was recorded for the cursor; `None` if no daemon recorded anything then.
    pub(crate) fn observation(&self) -> Option<Observation> {
        let (at, host) = self.hosts().take_while(|(at, _)| *at <= self.cursor).last()?;
        (self.cursor.duration_since(at) <= VALID).then(|| {
            let tree = Tree { sessions: host.sessions.iter().map(|session| to_session(session, host)).collect() };
            let findings = self.findings();
            let counts = Counts {
                sessions_running: tree.sessions.len() as u64,
                processes: host.sessions.iter().map(|session| session.processes).sum(),
                findings_open: findings.len() as u64,
                memory_bytes: host.sessions.iter().map(|session| session.memory_bytes).sum(),
                ..Counts::default()
            };
            Observation {
                at,
                host: host.memory,
                counts,
                tree,
                findings,
                gate: None,
                trouble: None,
                in_fleet: false,
                fleet: None,
            }
        })
    }

    /// Findings that were reported within the window and open at the cursor.
    fn findings(&self) -> Vec<Finding> {
        let mut open: BTreeMap<u64, &Finding> = BTreeMap::new();
        for record in self.until_cursor() {
            let Past::Finding(change) = &record.what else { continue };
            if change.change == "closed" {
                open.remove(&change.finding.id);
            } else {
                open.insert(change.finding.id, &change.finding);
            }
        }
        open.into_values().cloned().collect()
    }

    /// Records that are not of the host's memory, up to the cursor, the latest first.
    pub(crate) fn happened(&self) -> impl Iterator<Item = &Record> {
        self.until_cursor().rev().filter(|record| !matches!(record.what, Past::Host(_) | Past::Unknown))
    }

    fn until_cursor(&self) -> impl DoubleEndedIterator<Item = &Record> {
        self.records().iter().filter(|record| at(record).is_some_and(|at| at <= self.cursor))
    }
}

/// A session of a host record, with those of its processes that the record lists.
fn to_session(session: &watchdog_api::SessionMemory, host: &HostRecord) -> Session {
    let of_session = host.processes.iter().filter(|process| process.session == session.session);
    let processes = of_session.map(|process| Process {
        pid: process.pid,
        start_time: process.start_time,
        ppid: 0,
        parent_pid: 0,
        depth: 0,
        kind: ProcessKind::Other,
        comm: String::new(),
        name: process.name.clone(),
        argv: vec![process.name.clone()],
        state: ProcessState::Running,
        rss_bytes: process.memory_bytes,
        anon_bytes: process.memory_bytes,
        shmem_bytes: 0,
        swap_bytes: 0,
        peak_bytes: 0,
        oom_score_adj: None,
        kept_because: None,
    });
    Session {
        id: session.session,
        profile: session.profile.clone(),
        state: SessionState::Running,
        gated: false,
        user: format!("uid {}", session.uid),
        uid: session.uid,
        started_at: String::new(),
        memory_bytes: session.memory_bytes,
        peak_memory_bytes: 0,
        resident_bytes: 0,
        swap_bytes: 0,
        idle_since: None,
        process_count: session.processes,
        oom_score_adj: None,
        parent_session: None,
        zombies: 0,
        processes: processes.collect(),
    }
}

/// A moment as people write it: `03:00` (the last one), `yesterday 03:00`, `2026-01-02 03:00`, `2h` or `90m` ago.
pub(crate) fn parse_moment(text: &str, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let text = text.trim();
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Some(moment);
    }
    if let Some(ago) = parse_ago(text.trim_start_matches('-')) {
        return now.checked_sub(ago).ok();
    }
    let local = now.to_zoned_datetime(zone.clone());
    let on = |date: Date, time: Time| DateTime::from_parts(date, time).to_zoned_datetime(zone.clone()).ok();
    let moment = match text.split_once(' ') {
        None => {
            let today = on(local.date(), text.parse().ok()?)?;
            if today > local { today.checked_sub(1.day()).ok()? } else { today }
        }
        Some(("today", time)) => on(local.date(), time.trim().parse().ok()?)?,
        Some(("yesterday", time)) => on(local.date().yesterday().ok()?, time.trim().parse().ok()?)?,
        Some((date, time)) => on(date.parse().ok()?, time.trim().parse().ok()?)?,
    };
    Some(moment.timestamp())
}

fn parse_ago(text: &str) -> Option<SignedDuration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let number: i64 = number.parse().ok()?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    number.checked_mul(seconds).map(SignedDuration::from_secs)
}
