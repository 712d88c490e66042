use std::fs;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{FILE, Store, StoreLimits, codec};
use watchdog_api::{Record, Repeats};

const MAX: u64 = 256 << 20;
const NAMES: [&str; 6] = ["sleep", "bash", "rg", "node", "python3", "git"];

fn at(seconds: f64) -> BootTime {
    BootTime((seconds * 1e9) as u64)
}

fn moment(at: BootTime) -> String {
    Timestamp::from_nanosecond(1_790_000_000_000_000_000 + i128::from(at.0)).unwrap().to_string()
}

/// As large as a death with a few companions is.
fn death(session: u64, pid: u32, name: &str, peak: u64) -> Past {
    let companion = json!({ "pid": pid, "start_time": 123_456_789, "name": name, "uid": 1000, "session": session,
        "exit_code": null, "signal": 15, "cause": "killed", "apart_seconds": 0.123, "later": false });
    let death = json!({
        "died_at": "2026-01-02T00:00:00.123Z", "started_at": "2026-01-02T00:00:00.123Z", "pid": pid,
        "start_time": 123_456_789, "session": session, "profile": "claude-code", "kind": "tool", "comm": name,
        "name": name, "uid": 1000, "parent_pid": 4242, "age_seconds": 0.02, "exit_code": null, "signal": 15,
        "cause": "killed", "summary": format!("{name} (pid {pid}) was killed by SIGTERM, which its parent sent"),
        "sender": null, "origin": null, "oom": null, "heap": null, "passed_on_from": null,
        "memory": { "last_bytes": 0, "peak_bytes": peak, "growth_bytes": null, "growth_window_seconds": null,
            "doubled_in_seconds": null, "cgroup_max_bytes": null },
        "host": { "total_bytes": 1_u64 << 34, "available_bytes": 1_u64 << 33, "swap_total_bytes": 0,
            "swap_free_bytes": 0, "pressure_some_avg10": 0.12, "pressure_full_avg10": 0.0 },
        "died_with": vec![companion; 10], "died_with_count": 10,
    });
    let Value::Object(death) = death else { unreachable!() };
    Past::Death(death)
}

fn occurrence<'a>(now: BootTime, owner: u32, session: u64, signature: &'a str, urgency: Urgency) -> Occurrence<'a> {
    Occurrence { at: now, owner: Some(owner), session: Some(session), kind: "death", signature, urgency, peak_bytes: 7 }
}

/// What is written, in the form in which it is written.
#[derive(Default)]
struct Pen {
    lines: Vec<u8>,
    records: u64,
    events: u64,
}

impl Pen {
    fn write(&mut self, now: BootTime, owner: Option<u32>, what: Past) {
        self.put(Record { at: moment(now), run: moment(at(0.0)), owner_uid: owner, repeats: None, what }, 1);
    }

    fn write_counted(&mut self, counted: Vec<RepeatCount>) {
        for RepeatCount { owner, count, first, last, what } in counted {
            assert!(first <= last);
            let repeats = Repeats { count, first_at: moment(first), last_at: moment(last) };
            let at = repeats.last_at.clone();
            let record = Record { at, run: moment(self::at(0.0)), owner_uid: owner, repeats: Some(repeats), what };
            self.put(record, count);
        }
    }

    fn put(&mut self, record: Record, events: u64) {
        self.lines.extend(codec::encode(&record));
        self.records += 1;
        self.events += events;
    }
}

#[test]
fn repeats_counted_with_peak() {
    let mut counter = RepeatCounter::new(MAX);
    let mut take = |seconds, peak_bytes| {
        let occurrence = Occurrence { peak_bytes, ..occurrence(at(seconds), 1, 1, "sleep killed", Urgency::Everyday) };
        counter.take(at(seconds), &occurrence, || death(1, 7, "sleep", peak_bytes)).is_some()
    };
    assert!(take(0.0, 9));
    assert!(!take(1.0, 50) && !take(2.0, 40) && !take(30.0, 10));
    assert_eq!(counter.due(at(59.0)), []);
    let counted = counter.due(at(60.0));
    let [RepeatCount { owner: Some(1), count: 3, first, last, what: Past::Death(what) }] = counted.as_slice() else {
        panic!("{counted:?}")
    };
    assert_eq!((*first, *last), (at(1.0), at(30.0)));
    assert_eq!((&what["memory"]["peak_bytes"], &what["died_with"]), (&50.into(), &json!([])));
    assert_eq!(counter.finish(), []);
}

