use std::fs;
use std::path::Path;

use rstest::rstest;

use super::*;
use crate::api::OomRecord;
use crate::daemon::set_aside::StateNotes;
use crate::history::Found;
use crate::host::testing::eventually;

const LIMITS: Limits = Limits { retention: Duration::from_secs(86_400), max_bytes: 1 << 20 };
const RUN: &str = "2026-01-02T00:00:00Z";
/// What a busy machine may take for what takes a moment.
const PATIENCE: Duration = Duration::from_secs(20);

/// A writer whose time the test moves.
fn writer(state_dir: &Path) -> Writer {
    Writer::new(
        Arc::new(Origin { run: RUN.to_owned(), ..Origin::now(state_dir, StateNotes::default()) }),
        Arc::default(),
        LIMITS,
    )
}

fn numbered(number: usize) -> Record {
    let oom = OomRecord { pid: None, start_time: None, session: None, comm: number.to_string() };
    Record { at: wall_clock().to_string(), run: RUN.to_owned(), owner_uid: None, repeats: None, what: Past::Oom(oom) }
}

fn comm(record: Record) -> Option<String> {
    match record.what {
        Past::Oom(oom) => Some(oom.comm),
        _ => None,
    }
}

fn records(state_dir: &Path) -> Vec<Record> {
    let mut lines = history::open(state_dir).unwrap();
    let mut records = Vec::new();
    while let Some(found) = lines.next().unwrap() {
        let Found::Record(json) = found else { panic!("{found:?}") };
        records.push(serde_json::from_str(json).unwrap());
    }
    records
}

fn comms(state_dir: &Path) -> Vec<String> {
    records(state_dir).into_iter().filter_map(comm).collect()
}

fn names(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| number.to_string()).collect()
}

impl Writer {
    fn trouble_now(&self) -> Option<String> {
        self.problem().clone()
    }

    fn lost(&self) -> u64 {
        self.progress.lost.load(Relaxed)
    }
}

#[test]
fn a_run_is_framed_by_its_beginning_and_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let (historian, ended) = start(Origin::now(dir.path(), StateNotes::default()), LIMITS).unwrap();
    historian.write("2026-01-02T00:00:00Z".to_owned(), Some(7), numbered(1).what);
    historian.stop();
    ended.blocking_recv().unwrap();
    let records = records(dir.path());
    let run = historian.origin().run.clone();
    assert!(records.iter().all(|record| record.run == run));
    assert!(matches!(&records[0].what, Past::DaemonStarted { boot_id, .. } if boot_id.len() == 36), "{records:?}");
    assert_eq!((records[1].owner_uid, comm(records[1].clone())), (Some(7), Some("1".to_owned())));
    assert_eq!((records.len(), &records[2].what), (3, &Past::DaemonStopped));
    assert_eq!(historian.state().bytes, fs::metadata(dir.path().join(history::FILE)).unwrap().len());
}

#[test]
fn a_run_that_nobody_stops_has_what_waits_written_and_no_end() {
    let dir = tempfile::tempdir().unwrap();
    let (historian, ended) = start(Origin::now(dir.path(), StateNotes::default()), LIMITS).unwrap();
    historian.write("2026-01-02T00:00:00Z".to_owned(), None, numbered(1).what);
    drop(historian);
    ended.blocking_recv().unwrap();
    assert_eq!((comms(dir.path()), records(dir.path()).len()), (names(1..2), 2), "its beginning, and the record");
}

#[test]
fn a_record_is_in_the_file_before_it_is_a_second_old() {
    let dir = tempfile::tempdir().unwrap();
    let (historian, _ended) = start(Origin::now(dir.path(), StateNotes::default()), LIMITS).unwrap();
    eventually("there is a file", || dir.path().join(history::FILE).exists());
    let wrote = Instant::now();
    historian.write(String::new(), None, numbered(1).what);
    eventually("the record is in it", || !comms(dir.path()).is_empty());
    assert!(wrote.elapsed() < Duration::from_secs(1), "it took {:?}", wrote.elapsed());
}

