use std::io::{BufReader, Read};
use std::os::unix::fs::symlink;
use std::thread;

use tempfile::TempDir;

use super::*;
use watchdog_recording::{Ending, RecordingReader};
use watchdog_types::{Exec, Image, KernelEvent, Lineage, Pid, ProcessId, Ticks, Uid};

fn begin(file: &Path, whole_argv: bool) -> Result<(Recorder, RecordingThread), RecordError> {
    start(RecordOptions { file, whole_argv }, &Config::default(), "# SECRET\n[orphans]\ngrace = \"5s\"\n")
}

fn exec() -> Input {
    let process = ProcessId { pid: Pid(7), start_time: Ticks(7) };
    let lineage = Lineage { root: process, parent: None, depth: 0, provisional: true, forked: false, witness: false };
    let image = Image::new("/x/claude", ["claude", "-p", "SECRET"]);
    let (at, uid, ppid, comm) = (BootTime(1), Uid(0), Pid(1), "claude".to_owned());
    Input::Kernel(KernelEvent::Exec(Exec { at, process, lineage, uid, ppid, comm, image }))
}

/// The entries, the end, and the whole text.
fn read(file: &Path) -> (Vec<RecordingEntry>, Ending, String) {
    let mut reader = RecordingReader::new(BufReader::new(File::open(file).unwrap())).unwrap();
    let entries: Vec<RecordingEntry> = reader.by_ref().map(Result::unwrap).collect();
    let ending = reader.ending().cloned().unwrap();
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(File::open(file).unwrap()).read_to_string(&mut text).unwrap();
    (entries, ending, text)
}

#[test]
fn recording_is_private_without_arguments() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("r");
    let (mut recorder, recording_thread) = begin(&file, false).unwrap();
    recorder.record_input(BootTime(5), &exec());
    recorder.configured(BootTime(6), "# SECRET\n[orphans]\ngrace = \"6s\"\n");
    drop(recorder);
    recording_thread.finish();

    let (entries, ending, text) = read(&file);
    assert!(
        matches!(&entries[..], [RecordingEntry::Input(BootTime(5), _), RecordingEntry::Configured(BootTime(6), text), RecordingEntry::Ended(..)]
        if text == "[orphans]\ngrace = \"6s\"\n"),
        "{entries:?}"
    );
    assert!(matches!(ending, Ending::Stated(_, RecordingEnd::Stopped)), "{ending:?}");
    assert!(!text.contains("SECRET"), "{text}");
    assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn whole_arguments_on_request() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("r");
    let (mut recorder, recording_thread) = begin(&file, true).unwrap();
    recorder.record_input(BootTime(5), &exec());
    drop(recorder);
    recording_thread.finish();

    assert_eq!(read(&file).0[0], RecordingEntry::Input(BootTime(5), exec()));
}

#[test]
fn inputs_are_flushed_soon() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("r");
    let (mut recorder, recording_thread) = begin(&file, false).unwrap();
    recorder.record_input(BootTime(5), &Input::Tick);
    let end = Instant::now() + FLUSH * 30;
    while read(&file).0.is_empty() {
        assert!(Instant::now() < end, "nothing was written");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(read(&file).1, Ending::Unstated, "as a crash would leave it");
    drop(recorder);
    recording_thread.finish();
}

#[test]
fn existing_and_foreign_files_are_refused() {
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

    let (recorder, recording_thread) = begin(&at("empty"), false).unwrap();
    drop(recorder);
    recording_thread.finish();
    assert_eq!(std::fs::metadata(at("empty")).unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn slow_writer_ends_the_recording() {
    let (queue, entries) = bounded_channel(2);
    let fell_behind = Arc::new(AtomicBool::new(false));
    let mut recorder = Recorder { queue: Some(queue), fell_behind: Arc::clone(&fell_behind) };
    for n in 0..5 {
        recorder.record_input(BootTime(n), &Input::Tick);
    }
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("r");
    let options = RecordOptions { file: &path, whole_argv: false };
    let writer = RecordingWriter::new(open(&path).unwrap(), &header(options, "")).unwrap();
    worker::run(RecordingWork::new(writer, None, path.clone(), fell_behind), &entries);

    let (entries, ending, _) = read(&path);
    assert_eq!(entries[..2], [0, 1].map(|n| RecordingEntry::Input(BootTime(n), Input::Tick)));
    assert!(matches!(ending, Ending::Stated(_, RecordingEnd::FellBehind)), "{ending:?}");
}

#[test]
fn write_error_ends_the_recording() {
    let (queue, entries) = bounded_channel(2);
    let fell_behind = Arc::new(AtomicBool::new(false));
    let mut recorder = Recorder { queue: Some(queue), fell_behind: Arc::clone(&fell_behind) };
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("r");
    let options = RecordOptions { file: &path, whole_argv: false };
    let mut writer = RecordingWriter::new(open(&path).unwrap(), &header(options, "")).unwrap();
    // As if the disk were full.
    *writer.target() = OpenOptions::new().write(true).open("/dev/full").unwrap();
    recorder.record_input(BootTime(1), &Input::Tick);
    recorder.record_input(BootTime(2), &Input::Tick);
    let work = RecordingWork::new(writer, None, path.clone(), fell_behind);
    thread::spawn(move || worker::run(work, &entries)).join().unwrap();
    recorder.record_input(BootTime(3), &Input::Tick);

    assert!(recorder.queue.is_none(), "the queue is closed");
    assert_eq!(read(&path).1, Ending::Unstated);
}