#[test]
fn event_after_quiet_has_record() {
    let mut counter = RepeatCounter::new(MAX);
    let mut now = 0.0;
    let mut written = 0;
    for gap in [1.0, 90.0, 500.0, 3_000.0, 1.0] {
        for _ in 0..gap as u64 {
            now += 1.0;
            assert!(counter.due(at(now)).iter().all(|counted| counted.count == 1));
        }
        let occurrence = occurrence(at(now), 1, 1, "sleep killed", Urgency::Everyday);
        written += u32::from(counter.take(at(now), &occurrence, || death(1, 7, "sleep", 1)).is_some());
    }
    assert_eq!(written, 3, "the first, and those 8 and 50 minutes later");
}

#[test]
fn ended_session_has_its_counts_soon() {
    let mut counter = RepeatCounter::new(MAX);
    for second in 0..3 {
        let occurrence = occurrence(at(f64::from(second)), 1, 5, "sleep killed", Urgency::Everyday);
        counter.take(occurrence.at, &occurrence, || death(5, 7, "sleep", 1));
    }
    counter.session_ended(at(3.0), 5);
    let counts = |counted: Vec<RepeatCount>| counted.iter().map(|counted| counted.count).collect::<Vec<_>>();
    assert_eq!(counts(counter.due(at(6.0))), [2]);
    let late = occurrence(at(3.0), 1, 5, "sleep killed", Urgency::Everyday);
    assert!(counter.take(at(7.0), &late, || death(5, 7, "sleep", 1)).is_none());
    assert_eq!(counts(counter.due(at(9.0))), [1], "a death that was judged late");
    assert!(counter.due(at(12.0)).is_empty());
    assert!(counter.streaks.is_empty());
}

#[test]
fn late_deaths_written_soon() {
    let mut counter = RepeatCounter::new(MAX);
    counter.session_ended(at(1.0), 5);
    for _ in 0..3 {
        let killed = occurrence(at(0.5), 1, 5, "sleep killed", Urgency::Everyday);
        counter.take(at(2.0), &killed, || death(5, 7, "sleep", 1));
    }
    let counted = counter.due(at(5.0));
    assert_eq!(counted.iter().map(|counted| counted.count).collect::<Vec<_>>(), [2]);
    assert!(counter.due(at(62.0)).is_empty());
    assert!(counter.streaks.is_empty() && counter.ended.is_empty());
}

#[test]
fn flood_of_one_session_stays_small() {
    let mut counter = RepeatCounter::new(MAX);
    let mut pen = Pen::default();
    const FLOOD: u32 = 11_000;
    for number in 0..FLOOD {
        let now = at(f64::from(number) * 8.0 / f64::from(FLOOD));
        // Each with a name of its own, and each killed from outside.
        let signature = format!("x{number} killed");
        let occurrence = occurrence(now, 1000, 1, &signature, Urgency::Notable);
        if let Some(what) = counter.take(now, &occurrence, || death(1, number, "x", 1)) {
            pen.write(now, Some(1000), what);
        }
        let other = occurrence_of_other(now, number);
        if number.is_multiple_of(1_000) {
            assert!(counter.take(now, &other, || death(2, number, "node", 1)).is_some(), "another user's death");
        }
    }
    pen.write_counted(counter.finish());
    assert_eq!(pen.events, u64::from(FLOOD));
    assert!(pen.lines.len() < 1 << 20, "{} bytes in {} records", pen.lines.len(), pen.records);
}

#[test]
fn counts_stay_within_the_budget() {
    const SECONDS: u32 = 4 * 3_600;
    const SESSIONS: u64 = 4;
    let mut counter = RepeatCounter::new(MAX);
    let (mut pen, mut number) = (Pen::default(), 0_u32);
    for second in 0..SECONDS {
        let now = at(f64::from(second));
        for session in 0..SESSIONS {
            number += 1;
            // 300 names in all, and every other session ends again and again.
            let signature = format!("x{} killed", number % 300);
            let killed = occurrence(now, 1000, session, &signature, Urgency::Notable);
            if let Some(what) = counter.take(now, &killed, || death(session, number, "x", 1)) {
                pen.write(now, Some(1000), what);
            }
            if session.is_multiple_of(2) && second.is_multiple_of(5) {
                counter.session_ended(now, session);
            }
        }
        pen.write_counted(counter.due(now));
    }
    // What a user may write at once, and in this time.
    let allowed = MAX / 64 + MAX / 16 * u64::from(SECONDS) / 86_400;
    assert!(pen.lines.len() as u64 <= allowed, "{} bytes of {allowed}", pen.lines.len());
    pen.write_counted(counter.finish());
    assert_eq!(pen.events, u64::from(number), "what exceeds the budget is still counted");
}

