//! A history under everything that can happen to a file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use serde_json::{Value, json};

use super::postmortem::{NoAnswer, Question, tell};
use super::*;
use crate::api::{End, Past, Record};
use crate::engine::id::Uid;
use crate::engine::view::Viewer;

/// Where a file that is no history is kept.
const ASIDE: &str = "history.log.set-aside-1";

const LIMITS: Limits = Limits { retention: Duration::from_secs(7 * 86_400), max_bytes: 1 << 20 };
const BOOT: &str = "boot-1";

fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + seconds).unwrap()
}

fn record(run: &str, at: i64, uid: Option<u32>, what: Value) -> Record {
    let mut record = json!({ "at": time(at).to_string(), "run": run, "owner_uid": uid });
    record.as_object_mut().unwrap().extend(what.as_object().unwrap().clone());
    serde_json::from_value(record).unwrap()
}

fn started(run: &str, at: i64, boot: &str) -> Record {
    record(run, at, None, json!({ "type": "daemon_started", "version": "1", "pid": 7, "boot_id": boot }))
}

fn oom(run: &str, at: i64, uid: Option<u32>, comm: &str) -> Record {
    record(run, at, uid, json!({ "type": "oom", "pid": 1, "start_time": 2, "session": 3, "comm": comm }))
}

fn host(run: &str, at: i64, available: u64, held: &[(u64, u32, u64)]) -> Record {
    let sessions: Vec<Value> = held
        .iter()
        .map(|(id, uid, bytes)| {
            json!({ "session": id, "profile": "p", "uid": uid, "memory_bytes": bytes, "processes": 1 })
        })
        .collect();
    let processes: Vec<Value> = held
        .iter()
        .map(|(id, uid, bytes)| {
            json!({ "pid": id, "start_time": 1, "session": id, "uid": uid, "name": "node", "memory_bytes": bytes })
        })
        .collect();
    let what = json!({
        "type": "host", "memory_total_bytes": 1_000, "memory_available_bytes": available, "swap_total_bytes": 0,
        "swap_free_bytes": 0, "shmem_bytes": 0, "pressure_some_avg10": 1.5, "pressure_full_avg10": null,
        "sessions": sessions, "processes": processes,
    });
    record(run, at, None, what)
}

fn finding(run: &str, at: i64, id: u64, change: &str, closed: Option<i64>) -> Record {
    let what = json!({
        "type": "finding", "change": change, "id": id, "kind": "orphan", "severity": "warning", "session": 1, "pid": 5,
        "start_time": 1, "opened_at": time(at).to_string(), "closed_at": closed.map(|at| time(at).to_string()),
        "closed_because": null, "summary": format!("orphan {id}"), "evidence": {}, "proposed_action": "report",
        "action_taken": null,
    });
    record(run, at, Some(1_000), what)
}

fn append(store: &mut Store, records: &[Record]) {
    let lines: Vec<u8> = records.iter().flat_map(line::encode).collect();
    store.append(&lines).unwrap();
    for record in records {
        store.noted(record.at.parse().unwrap());
    }
}

/// A directory in memory where there is one: thousands of files are synced to it.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A history that holds these records, with nobody writing it.
fn history_of(records: &[Record]) -> tempfile::TempDir {
    let dir = scratch();
    let (mut store, repairs) = Store::open(dir.path()).unwrap();
    assert_eq!(repairs, []);
    append(&mut store, records);
    dir
}

/// The names in the OOM records of a history, in their order, and how many lines are damaged.
fn read(dir: &Path) -> (Vec<String>, usize) {
    let mut lines = open(dir).unwrap();
    let (mut comms, mut damaged) = (Vec::new(), 0);
    while let Some(found) = lines.next().unwrap() {
        match found {
            Found::Record(json) => {
                if let Past::Oom(oom) = serde_json::from_str::<Record>(json).unwrap().what {
                    comms.push(oom.comm);
                }
            }
            Found::Damaged => damaged += 1,
            Found::Torn => {}
        }
    }
    (comms, damaged)
}

