use std::os::unix::fs::{PermissionsExt, symlink};

use proptest::prelude::*;

use super::*;
use watchdog_engine::gate::LaunchLease;
use watchdog_types::{BootTime, Bytes, Pid, ProcessId, Ticks, Uid};

const BOOT: &str = "this boot";

fn process(pid: u32) -> ProcessId {
    ProcessId { pid: Pid(pid), start_time: Ticks(1) }
}

fn granted(pid: u32) -> GateRecord {
    let profile = "claude-code".to_owned();
    let (granted, expected) = (BootTime(5), Bytes(6));
    GateRecord::Granted(LaunchLease {
        process: process(pid),
        profile,
        uid: Uid(1000),
        granted,
        expected,
        cgroups: vec!["/box".to_owned()],
    })
}

/// A file that holds these records.
fn begun(dir: &Path, records: &[GateRecord]) -> StateFile<GateRecord> {
    let mut file = StoredFile::<GateRecord>::open(dir, BOOT, &StateNotes::default()).restore(drop);
    assert!(file.is_due(), "the first write replaces it");
    file.rewrite(records);
    assert!(!file.is_due());
    file
}

/// RequestedAction the next daemon reads, and why it set the file aside.
fn read_with_notes(dir: &Path) -> (Vec<GateRecord>, Vec<String>) {
    let notes = StateNotes::default();
    let stored = StoredFile::<GateRecord>::open(dir, BOOT, &notes);
    assert_eq!(stored.is_damaged(), !notes.all().is_empty() && stored.path.exists());
    (stored.records, notes.all().into_iter().map(|note| note.because).collect())
}

fn read_again(dir: &Path) -> Vec<GateRecord> {
    let (records, notes) = read_with_notes(dir);
    assert_eq!(notes, [""; 0]);
    records
}

#[test]
fn records_keep_their_order() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(read_again(dir.path()), []);
    let mut file = begun(dir.path(), &[granted(1)]);
    file.append(&GateRecord::Ended(process(1))).unwrap();
    file.append(&granted(2)).unwrap();
    assert_eq!(read_again(dir.path()), [granted(1), GateRecord::Ended(process(1)), granted(2)]);
    let mode = std::fs::metadata(dir.path().join(GateRecord::FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn removed_file_is_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(GateRecord::FILE);
    let mut file = begun(dir.path(), &[granted(1)]);
    std::fs::remove_file(&path).unwrap();
    assert!(file.is_due() && !file.is_whole());
    file.rewrite(&[granted(1)]);
    assert_eq!(read_again(dir.path()), [granted(1)]);
    std::fs::write(dir.path().join("other"), "").unwrap();
    std::fs::rename(dir.path().join("other"), &path).unwrap();
    assert!(file.is_due() && !file.is_whole(), "another file has its name");
}

#[test]
fn opening_changes_no_file() {
    let dir = tempfile::tempdir().unwrap();
    begun(dir.path(), &[granted(1), granted(2)]);
    let path = dir.path().join(GateRecord::FILE);
    let before = std::fs::read(&path).unwrap();
    for _ in 0..3 {
        assert_eq!(read_again(dir.path()), [granted(1), granted(2)]);
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}

#[test]
fn truncation_costs_only_what_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    begun(dir.path(), &[]);
    let path = dir.path().join(GateRecord::FILE);
    let all = [granted(1), granted(2), granted(3)];
    let mut ends = vec![std::fs::metadata(&path).unwrap().len() as usize];
    let mut file = begun(dir.path(), &[]);
    for record in &all {
        file.append(record).unwrap();
        ends.push(std::fs::metadata(&path).unwrap().len() as usize);
    }
    let content = std::fs::read(&path).unwrap();
    for cut in ends[0] - 2..content.len() {
        let parsed = parse::<GateRecord>(&content[..cut], BOOT).unwrap();
        // A record is whole without its line feeds.
        let whole = ends[1..].iter().filter(|end| **end <= cut + 2).count();
        assert_eq!((parsed.records.as_slice(), parsed.damaged), (&all[..whole], 0), "{cut} bytes are left");
    }
    for cut in 0..ends[0] - 2 {
        assert!(parse::<GateRecord>(&content[..cut], BOOT).is_err(), "{cut} bytes are left");
    }
}

#[test]
fn damaged_byte_costs_one_record() {
    let dir = tempfile::tempdir().unwrap();
    begun(dir.path(), &[]);
    let path = dir.path().join(GateRecord::FILE);
    let header = std::fs::metadata(&path).unwrap().len() as usize;
    let all = [granted(1), granted(2), granted(3)];
    begun(dir.path(), &all);
    let content = std::fs::read(&path).unwrap();
    for at in header..content.len() {
        for damage in [content[at] ^ 1, content[at] ^ 0x80, b'\n', 0] {
            let mut damaged = content.clone();
            damaged[at] = damage;
            let parsed = parse::<GateRecord>(&damaged, BOOT).unwrap();
            let left: Vec<_> = all.iter().filter(|record| parsed.records.contains(record)).collect();
            assert_eq!(left.len(), parsed.records.len(), "nothing is invented");
            assert!(left.len() >= 2, "byte {at} is {damage}: {:?}", parsed.records);
        }
    }
}

proptest! {
    #[test]
    fn garbage_is_never_a_record(content in proptest::collection::vec(any::<u8>(), 0..400), keep in 0_usize..300) {
        let mut whole = Vec::new();
        push(&mut whole, &StateHeader { version: VERSION, boot_id: BOOT.to_owned() }).unwrap();
        push(&mut whole, &granted(1)).unwrap();
        let keep = keep.min(whole.len());
        let mixed = [&whole[..keep], &content].concat();
        if let Ok(parsed) = parse::<GateRecord>(&mixed, BOOT) {
            prop_assert!(parsed.records.iter().all(|record| *record == granted(1)));
        }
    }
}

#[test]
fn damaged_file_is_kept_aside() {
    let dir = tempfile::tempdir().unwrap();
    begun(dir.path(), &[granted(1), granted(2)]);
    let path = dir.path().join(GateRecord::FILE);
    let damaged = String::from_utf8(std::fs::read(&path).unwrap()).unwrap().replacen("claude", "clauds", 1);
    std::fs::write(&path, &damaged).unwrap();
    let (records, notes) = read_with_notes(dir.path());
    assert_eq!(records, [granted(2)]);
    assert_eq!(notes, ["1 of 2 records are damaged; using the others"]);
    // Being killed before the file is replaced loses nothing.
    assert_eq!(read_with_notes(dir.path()).0, [granted(2)]);
    begun(dir.path(), &[granted(2)]);
    assert_eq!(std::fs::read_to_string(dir.path().join("gate.jsonl.set-aside-1")).unwrap(), damaged);
    assert_eq!(read_again(dir.path()), [granted(2)]);
}

#[test]
fn other_boot_is_ignored_silently() {
    let dir = tempfile::tempdir().unwrap();
    begun(dir.path(), &[granted(1)]);
    let notes = StateNotes::default();
    assert_eq!(StoredFile::<GateRecord>::open(dir.path(), "another boot", &notes).records(), []);
    assert_eq!(notes.all(), []);
}

#[test]
fn foreign_content_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(GateRecord::FILE);
    let of_version_3 = codec::encode_json("{\"version\":3,\"boot_id\":\"this boot\"}");
    for bad in [b"".as_slice(), b"\n", b"nonsense\n", b"{\"version\":7,\"boot_id\":\"this boot\"}\n{}\n", &of_version_3]
    {
        std::fs::write(&path, bad).unwrap();
        let (records, notes) = read_with_notes(dir.path());
        assert_eq!((records.len(), notes.len()), (0, 1), "{bad:?}");
        begun(dir.path(), &[]);
        assert_eq!(read_again(dir.path()), []);
    }
}