#[test]
fn a_flood_is_counted_where_it_is_too_much_and_never_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let (historian, ended) =
        start(Origin::now(dir.path(), StateNotes::default()), Limits { max_bytes: 1 << 30, ..LIMITS }).unwrap();
    const FLOOD: usize = 100_000;
    let began = Instant::now();
    for number in 0..FLOOD {
        historian.write(wall_clock().to_string(), None, numbered(number).what);
    }
    let took = began.elapsed();
    eventually("there is room for one more message", || historian.messages.try_send(Message::Stop).is_ok());
    ended.blocking_recv().unwrap();
    let lost = usize::try_from(historian.state().lost_records).unwrap();
    assert_eq!(comms(dir.path()).len() + lost, FLOOD);
    assert!(took < PATIENCE, "{took:?} for {FLOOD} records");
}

#[test]
fn a_directory_that_cannot_be_written_is_reported_and_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    // Root writes where it likes: a file in the directory's place stops it too.
    let state_dir = dir.path().join("state");
    fs::write(&state_dir, "").unwrap();
    let mut writer = writer(&state_dir);
    writer.take(&numbered(0));
    assert!(writer.trouble_now().unwrap().contains("state"), "{:?}", writer.trouble_now());
    assert!(writer.due.unwrap() > Instant::now(), "it is tried again, later");
    assert_eq!(writer.lost(), 0, "what fits into memory waits");

    fs::remove_file(&state_dir).unwrap();
    writer.flush();

    assert_eq!(writer.trouble_now(), None);
    assert_eq!((comms(&state_dir), writer.due), (names(0..1), None));
}

#[test]
fn a_disk_that_takes_nothing_for_long_costs_the_oldest_records_and_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let state_dir = dir.path().join("state");
    fs::write(&state_dir, "").unwrap();
    let mut writer = writer(&state_dir);
    const RECORDS: usize = 10_000;
    for number in 0..RECORDS {
        writer.take(&numbered(number));
        assert!(writer.pending.bytes <= PENDING_BYTES);
    }
    fs::remove_file(&state_dir).unwrap();
    writer.flush();
    let lost = usize::try_from(writer.lost()).unwrap();
    assert!(lost > 0 && lost < RECORDS, "{lost} are lost");
    assert_eq!(comms(&state_dir), names(lost..RECORDS), "the young ones are there, and the count is right");
}

/// Where a file grows no larger than this, as on a disk that is full: a file system in memory, in a mount namespace that
/// only this thread has.
fn small_disk(work: impl FnOnce(&Path) + Send) {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    let dir = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: only this thread gets another mount namespace, and with it another working directory; it holds no
            // descriptor that depends on either.
            unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }.unwrap();
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
            mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), c"size=128k,mode=700").unwrap();
            work(dir.path());
        });
    });
}

#[test]
fn a_full_disk_loses_history_only_and_leaves_no_half_of_a_record() {
    if !rustix::process::geteuid().is_root() {
        panic!("a mount needs root, as the other tests of the daemon do");
    }
    small_disk(|dir| {
        let mut writer = writer(dir);
        let ballast = dir.join("ballast");
        fs::write(&ballast, vec![1; 64 << 10]).unwrap();
        let mut number = 0;
        while writer.trouble_now().is_none() {
            writer.take(&numbered(number));
            writer.flush();
            number += 1;
            assert!(number < 100_000, "the disk is never full");
        }
        let problem = writer.trouble_now().unwrap();
        assert!(problem.contains("No space left") && problem.contains(history::FILE), "{problem}");
        assert_eq!(comms(dir), names(0..number - 1), "what was written is whole, and there once");

        fs::remove_file(&ballast).unwrap();
        writer.take(&numbered(number));
        writer.flush();

        assert_eq!((writer.trouble_now(), writer.lost()), (None, 0));
        assert_eq!(comms(dir), names(0..number + 1), "what waited was written, in its order");
    });
}

