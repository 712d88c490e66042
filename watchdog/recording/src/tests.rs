use std::io::Write;
use std::ops::ControlFlow;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use watchdog_engine::effect::Effect;
use watchdog_types::{
    Bytes, Exec, Exit, ExitStatus, Fork, HostMemory, Image, KernelEvent, Lineage, Pid, ProcessId, Ticks, Uid,
};

const AGENT: ProcessId = ProcessId { pid: Pid(100), start_time: Ticks(1_000) };
const HELPER: ProcessId = ProcessId { pid: Pid(101), start_time: Ticks(1_001) };

fn header() -> RecordingHeader {
    RecordingHeader {
        agent_watchdog_recording: VERSION,
        written_by: "0.0.0".into(),
        kernel: "6.1".into(),
        boot_id: "b".into(),
        booted_ns: 1_700_000_000_000_000_000,
        began: BootTime(10_000_000_000),
        whole_argv: false,
        config: "[orphans]\ngrace = \"5s\"\n".into(),
    }
}

fn lineage(parent: Option<ProcessId>, forked: bool) -> Lineage {
    Lineage { root: AGENT, parent, depth: u32::from(parent.is_some()), provisional: false, forked, witness: false }
}

fn exec(process: ProcessId, lineage: Lineage, path: &str) -> KernelEvent {
    KernelEvent::Exec(Exec {
        at: BootTime::from(process.start_time),
        process,
        lineage,
        uid: Uid(1_000),
        ppid: Pid(1),
        comm: "comm".into(),
        image: Image::new(path, [path]),
    })
}

/// An agent starts a helper, dies, and the configuration is reloaded.
fn story() -> Vec<RecordingEntry> {
    let second = |n: u64| BootTime(n * 1_000_000_000);
    let fork = Fork {
        at: second(11),
        process: HELPER,
        lineage: lineage(Some(AGENT), true),
        uid: Uid(1_000),
        comm: "claude".into(),
    };
    let exit = Exit { at: second(12), process: AGENT, status: Some(ExitStatus::Signal(9)), peak: None };
    let host = HostMemory {
        total: Bytes::from_mib(1_000),
        pressure_some_avg10: Some(0.12),
        pressure_full_avg10: Some(33.07),
        ..HostMemory::default()
    };
    let kernel = |at, event| RecordingEntry::Input(at, Input::Kernel(event));
    let mut story = vec![
        RecordingEntry::Input(second(10), Input::Host(host)),
        kernel(second(10), exec(AGENT, lineage(None, false), "/x/claude")),
        kernel(second(11), KernelEvent::Fork(fork)),
        kernel(second(11), exec(HELPER, lineage(Some(AGENT), false), "/x/mcp-server-git")),
        kernel(second(12), KernelEvent::Exit(exit)),
    ];
    story.extend((12..20).map(|n| RecordingEntry::Input(second(n), Input::Tick)));
    story.push(RecordingEntry::Configured(second(20), "[orphans]\nkeep = [\"*/mcp-server-git\"]\n".into()));
    story.push(RecordingEntry::Ended(second(21), RecordingEnd::Stopped));
    story
}

/// A recording in which each entry is a member of its own, and where each of them ends.
fn written(entries: &[RecordingEntry]) -> (Vec<u8>, Vec<usize>) {
    let mut writer = RecordingWriter::new(Vec::new(), &header()).unwrap();
    let mut ends = vec![writer.target().len()];
    for entry in entries {
        writer.push(entry).unwrap();
        writer.flush().unwrap();
        ends.push(writer.target().len());
    }
    assert_eq!(writer.whole(), writer.target().len() as u64);
    (writer.target().clone(), ends)
}

fn read(bytes: &[u8]) -> Result<(Vec<RecordingEntry>, Ending), RecordingReadError> {
    let mut reader = RecordingReader::new(bytes)?;
    let entries = reader.by_ref().collect::<Result<Vec<_>, _>>()?;
    let ending = reader.ending().cloned().expect("it has been read to its end");
    Ok((entries, ending))
}

#[test]
fn written_recording_is_read() {
    let (bytes, _) = written(&story());
    let (entries, ending) = read(&bytes).unwrap();
    assert_eq!(entries, story());
    assert_eq!(ending, Ending::Stated(BootTime(21_000_000_000), RecordingEnd::Stopped));
    assert_eq!(*RecordingReader::new(&bytes[..]).unwrap().header(), header());
}