#[test]
fn hostile_file_is_moved_unread() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(GateRecord::FILE);
    let victim = dir.path().join("victim");
    std::fs::write(&victim, "untouched").unwrap();
    let plant: [&dyn Fn(); 4] = [
        &|| assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success()),
        &|| symlink(&victim, &path).unwrap(),
        &|| std::fs::create_dir(&path).unwrap(),
        &|| drop(std::os::unix::net::UnixListener::bind(&path).unwrap()),
    ];
    for plant in plant {
        let _ = std::fs::remove_file(&path);
        plant();
        let (records, notes) = read_with_notes(dir.path());
        assert_eq!((records.len(), notes.len()), (0, 1), "{notes:?}");
        begun(dir.path(), &[granted(1)]);
        assert_eq!(read_again(dir.path()), [granted(1)]);
    }
    assert_eq!(std::fs::read_to_string(victim).unwrap(), "untouched");
}

#[test]
fn first_format_is_still_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut text = serde_json::to_string(&StateHeader { version: 1, boot_id: BOOT.to_owned() }).unwrap();
    for record in [granted(1), granted(2)] {
        text += "\n";
        text += &serde_json::to_string(&record).unwrap();
    }
    let path = dir.path().join(GateRecord::FILE);
    std::fs::write(&path, format!("{text}\n{{\"granted\":{{\"proc")).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(read_again(dir.path()), [granted(1), granted(2)]);
}

#[test]
fn long_file_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let mut file = begun(dir.path(), &[]);
    let mut pid = 0;
    while !file.is_due() {
        pid += 1;
        file.append(&granted(pid)).unwrap();
        file.append(&GateRecord::Ended(process(pid))).unwrap();
    }
    assert!(std::fs::metadata(dir.path().join(GateRecord::FILE)).unwrap().len() > REWRITE_BYTES);
    file.rewrite(&[granted(pid)]);
    assert!(!file.is_due());
    file.append(&granted(7)).unwrap();
    assert_eq!(read_again(dir.path()), [granted(pid), granted(7)]);
}

#[test]
fn failed_write_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("below");
    let mut file = StoredFile::<GateRecord>::open(&below, BOOT, &StateNotes::default()).restore(drop);
    file.rewrite(&[granted(1)]);
    let refused = file.append(&granted(2)).unwrap_err().to_string();
    assert!(refused.contains("gate.jsonl") && refused.contains("No such file"), "{refused}");
    assert!(!file.is_whole() && !file.is_due(), "not retried at once");
    std::fs::create_dir(&below).unwrap();
    watchdog_host::testing::eventually("it is tried again", || file.is_due());
    file.rewrite(&[granted(1), granted(2)]);
    assert_eq!(read_again(&below), [granted(1), granted(2)]);
}