#[test]
fn a_disk_that_is_full_at_the_start_costs_one_look_at_the_file_and_no_record() {
    small_disk(|dir| {
        let ballast = dir.join("ballast");
        fs::write(&ballast, vec![1; 64 << 10]).unwrap();
        let mut before = writer(dir);
        let mut number = 0;
        while before.trouble_now().is_none() {
            before.take(&numbered(number));
            before.flush();
            number += 1;
            assert!(number < 100_000, "the disk is never full");
        }
        drop(before);
        let written = records(dir).len();

        // Its first record is longer than the one for which there was no room.
        let mut writer = writer(dir);
        writer.take(&numbered(number));
        let problem = writer.trouble_now().unwrap();
        assert!(problem.contains("No space left"), "{problem}");
        assert!(writer.store.is_some(), "the file stays open");
        assert_eq!(records(dir).len(), written);

        fs::remove_file(&ballast).unwrap();
        writer.flush();
        writer.flush();

        assert_eq!((writer.trouble_now(), writer.lost()), (None, 0));
        let records = records(dir);
        assert!(matches!(&records[written].what, Past::DaemonStarted { .. }), "{:?}", records[written]);
        assert_eq!(comm(records[written + 1].clone()), Some(number.to_string()));
        assert_eq!(records.len(), written + 2);
    });
}

#[test]
fn a_disk_that_becomes_read_only_is_survived_and_so_is_its_return() {
    use rustix::mount::{MountFlags, mount_remount};
    small_disk(|dir| {
        let mut writer = writer(dir);
        writer.take(&numbered(0));
        writer.flush();
        // A descriptor that is open for writing would keep the file system writable.
        writer.store = None;
        mount_remount(dir, MountFlags::RDONLY, c"").unwrap();
        writer.take(&numbered(1));
        writer.flush();
        let problem = writer.trouble_now().unwrap();
        assert!(problem.contains("Read-only"), "{problem}");
        assert_eq!(comms(dir), names(0..1), "it can still be read");

        mount_remount(dir, MountFlags::empty(), c"").unwrap();
        writer.flush();

        assert_eq!((writer.trouble_now(), comms(dir)), (None, names(0..2)));
    });
}

#[test]
fn a_file_that_somebody_removes_is_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path());
    writer.take(&numbered(0));
    writer.flush();
    fs::remove_file(dir.path().join(history::FILE)).unwrap();
    writer.take(&numbered(1));
    writer.flush();
    writer.flush();
    assert_eq!(comms(dir.path()), names(1..2));
    assert!(matches!(records(dir.path())[0].what, Past::DaemonStarted { .. }), "the new file names the run too");
    assert_eq!(writer.trouble_now(), None);
}

#[rstest]
#[case::of_another_kind(b"\x7fELF garbage".to_vec())]
#[case::zeros(vec![0; 300_000])]
fn whatever_was_in_the_files_place_a_run_is_recorded(#[case] garbage: Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(history::FILE), garbage).unwrap();
    let mut writer = writer(dir.path());
    writer.take(&numbered(0));
    writer.flush();
    assert_eq!(comms(dir.path()), names(0..1));
    assert!(dir.path().join("history.log.set-aside-1").exists());
}

#[test]
fn the_file_stays_within_its_bounds_however_much_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path());
    let max_bytes = 128 << 10;
    writer.limits.max_bytes = max_bytes;
    let mut written = 0;
    for _ in 0..20 {
        for _ in 0..100 {
            writer.take(&numbered(written));
            written += 1;
        }
        writer.retire_at = Instant::now();
        writer.flush();
        let bytes = fs::metadata(dir.path().join(history::FILE)).unwrap().len();
        assert!(bytes <= max_bytes + max_bytes / 8 + BATCH_BYTES as u64, "{bytes} bytes");
    }
    let left = comms(dir.path());
    assert!(left.len() < written, "nothing ever left");
    assert_eq!(left, names(written - left.len()..written), "the young ones are left, without a gap");
    assert!(matches!(records(dir.path())[0].what, Past::DaemonStarted { .. }), "the run is still named");
}
