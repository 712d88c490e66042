//! A history whose writer is killed repeatedly at random times.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, and not what they share")]

use std::collections::hash_map::RandomState;
use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use watchdog_api::{Past, Record};
use watchdog_history::{Store, StoreLimits, StoredLine, codec, open};

const KILLS: u32 = 200;
/// So small that the file is copied many times in a writer's short life.
const LIMITS: StoreLimits = StoreLimits { retention: Duration::from_secs(86_400), max_bytes: 64 << 10 };
const DIRECTORY: &str = "HISTORY_TEST_DIRECTORY";
const FIRST: &str = "HISTORY_TEST_FIRST";

fn random(below: u64) -> u64 {
    RandomState::new().build_hasher().finish() % below
}

fn numbered(number: u64) -> Record {
    let at = Timestamp::now().to_string();
    let record = json!({ "at": at, "run": "r", "owner_uid": null, "type": "death", "number": number });
    serde_json::from_value(record).unwrap()
}

/// The numbers in a history, all of whose lines have to be sound.
fn numbers(dir: &Path) -> Vec<u64> {
    let mut lines = open(dir).unwrap();
    let mut numbers = Vec::new();
    while let Some(found) = lines.next().unwrap() {
        let StoredLine::Record(json) = found else { panic!("{found:?} behind {:?}", numbers.last()) };
        let record: Record = serde_json::from_str(json).unwrap();
        let Past::Death(members) = record.what else { panic!("{json}") };
        numbers.push(members["number"].as_u64().unwrap());
    }
    numbers
}

#[test]
fn killed_writer_keeps_acknowledged_records() {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    let mut torn = 0;
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writes_until_it_is_killed", "--ignored", "--nocapture"])
            .env(DIRECTORY, dir.path())
            .env(FIRST, (acknowledged + 1).to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut words = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let number = |word: String| word.strip_prefix("wrote ").and_then(|number| number.parse::<u64>().ok());
        let first = words.by_ref().find_map(number).expect("the writer begins");
        std::thread::sleep(Duration::from_micros(random(8_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        acknowledged = words.filter_map(number).last().unwrap_or(first);

        let (store, repairs) = Store::open(dir.path()).expect("it opens each time");
        torn += repairs.len();
        let numbers = numbers(dir.path());

        let last = *numbers.last().unwrap();
        assert!(last >= acknowledged, "kill {kill}: {acknowledged} was written, {last} is the last that is there");
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "kill {kill}: there are gaps in {numbers:?}");
        assert!(store.bytes() <= LIMITS.max_bytes * 2, "kill {kill}: {} bytes", store.bytes());
        acknowledged = last;
    }
    eprintln!("{acknowledged} records, {KILLS} kills, {torn} torn lines");
    assert!(acknowledged > u64::from(KILLS));
}

/// The writer of the test above.
#[test]
#[ignore = "started, and killed, by the test above"]
fn writes_until_it_is_killed() {
    let variable = |name: &str| -> OsString { std::env::var_os(name).expect("this is started by the test above") };
    let (mut store, _) = Store::open(Path::new(&variable(DIRECTORY))).unwrap();
    let mut next: u64 = variable(FIRST).to_str().unwrap().parse().unwrap();
    loop {
        if store.is_overdue(&LIMITS, Timestamp::now()) {
            store.retire(&LIMITS, Timestamp::now()).unwrap();
        }
        let batch = 1 + random(20);
        let lines: Vec<u8> = (next..next + batch).flat_map(|number| codec::encode(&numbered(number))).collect();
        store.append(&lines).unwrap();
        next += batch;
        writeln!(std::io::stdout(), "wrote {}", next - 1).unwrap();
    }
}
