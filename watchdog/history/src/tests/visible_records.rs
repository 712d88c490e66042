//! Which records a viewer gets.

use super::*;
use watchdog_types::{Uid, Viewer};

#[test]
fn unknown_record_shown_unchanged() {
    let json = r#"{"at":"2026-01-02T00:00:00Z","run":"r","owner_uid":null,"type":"of_the_future","session":3,"x":[1]}"#;
    let record: Record = serde_json::from_str(json).unwrap();
    assert_eq!(record.what, Past::Unknown);
    let all = RecordFilter { viewer: Viewer::Root, since: None, session: Some(3) };
    assert_eq!(all.show(json).as_ref().map(|(_, shown)| shown.as_ref()), Some(json));
}

#[test]
fn user_sees_host_and_own_records() {
    let mine = RecordFilter { viewer: Viewer::User(Uid(1_000)), since: None, session: None };
    let json = |record: &Record| serde_json::to_string(record).unwrap();
    let shown =
        |record: &Record| mine.show(&json(record)).map(|(_, json)| serde_json::from_str::<Record>(&json).unwrap());
    for theirs in [oom("r", 0, Some(1_000), "x"), finding("r", 0, 1, "opened", None), started("r", 0, BOOT)] {
        assert_eq!(shown(&theirs).as_ref(), Some(&theirs));
    }
    for others in [oom("r", 0, Some(1_001), "x"), oom("r", 0, None, "of an unknown owner")] {
        assert_eq!(shown(&others), None);
    }
    let death = |more: Value| {
        let mut what = json!({ "type": "death", "pid": 7, "uid": 1_000, "comm": "node", "cause": "killed" });
        what.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        record("r", 0, Some(1_000), what)
    };
    let whole = death(json!({ "summary": "bash of another user did it", "sender": { "pid": 8 } }));
    assert_eq!(shown(&whole), Some(death(json!({}))));
    let both = host("r", 0, 7, &[(1, 1_000, 5), (2, 1_001, 6)]);
    assert_eq!(shown(&both), Some(host("r", 0, 7, &[(1, 1_000, 5)])));
}

#[test]
fn filter_by_session_and_time() {
    let chosen = |session, since| {
        let selection = RecordFilter { viewer: Viewer::Root, since, session };
        let records = [oom("r", 0, None, "a"), oom("r", 10, None, "b"), started("r", 20, BOOT)];
        records.iter().filter(|record| selection.show(&serde_json::to_string(record).unwrap()).is_some()).count()
    };
    assert_eq!(chosen(None, None), 3);
    assert_eq!(chosen(Some(3), None), 2);
    assert_eq!(chosen(Some(4), None), 0);
    assert_eq!(chosen(None, Some(time(10))), 2);
}
