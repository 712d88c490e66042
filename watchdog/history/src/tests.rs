//! Records and histories for the tests.

mod damaged_files;
mod postmortems;
mod stored_records;
mod visible_records;

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use watchdog_api::{Past, Record};

const LIMITS: StoreLimits = StoreLimits { retention: Duration::from_secs(7 * 86_400), max_bytes: 1 << 20 };
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
    let lines: Vec<u8> = records.iter().flat_map(codec::encode).collect();
    store.append(&lines).unwrap();
    for record in records {
        store.noted(record.at.parse().unwrap());
    }
}

/// A directory in memory where there is one: thousands of files are synced to it.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A history that holds these records, without a writer.
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
            StoredLine::Record(json) => {
                if let Past::Oom(oom) = serde_json::from_str::<Record>(json).unwrap().what {
                    comms.push(oom.comm);
                }
            }
            StoredLine::Damaged => damaged += 1,
            StoredLine::Truncated => {}
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
