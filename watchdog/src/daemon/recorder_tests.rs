use std::io::{BufReader, Read};
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;
use crate::engine::id::{Pid, ProcessId, Ticks, Uid};
use crate::engine::input::{Exec, Image, KernelEvent, Lineage};
use crate::recording::{Ending, Reader};

fn begin(file: &Path, whole_argv: bool) -> Result<(Recorder, Scribe), RecordError> {
    start(Wish { file, whole_argv }, &Config::default(), "# SECRET\n[orphans]\ngrace = \"5s\"\n")
}

fn exec() -> Input {
    let process = ProcessId { pid: Pid(7), start_time: Ticks(7) };
    let lineage = Lineage { root: process, parent: None, depth: 0, provisional: true, forked: false, witness: false };
    let image = Image {
        path: "/x/claude".into(),
        argv: ["claude", "-p", "SECRET"].map(str::to_owned).to_vec(),
        truncated: false,
    };
    let (at, uid, ppid, comm) = (BootTime(1), Uid(0), Pid(1), "claude".to_owned());
    Input::Kernel(KernelEvent::Exec(Exec { at, process, lineage, uid, ppid, comm, image }))
}

/// The entries, the ending, and all of the text.
fn read(file: &Path) -> (Vec<Entry>, Ending, String) {
    let mut reader = Reader::new(BufReader::new(File::open(file).unwrap())).unwrap();
    let entries: Vec<Entry> = reader.by_ref().map(Result::unwrap).collect();
    let ending = reader.ending().cloned().unwrap();
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(File::open(file).unwrap()).read_to_string(&mut text).unwrap();
    (entries, ending, text)
}

#[test]
fn a_recording_is_its_owners_alone_and_holds_no_arguments_and_no_comments() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("r");
    let (mut recorder, scribe) = begin(&file, false).unwrap();
    recorder.told(BootTime(5), &exec());
    recorder.configured(BootTime(6), "# SECRET\n[orphans]\ngrace = \"6s\"\n");
    drop(recorder);
    scribe.finish();

    let (entries, ending, text) = read(&file);
    assert!(
        matches!(&entries[..], [Entry::Told(BootTime(5), _), Entry::Configured(BootTime(6), text), Entry::Ended(..)]
        if text == "[orphans]\ngrace = \"6s\"\n"),
        "{entries:?}"
    );
    assert!(matches!(ending, Ending::Said(_, End::Stopped)), "{ending:?}");
    assert!(!text.contains("SECRET"), "{text}");
    assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn all_arguments_are_recorded_when_they_are_asked_for() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("r");
    let (mut recorder, scribe) = begin(&file, true).unwrap();
    recorder.told(BootTime(5), &exec());
    drop(recorder);
    scribe.finish();

    assert_eq!(read(&file).0[0], Entry::Told(BootTime(5), exec()));
}

#[test]
fn what_was_told_is_in_the_file_a_moment_later() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("r");
    let (mut recorder, scribe) = begin(&file, false).unwrap();
    recorder.told(BootTime(5), &Input::Tick);
    let end = Instant::now() + FLUSH * 10;
    while read(&file).0.is_empty() {
        assert!(Instant::now() < end, "nothing was written");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(read(&file).1, Ending::Unsaid, "as a crash would leave it");
    drop(recorder);
    scribe.finish();
}

#[test]
fn nothing_is_written_over_and_nothing_of_others_is_written_to() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("full"), "something").unwrap();
    std::fs::write(at("empty"), "").unwrap();
    std::fs::set_permissions(at("empty"), Permissions::from_mode(0o644)).unwrap();
    symlink(at("empty"), at("link")).unwrap();

    assert!(matches!(begin(&at("full"), false).unwrap_err(), RecordError::Taken(_)));
    assert!(matches!(begin(&at("link"), false).unwrap_err(), RecordError::Io { .. }));
    assert!(matches!(begin(dir.path(), false).unwrap_err(), RecordError::Io { .. }));
    assert!(matches!(begin(Path::new("/dev/null"), false).unwrap_err(), RecordError::NotOurs(_)));
    assert_eq!(std::fs::read_to_string(at("full")).unwrap(), "something");

    let (recorder, scribe) = begin(&at("empty"), false).unwrap();
    drop(recorder);
    scribe.finish();
    assert_eq!(std::fs::metadata(at("empty")).unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn a_writer_that_cannot_keep_up_ends_the_recording_and_nobody_waits() {
    let (queue, entries) = sync_channel(2);
    let fell_behind = Arc::new(AtomicBool::new(false));
    let mut recorder = Recorder { queue: Some(queue), fell_behind: Arc::clone(&fell_behind) };
    for n in 0..5 {
        recorder.told(BootTime(n), &Input::Tick);
    }
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("r");
    let wish = Wish { file: &path, whole_argv: false };
    let writer = Writer::new(open(&path).unwrap(), &header(wish, "")).unwrap();
    Work { writer, redactor: None, path: path.clone(), fell_behind }.run(&entries);

    let (entries, ending, _) = read(&path);
    assert_eq!(entries[..2], [0, 1].map(|n| Entry::Told(BootTime(n), Input::Tick)));
    assert!(matches!(ending, Ending::Said(_, End::FellBehind)), "{ending:?}");
}

#[test]
fn a_file_that_cannot_be_written_ends_the_recording_and_nobody_waits() {
    let (queue, entries) = sync_channel(2);
    let fell_behind = Arc::new(AtomicBool::new(false));
    let mut recorder = Recorder { queue: Some(queue), fell_behind: Arc::clone(&fell_behind) };
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("r");
    let wish = Wish { file: &path, whole_argv: false };
    let mut writer = Writer::new(open(&path).unwrap(), &header(wish, "")).unwrap();
    // As if the disk became full.
    *writer.target() = OpenOptions::new().write(true).open("/dev/full").unwrap();
    recorder.told(BootTime(1), &Input::Tick);
    recorder.told(BootTime(2), &Input::Tick);
    let mut work = Work { writer, redactor: None, path: path.clone(), fell_behind };
    thread::spawn(move || work.run(&entries)).join().unwrap();
    recorder.told(BootTime(3), &Input::Tick);

    assert!(recorder.queue.is_none(), "it knows that nobody listens");
    assert_eq!(read(&path).1, Ending::Unsaid);
}
