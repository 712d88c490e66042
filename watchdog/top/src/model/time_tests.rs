use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use watchdog_api::{FindingRecord, HostRecord, OomRecord, Past, ProcessMemory, Record, SessionMemory};

use super::past::parse_moment;
use super::staged::{finding, model, noon, observation, press};
use super::*;

fn ago(seconds: i64) -> Timestamp {
    noon().checked_sub(SignedDuration::from_secs(seconds)).unwrap()
}

fn record(at: Timestamp, what: Past) -> Record {
    Record { at: at.to_string(), run: String::new(), owner_uid: None, repeats: None, what }
}

fn host(at: Timestamp, mib: u64) -> Record {
    let memory = mib << 20;
    let host = HostRecord {
        memory: watchdog_api::Host { memory_available_bytes: (12 << 30) - memory, ..observation().host },
        sessions: vec![SessionMemory {
            session: 3,
            profile: "claude-code".into(),
            uid: 0,
            memory_bytes: memory,
            processes: 7,
        }],
        processes: vec![ProcessMemory {
            pid: 9,
            start_time: 9,
            session: 3,
            uid: 0,
            name: "node".into(),
            memory_bytes: memory / 2,
        }],
    };
    record(at, Past::Host(host))
}

/// Ten minutes of records, in which session 3 grows by 1 MiB each, and an orphan and an OOM kill.
pub(crate) fn records() -> Vec<Record> {
    let mut all: Vec<Record> = (0..60).map(|n| host(ago(600 - 10 * n), 100 + n.unsigned_abs())).collect();
    let opened = FindingRecord { change: "opened".into(), finding: finding(5, 3, 9, "an orphan") };
    all.insert(30, record(ago(305), Past::Finding(opened.clone())));
    let oom = OomRecord { pid: Some(9), start_time: None, session: None, comm: "node\x1b".into() };
    all.insert(40, record(ago(215), Past::Oom(oom)));
    let closed = FindingRecord { change: "closed".into(), ..opened };
    all.insert(50, record(ago(125), Past::Finding(closed)));
    all
}

/// In the history, at its last record.
pub(crate) fn in_history() -> TopModel {
    let mut model = model();
    let requests = press(&mut model, "h");
    let [TopRequest::ReadHistory { from, .. }, TopRequest::Poll(PollPlan { paused: true, .. })] = requests[..] else {
        panic!("{requests:?}")
    };
    model.update(TopMessage::History(from, Ok(records())), noon());
    model
}

fn memory(model: &TopModel) -> u64 {
    model.rows[0].memory_bytes >> 20
}

#[test]
fn history_moves_from_record_to_record() {
    let mut model = in_history();
    assert_eq!((memory(&model), model.rows.len()), (159, 2));
    press(&mut model, "←");
    assert_eq!(memory(&model), 158);
    press(&mut model, "[[");
    assert_eq!(memory(&model), 138);
    assert_eq!(model.rows[0].growth, Some(6 << 20));
    press(&mut model, "→");
    assert_eq!(memory(&model), 139);
}

#[test]
fn findings_are_those_open_then() {
    let mut model = in_history();
    let open = |model: &TopModel| model.observation.as_ref().unwrap().findings.len();
    assert_eq!(open(&model), 0, "closed by now");
    press(&mut model, "[[");
    assert_eq!(open(&model), 1);
    press(&mut model, "[");
    assert_eq!(open(&model), 0, "not yet open");
}

#[test]
fn leaving_history_shows_the_present() {
    let mut model = in_history();
    assert!(press(&mut model, "r").is_empty(), "no actions in the past");
    press(&mut model, "h");
    assert!(matches!(model.source, ScreenSource::Live));
    assert_eq!((memory(&model), model.rows.len()), (1700, 12));
    assert!(!model.plan.paused);
}

