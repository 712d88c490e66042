use std::fs;
use std::path::Path;
use std::thread;

use rstest::rstest;

use super::*;
use crate::set_aside::StateNotes;
use watchdog_api::OomRecord;
use watchdog_history::StoredLine;
use watchdog_host::testing::eventually;

const LIMITS: StoreLimits = StoreLimits { retention: Duration::from_secs(86_400), max_bytes: 1 << 20 };
const RUN: &str = "2026-01-02T00:00:00Z";
/// The time that a busy machine may take for something immediate.
const PATIENCE: Duration = Duration::from_secs(20);

/// A writer whose clock the test moves.
fn writer(state_dir: &Path) -> HistoryThread {
    HistoryThread::new(
        Arc::new(RunContext { run: RUN.to_owned(), ..RunContext::now(state_dir, StateNotes::default()) }),
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
        let StoredLine::Record(json) = found else { panic!("{found:?}") };
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

impl HistoryThread {
    fn trouble_now(&self) -> Option<String> {
        self.problem().clone()
    }

    fn lost(&self) -> u64 {
        self.progress.lost.load(Relaxed)
    }
}

#[test]
fn run_has_start_and_end() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, ended) = start(RunContext::now(dir.path(), StateNotes::default()), LIMITS).unwrap();
    writer.write("2026-01-02T00:00:00Z".to_owned(), Some(7), numbered(1).what);
    writer.stop();
    ended.blocking_recv().unwrap();
    let records = records(dir.path());
    let run = writer.origin().run.clone();
    assert!(records.iter().all(|record| record.run == run));
    assert!(matches!(&records[0].what, Past::DaemonStarted { boot_id, .. } if boot_id.len() == 36), "{records:?}");
    assert_eq!((records[1].owner_uid, comm(records[1].clone())), (Some(7), Some("1".to_owned())));
    assert_eq!((records.len(), &records[2].what), (3, &Past::DaemonStopped));
    assert_eq!(writer.state().bytes, fs::metadata(dir.path().join(history::FILE)).unwrap().len());
}

#[test]
fn unstopped_run_has_no_end() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, ended) = start(RunContext::now(dir.path(), StateNotes::default()), LIMITS).unwrap();
    writer.write("2026-01-02T00:00:00Z".to_owned(), None, numbered(1).what);
    drop(writer);
    ended.blocking_recv().unwrap();
    assert_eq!((comms(dir.path()), records(dir.path()).len()), (names(1..2), 2), "its start, and the record");
}

#[test]
fn records_are_written_soon() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, _ended) = start(RunContext::now(dir.path(), StateNotes::default()), LIMITS).unwrap();
    eventually("there is a file", || dir.path().join(history::FILE).exists());
    writer.write(String::new(), None, numbered(1).what);
    eventually("the record is in it", || !comms(dir.path()).is_empty());
}

#[test]
fn flood_is_counted_without_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, ended) =
        start(RunContext::now(dir.path(), StateNotes::default()), StoreLimits { max_bytes: 1 << 30, ..LIMITS })
            .unwrap();
    const FLOOD: usize = 100_000;
    let began = Instant::now();
    for number in 0..FLOOD {
        writer.write(wall_clock().to_string(), None, numbered(number).what);
    }
    let took = began.elapsed();
    eventually("there is room for one more message", || writer.messages.offer(HistoryMessage::Stop).is_ok());
    ended.blocking_recv().unwrap();
    let lost = usize::try_from(writer.state().lost_records).unwrap();
    assert_eq!(comms(dir.path()).len() + lost, FLOOD);
    assert!(took < PATIENCE, "{took:?} for {FLOOD} records");
}

#[test]
fn unwritable_directory_is_retried() {
    let dir = tempfile::tempdir().unwrap();
    // Root may write anywhere, but not below a file.
    let state_dir = dir.path().join("state");
    fs::write(&state_dir, "").unwrap();
    let mut writer = writer(&state_dir);
    writer.take(&numbered(0));
    writer.run_due_timers().unwrap();
    assert!(writer.trouble_now().unwrap().contains("state"), "{:?}", writer.trouble_now());
    assert!(writer.due.unwrap() > Instant::now(), "it is retried later");
    assert_eq!(writer.lost(), 0, "what fits into memory is kept");

    fs::remove_file(&state_dir).unwrap();
    writer.flush();

    assert_eq!(writer.trouble_now(), None);
    assert_eq!((comms(&state_dir), writer.due), (names(0..1), None));
}

#[test]
fn stuck_disk_drops_oldest_records() {
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
    assert_eq!(comms(&state_dir), names(lost..RECORDS), "the newest are kept, and the count is right");
}

/// StoreLimits the file system as a full disk would: a tmpfs in a mount namespace of this thread.
fn small_disk(work: impl FnOnce(&Path) + Send) {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    let dir = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: only this thread gets another mount namespace and working directory; it holds no descriptor that
            // depends on either.
            unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }.unwrap();
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
            mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), c"size=128k,mode=700").unwrap();
            work(dir.path());
        });
    });
}

#[test]
fn full_disk_leaves_whole_records() {
    if !rustix::process::geteuid().is_root() {
        panic!("mounting requires root, as other tests of the daemon do");
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
        assert_eq!(comms(dir), names(0..number - 1), "each record is whole and written once");

        fs::remove_file(&ballast).unwrap();
        writer.take(&numbered(number));
        writer.flush();

        assert_eq!((writer.trouble_now(), writer.lost()), (None, 0));
        assert_eq!(comms(dir), names(0..number + 1), "pending records were written in order");
    });
}

#[test]
fn full_disk_at_start_loses_nothing() {
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

        // Its first record is longer than the one that did not fit.
        let mut writer = writer(dir);
        writer.take(&numbered(number));
        writer.run_due_timers().unwrap();
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
fn read_only_disk_is_survived() {
    use rustix::mount::{MountFlags, mount_remount};
    small_disk(|dir| {
        let mut writer = writer(dir);
        writer.take(&numbered(0));
        writer.flush();
        // A descriptor open for writing would keep the file system writable.
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
fn removed_file_is_recreated() {
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
fn foreign_file_is_replaced(#[case] garbage: Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(history::FILE), garbage).unwrap();
    let mut writer = writer(dir.path());
    writer.take(&numbered(0));
    writer.flush();
    assert_eq!(comms(dir.path()), names(0..1));
    assert!(dir.path().join("history.log.set-aside-1").exists());
}

#[test]
fn file_stays_within_limits() {
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
    assert!(left.len() < written, "nothing was removed");
    assert_eq!(left, names(written - left.len()..written), "the newest are kept, without a gap");
    assert!(matches!(records(dir.path())[0].what, Past::DaemonStarted { .. }), "the run is still named");
}