#[test]
fn truncated_recording_reads_whole_members() {
    let (bytes, ends) = written(&story());
    for length in ends[0]..bytes.len() {
        let (entries, ending) = read(&bytes[..length]).unwrap();
        let whole = ends.iter().filter(|end| **end <= length).count() - 1;
        assert_eq!(entries, story()[..whole], "torn at {length}");
        let at_an_end = ends.contains(&length);
        assert_eq!(ending == Ending::Unstated, at_an_end, "torn at {length}: {ending:?}");
        assert_eq!(matches!(ending, Ending::Truncated(_)), !at_an_end, "torn at {length}: {ending:?}");
    }
    for length in 0..ends[0] {
        let error = read(&bytes[..length]).unwrap_err();
        assert!(matches!(error, RecordingReadError::Empty), "torn at {length}: {error}");
    }
}

#[test]
fn damaged_byte_ends_recording() {
    let (bytes, ends) = written(&story());
    // Of a member's ten bytes of head some say nothing that is checked: its time, and the system that it was made on.
    for at in ends[3] + 10..ends[4] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let (entries, ending) = read(&damaged).unwrap();
        assert_eq!(entries, story()[..3], "byte {at}");
        assert!(matches!(ending, Ending::Truncated(_)), "byte {at}: {ending:?}");
    }
}

#[test]
fn uncompressed_lines_are_read() {
    let mut text = serde_json::to_string(&header()).unwrap() + "\n";
    for entry in story() {
        text += &(serde_json::to_string(&entry).unwrap() + "\n");
    }
    assert_eq!(read(text.as_bytes()).unwrap().0, story());
    let torn = &text[..text.len() - 5];
    let (entries, ending) = read(torn.as_bytes()).unwrap();
    assert_eq!(entries.len(), story().len() - 1);
    assert!(matches!(ending, Ending::Truncated(_)), "{ending:?}");
}

#[test]
fn another_version_is_refused_and_named() {
    let newer = r#"{"agent_watchdog_recording":7,"written_by":"9.1.0","config":{"new":"form"}}"#.to_owned() + "\n";
    let error = read(newer.as_bytes()).unwrap_err();
    assert!(matches!(error, RecordingReadError::Version { found: 7, .. }), "{error}");
    let message = error.to_string();
    assert!(
        message.contains("version 7") && message.contains("9.1.0") && message.contains("reads version 1"),
        "{message}"
    );
}

#[test]
fn other_file_is_no_recording() {
    let mut zip = GzEncoder::new(Vec::new(), Compression::fast());
    zip.write_all(b"a log\n").unwrap();
    for other in [&b"{}\n"[..], b"[1]\n", b"not json\n", b"\0\0\0\n", b"no line", &zip.finish().unwrap()] {
        let error = read(other).unwrap_err();
        assert!(matches!(error, RecordingReadError::NotARecording), "{other:?}: {error}");
    }
    assert!(matches!(read(b"").unwrap_err(), RecordingReadError::Empty));
}

#[test]
fn unknown_line_is_error() {
    let text = serde_json::to_string(&header()).unwrap() + "\n{\"told\":[1,\"Tick\"]}\n{\"told\":[1,\"Tock\"]}\n";
    let error = read(text.as_bytes()).unwrap_err();
    assert!(matches!(error, RecordingReadError::Line { line: 3, .. }), "{error}");
    assert!(error.to_string().contains("Tock"), "{error}");
}

#[test]
fn replay_gives_engine_findings() {
    let (bytes, _) = written(&story());
    let replay = replay(RecordingReader::new(&bytes[..]).unwrap()).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&replay).unwrap());
}

#[test]
fn replay_is_deterministic() {
    let (bytes, _) = written(&story());
    let effects = || {
        let mut all: Vec<Effect> = Vec::new();
        run(&mut RecordingReader::new(&bytes[..]).unwrap(), |_, _, effects| {
            all.extend_from_slice(effects);
            ControlFlow::Continue(())
        })
        .unwrap();
        all
    };
    let first = effects();
    assert!(first.len() > 10, "{first:?}");
    assert_eq!(first, effects());
}

#[test]
fn invalid_recorded_config_is_error() {
    let header = RecordingHeader { config: "[orphans]\ngrace = 7\n".into(), ..header() };
    let text = serde_json::to_string(&header).unwrap() + "\n";
    let error = replay(RecordingReader::new(text.as_bytes()).unwrap()).unwrap_err().to_string();
    assert!(error.contains("grace"), "{error}");
}
