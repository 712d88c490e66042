use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use crate::engine::effect::Effect;
use crate::engine::id::{Bytes, Pid, ProcessId, Ticks, Uid};
use crate::engine::input::{Exec, Exit, ExitStatus, Fork, HostMemory, Image, KernelEvent, Lineage};

const AGENT: ProcessId = ProcessId { pid: Pid(100), start_time: Ticks(1_000) };
const HELPER: ProcessId = ProcessId { pid: Pid(101), start_time: Ticks(1_001) };

fn header() -> Header {
    Header {
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
        image: Image { path: path.into(), argv: vec![path.into()], truncated: false },
    })
}

/// An agent starts a helper, dies, and somebody reads the configuration again.
fn story() -> Vec<Entry> {
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
    let kernel = |at, event| Entry::Told(at, Input::Kernel(event));
    let mut story = vec![
        Entry::Told(second(10), Input::Host(host)),
        kernel(second(10), exec(AGENT, lineage(None, false), "/x/claude")),
        kernel(second(11), KernelEvent::Fork(fork)),
        kernel(second(11), exec(HELPER, lineage(Some(AGENT), false), "/x/mcp-server-git")),
        kernel(second(12), KernelEvent::Exit(exit)),
    ];
    story.extend((12..20).map(|n| Entry::Told(second(n), Input::Tick)));
    story.push(Entry::Configured(second(20), "[orphans]\nkeep = [\"*/mcp-server-git\"]\n".into()));
    story.push(Entry::Ended(second(21), End::Stopped));
    story
}

/// A recording in which each entry is a member of its own, and where each of them ends.
fn written(entries: &[Entry]) -> (Vec<u8>, Vec<usize>) {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    let mut ends = vec![writer.target().len()];
    for entry in entries {
        writer.push(entry).unwrap();
        writer.flush().unwrap();
        ends.push(writer.target().len());
    }
    assert_eq!(writer.whole(), writer.target().len() as u64);
    (writer.target().clone(), ends)
}

fn read(bytes: &[u8]) -> Result<(Vec<Entry>, Ending), ReadError> {
    let mut reader = Reader::new(bytes)?;
    let entries = reader.by_ref().collect::<Result<Vec<_>, _>>()?;
    let ending = reader.ending().cloned().expect("it has been read to its end");
    Ok((entries, ending))
}

#[test]
fn what_is_written_is_read() {
    let (bytes, _) = written(&story());
    let (entries, ending) = read(&bytes).unwrap();
    assert_eq!(entries, story());
    assert_eq!(ending, Ending::Said(BootTime(21_000_000_000), End::Stopped));
    assert_eq!(*Reader::new(&bytes[..]).unwrap().header(), header());
}

#[test]
fn wherever_a_recording_is_torn_all_before_the_tear_is_read() {
    let (bytes, ends) = written(&story());
    for length in ends[0]..bytes.len() {
        let (entries, ending) = read(&bytes[..length]).unwrap();
        let whole = ends.iter().filter(|end| **end <= length).count() - 1;
        assert_eq!(entries, story()[..whole], "torn at {length}");
        let at_an_end = ends.contains(&length);
        assert_eq!(ending == Ending::Unsaid, at_an_end, "torn at {length}: {ending:?}");
        assert_eq!(matches!(ending, Ending::Torn(_)), !at_an_end, "torn at {length}: {ending:?}");
    }
    for length in 0..ends[0] {
        let error = read(&bytes[..length]).unwrap_err();
        assert!(matches!(error, ReadError::Empty), "torn at {length}: {error}");
    }
}

#[test]
fn a_damaged_byte_is_a_tear_where_it_stands() {
    let (bytes, ends) = written(&story());
    // Of a member's ten bytes of head some say nothing that is checked: its time, and the system that it was made on.
    for at in ends[3] + 10..ends[4] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let (entries, ending) = read(&damaged).unwrap();
        assert_eq!(entries, story()[..3], "byte {at}");
        assert!(matches!(ending, Ending::Torn(_)), "byte {at}: {ending:?}");
    }
}

#[test]
fn lines_that_are_not_compressed_are_read_too() {
    let mut text = serde_json::to_string(&header()).unwrap() + "\n";
    for entry in story() {
        text += &(serde_json::to_string(&entry).unwrap() + "\n");
    }
    assert_eq!(read(text.as_bytes()).unwrap().0, story());
    let torn = &text[..text.len() - 5];
    let (entries, ending) = read(torn.as_bytes()).unwrap();
    assert_eq!(entries.len(), story().len() - 1);
    assert!(matches!(ending, Ending::Torn(_)), "{ending:?}");
}

#[test]
fn another_version_is_refused_and_named() {
    let newer = r#"{"agent_watchdog_recording":7,"written_by":"9.1.0","config":{"new":"form"}}"#.to_owned() + "\n";
    let error = read(newer.as_bytes()).unwrap_err();
    assert!(matches!(error, ReadError::Version { found: 7, .. }), "{error}");
    let message = error.to_string();
    assert!(
        message.contains("version 7") && message.contains("9.1.0") && message.contains("reads version 1"),
        "{message}"
    );
}

#[test]
fn what_is_no_recording_is_said_to_be_none() {
    let mut zip = GzEncoder::new(Vec::new(), Compression::fast());
    zip.write_all(b"a log\n").unwrap();
    for other in [&b"{}\n"[..], b"[1]\n", b"not json\n", b"\0\0\0\n", b"no line", &zip.finish().unwrap()] {
        let error = read(other).unwrap_err();
        assert!(matches!(error, ReadError::NotARecording), "{other:?}: {error}");
    }
    assert!(matches!(read(b"").unwrap_err(), ReadError::Empty));
}

#[test]
fn a_line_that_is_whole_and_unknown_is_an_error_that_names_it() {
    let text = serde_json::to_string(&header()).unwrap() + "\n{\"told\":[1,\"Tick\"]}\n{\"told\":[1,\"Tock\"]}\n";
    let error = read(text.as_bytes()).unwrap_err();
    assert!(matches!(error, ReadError::Line { line: 3, .. }), "{error}");
    assert!(error.to_string().contains("Tock"), "{error}");
}

#[test]
fn the_findings_are_those_that_the_engine_had() {
    let (bytes, _) = written(&story());
    let replay = replay(Reader::new(&bytes[..]).unwrap()).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&replay).unwrap());
}

#[test]
fn a_replay_asks_for_the_same_in_the_same_order_each_time() {
    let (bytes, _) = written(&story());
    let effects = || {
        let mut all: Vec<Effect> = Vec::new();
        run(&mut Reader::new(&bytes[..]).unwrap(), |_, _, effects| all.extend_from_slice(effects)).unwrap();
        all
    };
    let first = effects();
    assert!(first.len() > 10, "{first:?}");
    assert_eq!(first, effects());
}

#[test]
fn a_configuration_that_cannot_be_is_an_error() {
    let header = Header { config: "[orphans]\ngrace = 7\n".into(), ..header() };
    let text = serde_json::to_string(&header).unwrap() + "\n";
    let error = replay(Reader::new(text.as_bytes()).unwrap()).unwrap_err().to_string();
    assert!(error.contains("grace"), "{error}");
}
