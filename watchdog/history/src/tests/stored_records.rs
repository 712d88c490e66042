//! What is written, and for how long it is kept.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use jiff::SignedDuration;

use super::*;
use watchdog_api::Evidence;

#[test]
fn records_survive_reopening() {
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
fn directory_has_one_writer() {
    let dir = scratch();
    let (first, _) = Store::open(dir.path()).unwrap();
    assert!(matches!(Store::open(dir.path()), Err(StoreError::Taken(_))));
    drop(first);
    Store::open(dir.path()).expect("the lock ends with its holder");
}

#[test]
fn retention_keeps_boot_of_run() {
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
    let Some(StoredLine::Record(first)) = lines.next().unwrap() else { panic!("nothing is left") };
    assert_eq!(serde_json::from_str::<Record>(first).unwrap(), records[2]);
    drop(store);
    let (store, _) = Store::open(dir.path()).unwrap();
    assert!(!store.is_overdue(&LIMITS, now), "the beginning of a run does not make a history old");
}

#[test]
fn oversized_file_loses_oldest_records() {
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
fn leftover_copy_is_replaced() {
    let dir = history_of(&numbered(2));
    fs::write(dir.path().join("history.new"), "half of a copy").unwrap();
    let (mut store, _) = Store::open(dir.path()).unwrap();
    store.retire(&LIMITS, time(0)).unwrap();
    assert_eq!(read(dir.path()), (names(2), 0));
}

#[test]
fn oversized_evidence_is_left_out() {
    let mut record = finding("r", 0, 1, "opened", None);
    if let Past::Finding(finding) = &mut record.what {
        let pids = serde_json::Map::from_iter([("pids".to_owned(), vec![1; 100_000].into())]);
        finding.finding.evidence = Evidence::Raw(pids);
    }
    let line = codec::encode(&record);
    assert!(line.len() < 1_000, "{} bytes", line.len());
    let json = codec::decode(line.strip_suffix(b"\n").unwrap()).unwrap();
    let kept: Value = serde_json::from_str(json).unwrap();
    assert_eq!((&kept["summary"], &kept["evidence"]), (&"orphan 1".into(), &json!({ "left_out": true })));
}