fn occurrence_of_other(now: BootTime, number: u32) -> Occurrence<'static> {
    occurrence(now, 1001, 2, if number.is_multiple_of(2_000) { "node killed" } else { "rg killed" }, Urgency::Notable)
}

#[test]
fn busy_day_fits_in_thirty_megabytes() {
    const A_SECOND: u32 = 54;
    const SESSIONS: u64 = 8;
    let mut counter = RepeatCounter::new(MAX);
    let (mut pen, mut bytes, mut number) = (Pen::default(), 0, 0_u32);
    for second in 0..86_400_u32 {
        let now = at(f64::from(second));
        pen.write_counted(counter.due(now));
        for _ in 0..A_SECOND {
            number += 1;
            let session = u64::from(number) % SESSIONS;
            let name = NAMES[number as usize / 8 % NAMES.len()];
            // In the run that was measured a sixteenth of all processes was found detached, and a tenth was killed.
            if number.is_multiple_of(10) {
                let signature = format!("{name} killed Some(15) None");
                let peak_bytes = u64::from(number % 100) << 20;
                let killed = Occurrence { peak_bytes, ..occurrence(now, 1000, session, &signature, Urgency::Everyday) };
                if let Some(what) = counter.take(now, &killed, || death(session, number, name, peak_bytes)) {
                    pen.write(now, Some(1000), what);
                }
            }
            if number.is_multiple_of(16) {
                let signature = format!("detached opened: {name} goes on after bash, which started it, has exited");
                let found =
                    Occurrence { kind: "finding", ..occurrence(now, 1000, session, &signature, Urgency::Everyday) };
                if let Some(what) = counter.take(now, &found, || finding(session, number, name)) {
                    pen.write(now, Some(1000), what);
                }
            }
        }
        if second.is_multiple_of(10) {
            pen.write(now, None, host(SESSIONS));
        }
        bytes += std::mem::take(&mut pen.lines).len();
    }
    pen.write_counted(counter.finish());
    bytes += pen.lines.len();
    let expected = u64::from(number / 10 + number / 16) + 8_640;
    assert_eq!(pen.events, expected, "each event is in one record or in one count");
    println!("a busy day: {bytes} bytes in {} records", pen.records);
    assert!(bytes < 30_000_000, "{bytes} bytes in {} records", pen.records);
}

fn finding(session: u64, pid: u32, name: &str) -> Past {
    let finding = json!({
        "type": "finding", "change": "opened", "id": pid, "kind": "detached", "severity": "info", "session": session,
        "pid": pid, "start_time": 123_456_789, "opened_at": "2026-01-02T00:00:00.123Z", "closed_at": null,
        "closed_because": null, "proposed_action": "report", "action_taken": null,
        "summary": format!("{name} goes on after bash, which started it, has exited; its agent lives"),
        "evidence": { "name": name, "process_kind": "tool", "parent_pid": pid, "parent_name": "bash", "ppid": 1,
            "memory_bytes": 1_234_567, "agent_alive": true },
    });
    serde_json::from_value(finding).unwrap()
}

fn host(sessions: u64) -> Past {
    let of_session = |session: u64| json!({ "session": session, "profile": "claude-code", "uid": 1000, "memory_bytes": 1_234_567_890, "processes": 12 });
    let of_process = |pid: u64| {
        json!({ "pid": 1_234_560 + pid, "start_time": 123_456_789, "session": pid, "uid": 1000, "name": "node",
            "memory_bytes": 1_234_567_890 })
    };
    let host = json!({
        "type": "host", "memory_total_bytes": 1_u64 << 34, "memory_available_bytes": 1_u64 << 33,
        "swap_total_bytes": 0, "swap_free_bytes": 0, "shmem_bytes": 123_456_789, "pressure_some_avg10": 0.12,
        "pressure_full_avg10": 0.12, "sessions": (0..sessions).map(of_session).collect::<Vec<_>>(),
        "processes": (0..6).map(of_process).collect::<Vec<_>>(),
    });
    serde_json::from_value(host).unwrap()
}