fn numbered(count: usize) -> Vec<Record> {
    (0..count).map(|number| oom("r", number as i64, None, &number.to_string())).collect()
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

#[test]
fn what_was_written_is_read_again_after_the_file_was_opened_anew() {
    let dir = history_of(&numbered(3));
    let (mut store, repairs) = Store::open(dir.path()).unwrap();
    assert_eq!(repairs, []);
    assert_eq!(store.oldest(), Some(time(0)));
    append(&mut store, &[oom("r", 9, None, "after\nwards")]);
    assert_eq!(read(dir.path()), (vec!["0".into(), "1".into(), "2".into(), "after\nwards".into()], 0));
    let file = dir.path().join(FILE);
    assert_eq!(fs::metadata(&file).unwrap().len(), store.bytes());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn only_one_daemon_at_a_time_writes_a_directory() {
    let dir = scratch();
    let (first, _) = Store::open(dir.path()).unwrap();
    assert!(matches!(Store::open(dir.path()), Err(StoreError::Taken(_))));
    drop(first);
    Store::open(dir.path()).expect("the lock ends with its holder");
}

#[test]
fn torn_anywhere_the_file_opens_with_every_whole_line() {
    const RECORDS: usize = 10;
    let whole = fs::read(history_of(&numbered(RECORDS)).path().join(FILE)).unwrap();
    let dir = scratch();
    let file = dir.path().join(FILE);
    for length in 0..=whole.len() {
        fs::write(&file, &whole[..length]).unwrap();
        let lines = whole[..length].iter().filter(|byte| **byte == b'\n').count();
        let records = lines.saturating_sub(1);

        let (mut store, repairs) = Store::open(dir.path()).unwrap();

        assert_eq!(read(dir.path()), (names(records), 0), "after {length} bytes");
        let torn = lines > 0 && whole[length - 1] != b'\n';
        let cut = whole[..length].iter().rev().take_while(|byte| **byte != b'\n').count() as u64;
        assert_eq!(repairs, if torn { vec![Repair::Torn(cut)] } else { vec![] }, "after {length} bytes");
        append(&mut store, &[oom("r", 100, None, "next")]);
        assert_eq!(read(dir.path()).0.last().map(String::as_str), Some("next"), "after {length} bytes");
    }
    assert!(!dir.path().join(ASIDE).exists());
}

#[test]
fn a_block_that_the_disk_garbled_costs_the_lines_in_it_and_no_other() {
    const RECORDS: usize = 60;
    let whole = fs::read(history_of(&numbered(RECORDS)).path().join(FILE)).unwrap();
    let dir = scratch();
    for (n, at) in (HEADER.len()..whole.len() - 512).step_by(97).enumerate() {
        let mut garbled = whole.clone();
        // Zeros are what a file system shows of a block that it never wrote.
        garbled[at..at + 512].fill(if n % 2 == 0 { 0 } else { 0xb6 });
        fs::write(dir.path().join(FILE), &garbled).unwrap();

        let (mut store, repairs) = Store::open(dir.path()).unwrap();
        let (before, _) = read(dir.path());
        store.retire(&LIMITS, time(0)).unwrap();

        // 512 bytes are in five lines of this length at most.
        assert!(before.len() >= RECORDS - 6, "{} of {RECORDS} are left", before.len());
        assert!(matches!(repairs[..], [Repair::Damaged(1..=6)]), "{repairs:?}");
        assert_eq!(read(dir.path()), (before, 0), "a copy has the whole lines and no others");
    }
}

#[test]
fn any_flipped_bit_is_noticed() {
    let dir = history_of(&numbered(2));
    let whole = fs::read(dir.path().join(FILE)).unwrap();
    for bit in HEADER.len() * 8..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(dir.path().join(FILE), &flipped).unwrap();
        let (left, _) = read(dir.path());
        // Upper and lower case of a checksum's digit are one bit apart.
        let upper =
            (whole[bit / 8] as char).is_ascii_hexdigit() && flipped[bit / 8].eq_ignore_ascii_case(&whole[bit / 8]);
        assert!(left.len() < 2 || upper, "bit {bit} went unnoticed");
        Store::open(dir.path()).expect("it opens in any case");
    }
}

#[rstest]
#[case::text(b"hello\n".to_vec())]
#[case::empty_lines(vec![b'\n'; 100])]
#[case::zeros(vec![0; 1 << 21])]
#[case::almost(b"agent-watchdog history 2\nnew things\n".to_vec())]
#[case::a_header_and_nothing_that_can_be_read([HEADER, &[0xff; 5_000], b"\n", &[1; 70_000], b"\n"].concat())]
fn what_is_no_history_is_set_aside_and_a_new_one_is_begun(#[case] garbage: Vec<u8>) {
    let dir = scratch();
    fs::write(dir.path().join(FILE), &garbage).unwrap();
    fs::write(dir.path().join(ASIDE), "of an earlier time").unwrap();

    let (mut store, repairs) = Store::open(dir.path()).unwrap();

    let aside = dir.path().join(ASIDE);
    assert!(matches!(&repairs[..], [Repair::SetAside { aside: kept, .. }] if *kept == aside), "{repairs:?}");
    assert_eq!(fs::read(aside).unwrap(), garbage);
    append(&mut store, &numbered(1));
    assert_eq!(read(dir.path()), (names(1), 0));
}

#[test]
fn whatever_stands_in_the_place_of_the_file_gives_way_and_a_link_is_not_followed() {
    for make in ["directory", "link", "fifo"] {
        let dir = scratch();
        let (file, elsewhere) = (dir.path().join(FILE), dir.path().join("elsewhere"));
        match make {
            "directory" => fs::create_dir(&file).unwrap(),
            "link" => std::os::unix::fs::symlink(&elsewhere, &file).unwrap(),
            _ => rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap(),
        }
        let (mut store, repairs) = Store::open(dir.path()).unwrap();
        assert!(matches!(repairs[..], [Repair::SetAside { .. }]), "{make}: {repairs:?}");
        append(&mut store, &numbered(1));
        assert_eq!(read(dir.path()), (names(1), 0), "{make}");
        assert!(!elsewhere.exists());
    }
}

#[test]
fn records_leave_when_they_are_too_old_and_the_boot_of_a_run_that_goes_on_is_remembered() {
    const DAY: i64 = 86_400;
    let dir = scratch();
    let (mut store, _) = Store::open(dir.path()).unwrap();
    let records = [
        started("a", 0, "boot-0"),
        oom("a", 0, None, "old"),
        started("b", DAY, BOOT),
        oom("b", 2 * DAY, None, "oldish"),
        oom("b", 4 * DAY, None, "young"),
    ];
    append(&mut store, &records);
    assert!(!store.is_overdue(&LIMITS, time(7 * DAY + DAY / 2)), "an eighth more is let pass");
    let now = time(8 * DAY);
    assert!(store.is_overdue(&LIMITS, now));
    let now = now + SignedDuration::from_hours(3 * 24);

    store.retire(&LIMITS, now).unwrap();

    assert_eq!(read(dir.path()).0, ["young"]);
    assert_eq!(store.oldest(), Some(time(4 * DAY)));
    assert!(!store.is_overdue(&LIMITS, now));
    let mut lines = open(dir.path()).unwrap();
    let Some(Found::Record(first)) = lines.next().unwrap() else { panic!("nothing is left") };
    assert_eq!(serde_json::from_str::<Record>(first).unwrap(), records[2]);
    drop(store);
    let (store, _) = Store::open(dir.path()).unwrap();
    assert!(!store.is_overdue(&LIMITS, now), "the beginning of a run does not make a history old");
}

#[test]
fn the_oldest_records_leave_when_the_file_is_too_large() {
    let dir = scratch();
    let (mut store, _) = Store::open(dir.path()).unwrap();
    let mut written = 0;
    while !store.is_overdue(&LIMITS, time(0)) {
        let records: Vec<Record> = (written..written + 100).map(|n| oom("r", 0, None, &n.to_string())).collect();
        append(&mut store, &records);
        written += 100;
    }
    assert!(!store.is_full(&LIMITS));

    store.retire(&LIMITS, time(0)).unwrap();

    let left = read(dir.path()).0;
    assert!(store.bytes() <= LIMITS.max_bytes / 4 * 3, "{} bytes are left", store.bytes());
    assert!(store.bytes() >= LIMITS.max_bytes / 4 * 3 - 1_000, "{} bytes are left", store.bytes());
    let expected: Vec<String> = (written - left.len()..written).map(|n| n.to_string()).collect();
    assert_eq!(left, expected, "the young ones are left, without a gap");
    assert_eq!(fs::metadata(dir.path().join(FILE)).unwrap().len(), store.bytes());
    append(&mut store, &[oom("r", 0, None, "next")]);
    assert_eq!(read(dir.path()).0.last().map(String::as_str), Some("next"));
}

#[test]
fn a_copy_that_a_kill_has_left_is_no_obstacle() {
    let dir = history_of(&numbered(2));
    fs::write(dir.path().join("history.new"), "half of a copy").unwrap();
    let (mut store, _) = Store::open(dir.path()).unwrap();
    store.retire(&LIMITS, time(0)).unwrap();
    assert_eq!(read(dir.path()), (names(2), 0));
}

#[test]
fn a_file_that_was_removed_is_noticed() {
    let dir = history_of(&[]);
    let (mut store, _) = Store::open(dir.path()).unwrap();
    fs::remove_file(dir.path().join(FILE)).unwrap();
    assert!(matches!(store.append(b"x\n"), Err(StoreError::Gone(_))));
}

#[test]
fn a_record_with_too_much_evidence_is_kept_without_it() {
    let mut record = finding("r", 0, 1, "opened", None);
    if let Past::Finding(finding) = &mut record.what {
        finding.finding.evidence.insert("pids".into(), vec![1; 100_000].into());
    }
    let line = line::encode(&record);
    assert!(line.len() < 1_000, "{} bytes", line.len());
    let json = line::decode(line.strip_suffix(b"\n").unwrap()).unwrap();
    let kept: Value = serde_json::from_str(json).unwrap();
    assert_eq!((&kept["summary"], &kept["evidence"]), (&"orphan 1".into(), &json!({ "left_out": true })));
}

#[test]
fn what_another_version_wrote_is_shown_as_it_is() {
    let json = r#"{"at":"2026-01-02T00:00:00Z","run":"r","owner_uid":null,"type":"of_the_future","session":3,"x":[1]}"#;
    let record: Record = serde_json::from_str(json).unwrap();
    assert_eq!(record.what, Past::Unknown);
    let all = Selection { viewer: Viewer::Root, since: None, session: Some(3) };
    assert_eq!(all.show(json).as_deref(), Some(json));
}

#[test]
fn a_user_sees_the_host_and_what_is_theirs() {
    let mine = Selection { viewer: Viewer::User(Uid(1_000)), since: None, session: None };
    let json = |record: &Record| serde_json::to_string(record).unwrap();
    let shown = |record: &Record| mine.show(&json(record)).map(|json| serde_json::from_str::<Record>(&json).unwrap());
    for theirs in [oom("r", 0, Some(1_000), "x"), finding("r", 0, 1, "opened", None), started("r", 0, BOOT)] {
        assert_eq!(shown(&theirs).as_ref(), Some(&theirs));
    }
    for others in [oom("r", 0, Some(1_001), "x"), oom("r", 0, None, "nobody knows whose")] {
        assert_eq!(shown(&others), None);
    }
    let death = |more: Value| {
        let mut what = json!({ "type": "death", "pid": 7, "uid": 1_000, "comm": "node", "cause": "killed" });
        what.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        record("r", 0, Some(1_000), what)
    };
    let whole = death(json!({ "summary": "bash of somebody else did it", "sender": { "pid": 8 } }));
    assert_eq!(shown(&whole), Some(death(json!({}))));
    let both = host("r", 0, 7, &[(1, 1_000, 5), (2, 1_001, 6)]);
    assert_eq!(shown(&both), Some(host("r", 0, 7, &[(1, 1_000, 5)])));
}

#[test]
fn a_session_and_a_span_are_chosen() {
    let chosen = |session, since| {
        let selection = Selection { viewer: Viewer::Root, since, session };
        let records = [oom("r", 0, None, "a"), oom("r", 10, None, "b"), started("r", 20, BOOT)];
        records.iter().filter(|record| selection.show(&serde_json::to_string(record).unwrap()).is_some()).count()
    };
    assert_eq!(chosen(None, None), 3);
    assert_eq!(chosen(Some(3), None), 2);
    assert_eq!(chosen(Some(4), None), 0);
    assert_eq!(chosen(None, Some(time(10))), 2);
}

/// Two boots: in the first a run that stopped and one that went down with the host; in the second one that died, and one
/// that may go on.
fn two_boots() -> tempfile::TempDir {
    let stopped = |run, at| record(run, at, None, json!({ "type": "daemon_stopped" }));
    history_of(&[
        started("r1", 0, "boot-0"),
        stopped("r1", 10),
        started("r2", 20, "boot-0"),
        finding("r2", 21, 1, "opened", None),
        finding("r2", 22, 2, "opened", None),
        finding("r2", 30, 2, "closed", Some(30)),
        host("r2", 100, 900, &[(1, 1_000, 50)]),
        oom("r2", 150, Some(1_001), "long before"),
        host("r2", 1_000, 800, &[(1, 1_000, 60), (2, 1_001, 10)]),
        finding("r2", 1_010, 3, "opened", None),
        finding("r2", 1_020, 3, "closed", Some(1_020)),
        host("r2", 1_300, 20, &[(1, 1_000, 55), (2, 1_001, 700)]),
        oom("r2", 1_305, Some(1_000), "victim"),
        host("r2", 1_310, 40, &[(2, 1_001, 710)]),
        oom("r2", 25, None, "heard of at the end"),
        started("r3", 2_000, BOOT),
        host("r3", 2_100, 500, &[]),
        started("r4", 3_000, BOOT),
        host("r4", 3_100, 500, &[]),
    ])
}

fn ask(
    dir: &Path,
    viewer: Viewer,
    boot: Option<i64>,
    going_on: Option<&str>,
) -> Result<crate::api::Postmortem, NoAnswer> {
    let question = Question { viewer, boot, going_on: going_on.map(ToOwned::to_owned), boot_id: BOOT.to_owned() };
    tell(|| open(dir), &question)
}

#[test]
fn a_postmortem_tells_who_grew_who_was_left_behind_and_what_was_killed() {
    let dir = two_boots();
    let told = ask(dir.path(), Viewer::Root, Some(-1), Some("r4")).unwrap();
    assert_eq!((told.run.as_str(), told.boot_id.as_str(), told.end), ("r2", "boot-0", End::HostWentDown));
    assert_eq!((told.from, told.to), (time(1_000).to_string(), time(1_310).to_string()));
    let trend = told.host.unwrap();
    assert_eq!(
        (trend.first.memory_available_bytes, trend.last.memory_available_bytes, trend.lowest_available_bytes),
        (800, 40, 20)
    );
    assert_eq!((trend.highest_pressure_some_avg10, trend.highest_pressure_full_avg10), (Some(1.5), None));
    let grew: Vec<_> = told.sessions.iter().map(|growth| (growth.last.session, growth.growth_bytes)).collect();
    assert_eq!(grew, [(2, 700), (1, -5)]);
    assert_eq!(told.processes[0].last.memory_bytes, 710);
    let findings: Vec<_> = told.findings.iter().map(|finding| finding.id).collect();
    assert_eq!(findings, [1, 3], "open since long before, and closed in these minutes");
    assert_eq!(told.killed, [serde_json::to_value(oom("r2", 1_305, Some(1_000), "victim")).unwrap()]);
}

#[test]
fn a_postmortem_shows_a_user_what_is_theirs() {
    let dir = two_boots();
    let told = ask(dir.path(), Viewer::User(Uid(1_001)), Some(-1), None).unwrap();
    assert_eq!(told.sessions.iter().map(|growth| growth.last.uid).collect::<Vec<_>>(), [1_001]);
    assert_eq!((told.findings.len(), told.killed.len()), (0, 0));
    assert_eq!(told.host.unwrap().last.memory_available_bytes, 40);
}

#[rstest]
#[case::the_daemon_lives(None, Some("r4"), "r3", End::DaemonDied)]
#[case::no_daemon_lives(None, None, "r4", End::DaemonDied)]
#[case::this_boot(Some(0), Some("r4"), "r3", End::DaemonDied)]
#[case::the_boot_before(Some(-1), None, "r2", End::HostWentDown)]
fn the_end_that_is_asked_for(
    #[case] boot: Option<i64>,
    #[case] going_on: Option<&str>,
    #[case] run: &str,
    #[case] end: End,
) {
    let told = ask(two_boots().path(), Viewer::Root, boot, going_on).unwrap();
    assert_eq!((told.run.as_str(), told.end), (run, end));
}

#[test]
fn a_stop_in_good_order_is_told_from_a_death_and_what_is_not_known_is_said() {
    let stopped = record("r", 5, None, json!({ "type": "daemon_stopped" }));
    let dir = history_of(&[started("r", 0, "boot-0"), stopped]);
    assert_eq!(ask(dir.path(), Viewer::Root, None, None).unwrap().end, End::Stopped);
    for (boot, going_on) in [(Some(-2), None), (Some(0), None), (None, Some("r"))] {
        let refusal = ask(dir.path(), Viewer::Root, boot, going_on).unwrap_err();
        assert!(matches!(refusal, NoAnswer::None(_)), "{refusal}");
    }
    let empty = scratch();
    assert!(matches!(ask(empty.path(), Viewer::Root, None, None), Err(NoAnswer::Read(_))));
}