#[test]
fn moment_outside_the_window_is_read() {
    let mut model = in_history();
    let requests = press(&mut model, "@2026-01-01 03:00\n");
    let moment: Timestamp = "2026-01-01T03:00:00Z".parse().unwrap();
    let half = SignedDuration::from_mins(30);
    let (from, to) = (moment.checked_sub(half).unwrap(), moment.checked_add(half).unwrap());
    assert_eq!(requests, [TopRequest::ReadHistory { from, to }]);
    model.update(TopMessage::History(from, Ok(Vec::new())), noon());
    assert!(model.observation.is_none() && model.rows.is_empty());
    let requests = press(&mut model, "@tomorrow\n");
    assert!(requests.is_empty() && model.notice.is_some());
}

#[test]
fn late_window_is_dropped() {
    let mut model = in_history();
    press(&mut model, "@2026-01-01 03:00\n");
    model.update(TopMessage::History(ago(600), Ok(records())), noon());
    assert!(matches!(&model.source, ScreenSource::History(window) if window.records.is_none()));
}

#[test]
fn unreadable_history_is_reported() {
    let mut model = model();
    press(&mut model, "h");
    let ScreenSource::History(window) = &model.source else { panic!("no history") };
    let from = window.from;
    model.update(TopMessage::History(from, Err("there is no history".into())), noon());
    assert!(matches!(model.source, ScreenSource::Live) && model.overlay.is_some());
}

#[test]
fn present_is_not_shown_as_past() {
    let mut model = in_history();
    let mut late = observation();
    late.tree.sessions.clear();
    model.update(TopMessage::Observed(Box::new(late)), noon());
    assert_eq!(memory(&model), 159);
}

#[rstest]
#[case("03:00", Some("2026-01-02T03:00:00Z"))]
#[case("13:30", Some("2026-01-01T13:30:00Z"))]
#[case("yesterday 03:00", Some("2026-01-01T03:00:00Z"))]
#[case("2025-12-31 23:59:30", Some("2025-12-31T23:59:30Z"))]
#[case("2025-12-31T23:59:30Z", Some("2025-12-31T23:59:30Z"))]
#[case("2h", Some("2026-01-02T10:00:00Z"))]
#[case("-90m", Some("2026-01-02T10:30:00Z"))]
#[case("", None)]
#[case("soon", None)]
#[case("99999999999999999h", None)]
fn moments_are_parsed(#[case] text: &str, #[case] moment: Option<&str>) {
    let expected = moment.map(|moment| moment.parse().unwrap());
    assert_eq!(parse_moment(text, noon(), &TimeZone::UTC), expected);
}

fn replay() -> TopModel {
    let mut model = TopModel::new(ScreenSource::Replay(Playback::new("night.rec".into())), noon(), TimeZone::UTC);
    model.update(TopMessage::ReplayLength(Duration::from_secs(100)), noon());
    model.update(TopMessage::Observed(Box::new(observation())), noon());
    model
}

#[test]
fn recording_plays_at_its_speed() {
    let mut model = replay();
    let second = || TopMessage::Elapsed(Duration::from_secs(1));
    let at = |seconds| vec![TopRequest::ReplayTo(Duration::from_secs(seconds))];
    assert_eq!(model.update(second(), noon()), at(1));
    press(&mut model, "++");
    assert_eq!(model.update(second(), noon()), at(6));
    press(&mut model, "p");
    assert!(model.update(second(), noon()).is_empty());
    assert_eq!(press(&mut model, "}"), at(66));
    assert_eq!(press(&mut model, "[←"), [at(56), at(55)].concat());
    press(&mut model, "p+++++++");
    assert_eq!(model.update(second(), noon()), at(100));
    assert!(model.update(second(), noon()).is_empty(), "the end");
    assert_eq!(press(&mut model, "p"), at(0), "from the beginning");
}

#[test]
fn recording_takes_no_action() {
    let mut model = replay();
    assert!(press(&mut model, "rea").is_empty());
    assert!(model.overlay.is_none() && model.notice.is_some());
}