#[test]
fn flood_evicts_only_its_own_records() {
    const DAY: i64 = 86_400;
    let limits = StoreLimits { retention: Duration::from_secs(7 * 86_400), max_bytes: 1 << 20 };
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = Store::open(dir.path()).unwrap();
    let own = |number: u32| {
        let repeats = None;
        let what = death(2, number, "own", 1);
        Record { at: moment(at(0.0)), run: "r".to_owned(), owner_uid: Some(1001), repeats, what }
    };
    store.append(&(0..50).flat_map(|number| codec::encode(&own(number))).collect::<Vec<u8>>()).unwrap();
    let flood = |number: u32| Record { owner_uid: Some(1000), what: death(1, number, "flood", 1), ..own(number) };
    for round in 0..3_u32 {
        let lines = (0..300).flat_map(|number| codec::encode(&flood(round * 300 + number)));
        store.append(&lines.collect::<Vec<u8>>()).unwrap();
        let now = Timestamp::from_second(1_790_000_000 + DAY).unwrap();
        if store.is_overdue(&limits, now) {
            store.retire(&limits, now).unwrap();
        }
    }
    let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
    let kept = |name: &str| text.lines().filter(|line| line.contains(&format!("\"comm\":\"{name}\""))).count();
    assert_eq!(kept("own"), 50, "the flood is younger, and larger");
    assert!(kept("flood") > 100 && store.bytes() <= limits.max_bytes, "{} bytes", store.bytes());
}

#[test]
fn counted_record_is_read_as_written() {
    let repeats = Repeats { count: 240, first_at: "a".to_owned(), last_at: "b".to_owned() };
    let record = |repeats| Record {
        at: "2026-01-02T00:00:00Z".to_owned(),
        run: "r".to_owned(),
        owner_uid: Some(1),
        repeats,
        what: death(1, 2, "sleep", 3),
    };
    let counted = record(Some(repeats));
    let json = serde_json::to_value(&counted).unwrap();
    assert_eq!((&json["count"], &json["first_at"], &json["last_at"]), (&240.into(), &"a".into(), &"b".into()));
    assert_eq!(serde_json::from_value::<Record>(json).unwrap(), counted);
    let single = record(None);
    let json = serde_json::to_value(&single).unwrap();
    assert_eq!(json.get("count"), None);
    assert_eq!(serde_json::from_value::<Record>(json).unwrap(), single);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Every event is in one record or in one count, whatever happens in whichever order.
    #[test]
    fn every_event_counted_once(
        events in prop::collection::vec((0_u32..3, 0_u64..4, 0_usize..400, 0_u8..3, 0_u32..200), 1..600),
    ) {
        let mut counter = RepeatCounter::new(1 << 20);
        let (mut now, mut total) = (0.0, BTreeMap::new());
        let mut seen: BTreeMap<Option<u32>, u64> = BTreeMap::new();
        for (owner, session, signature, urgency, later) in &events {
            now += f64::from(*later) / 10.0;
            let urgency = [Urgency::Everyday, Urgency::Notable, Urgency::Lasting][usize::from(*urgency)];
            let signature = signature.to_string();
            let occurrence = occurrence(at(now), *owner, *session, &signature, urgency);
            *total.entry(Some(*owner)).or_insert(0_u64) += 1;
            if counter.take(at(now), &occurrence, || death(*session, 1, "x", 1)).is_some() {
                *seen.entry(Some(*owner)).or_default() += 1;
            }
            if *session == 0 {
                counter.session_ended(at(now), 1);
            }
            for counted in counter.due(at(now)) {
                *seen.entry(counted.owner).or_default() += counted.count;
            }
            let most = 3 * (OF_USER + OF_SESSION) + 100;
            prop_assert!(counter.streaks.len() <= most, "{} counts", counter.streaks.len());
        }
        for counted in counter.finish() {
            *seen.entry(counted.owner).or_default() += counted.count;
        }
        prop_assert_eq!(seen, total);
    }
}
