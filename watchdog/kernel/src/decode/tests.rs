use proptest::prelude::*;
use watchdog_common::{LineageFlags, RawLineage};
use zerocopy::{Immutable, IntoBytes};

use super::*;
use watchdog_types::Ticks;

const TICK: u64 = raw::NANOS_PER_TICK;

fn header(kind: RecordKind) -> RecordHeader {
    RecordHeader { at: 5_000, start: 7 * TICK + 3, tgid: 42, uid: 1000, kind: kind as u32, cpu: 1 }
}

fn subject() -> ProcessId {
    ProcessId { pid: Pid(42), start_time: Ticks(7) }
}

fn exec_bytes(path: &[u8], argv: &[u8], argv_total: u32) -> Vec<u8> {
    let record = ExecRecord {
        header: header(RecordKind::Exec),
        comm: *b"sleep\0\0\0\0\0\0\0\0\0\0\0",
        ppid: 41,
        argv_total,
        path_len: path.len() as u16,
        argv_len: argv.len() as u16,
        ..ExecRecord::default()
    };
    [record.as_bytes(), path, argv].concat()
}

fn exit_with(status: u32, maxrss: u64, inherited_peak: u64, hiwater_rss: u64) -> Exit {
    let record = ExitRecord {
        header: header(RecordKind::Exit),
        maxrss,
        inherited_peak,
        hiwater_rss,
        status,
        ..ExitRecord::default()
    };
    match decode(record.as_bytes()) {
        Ok(KernelEvent::Exit(exit)) => exit,
        other => panic!("{other:?}"),
    }
}

#[test]
fn fork_keeps_lineage() {
    let record = ForkRecord {
        header: header(RecordKind::Fork),
        lineage: RawLineage {
            root_start: 2 * TICK,
            parent_start: 3 * TICK + 1,
            root: 10,
            parent: 11,
            depth: 2,
            flags: LineageFlags::FORKED | LineageFlags::PROVISIONAL,
        },
        comm: *b"node\0garbage\0\0\0\0",
    };
    let expected = Fork {
        at: BootTime(5_000),
        process: subject(),
        lineage: Lineage {
            root: ProcessId { pid: Pid(10), start_time: Ticks(2) },
            parent: Some(ProcessId { pid: Pid(11), start_time: Ticks(3) }),
            depth: 2,
            provisional: true,
            forked: true,
            witness: false,
        },
        uid: Uid(1000),
        comm: "node".to_owned(),
    };
    assert_eq!(decode(record.as_bytes()), Ok(KernelEvent::Fork(expected)));
}

#[test]
fn exec_path_and_argv_decoded() {
    let Ok(KernelEvent::Exec(exec)) = decode(&exec_bytes(b"/bin/sleep", b"sleep\0\x30\0", 8)) else { panic!() };
    assert_eq!(exec.image.path, "/bin/sleep");
    assert_eq!(exec.image.argv, ["sleep", "0"]);
    assert!(!exec.image.truncated);
    assert_eq!((exec.comm.as_str(), exec.ppid, exec.lineage.parent), ("sleep", Pid(41), None));
}

#[test]
fn empty_arguments_kept() {
    let argv = |bytes: &[u8]| match decode(&exec_bytes(b"/x", bytes, bytes.len() as u32)) {
        Ok(KernelEvent::Exec(exec)) => exec.image.argv,
        other => panic!("{other:?}"),
    };
    assert_eq!(argv(b"a\0\0b\0"), ["a", "", "b"]);
    assert_eq!(argv(b"\0"), [""]);
    assert!(argv(b"").is_empty());
    assert_eq!(argv(b"\xff\0"), ["\u{fffd}"]);
}

#[test]
fn partial_argv_is_truncated() {
    let Ok(KernelEvent::Exec(exec)) = decode(&exec_bytes(b"/x", b"x\0lon", 900)) else { panic!() };
    assert!(exec.image.truncated);
    assert_eq!(exec.image.argv, ["x", "lon"]);
}

#[test]
fn impossible_lengths_refused() {
    let mut bytes = exec_bytes(b"/bin/sleep", b"sleep\0", 6);
    bytes.pop();
    assert_eq!(decode(&bytes), Err(DecodeError::BadText { path: 10, argv: 6, len: 15 }));
    assert_eq!(decode(&[0; 31]), Err(DecodeError::NoHeader(31)));
    assert_eq!(decode(&[0; 32]), Err(DecodeError::UnknownKind(0)));
    let cut_off = header(RecordKind::Signal);
    assert_eq!(decode(cut_off.as_bytes()), Err(DecodeError::TooShort { kind: RecordKind::Signal, len: 32 }));
}

#[test]
fn wait_status_is_code_or_signal() {
    assert_eq!(exit_with(3 << 8, 0, 0, 0).status, Some(ExitStatus::Code(3)));
    assert_eq!(exit_with(9, 0, 0, 0).status, Some(ExitStatus::Signal(9)));
    // With the bit of a core dump.
    assert_eq!(exit_with(0x80 | 11, 0, 0, 0).status, Some(ExitStatus::Signal(11)));
}

#[test]
fn peak_is_last_programs_or_unknown() {
    let peak = |maxrss, inherited, hiwater| exit_with(0, maxrss, inherited, hiwater).peak;
    assert_eq!(peak(500, 400, 30), Some(pages(30)));
    assert_eq!(peak(500, 400, 0), Some(pages(500)));
    assert_eq!(peak(500, 500, 0), None);
    assert_eq!(peak(0, 0, 0), None);
}

#[test]
fn victim_without_start_has_no_identity() {
    let mut record = VictimRecord { header: header(RecordKind::Oom), trigger: 9, ..VictimRecord::default() };
    let oom = |record: &VictimRecord| match decode(record.as_bytes()) {
        Ok(KernelEvent::Oom(oom)) => oom,
        other => panic!("{other:?}"),
    };
    assert_eq!((oom(&record).process, oom(&record).trigger), (Some(subject()), Pid(9)));
    record.header.start = 0;
    assert_eq!((oom(&record).process, oom(&record).pid), (None, Pid(42)));
}

fn exec_denied_record(executed: &[u8], killed: u32) -> ExecDeniedRecord {
    let mut path = [0; PATH_MAX];
    path[..executed.len()].copy_from_slice(executed);
    // Earlier bytes of the ring may follow the NUL.
    path[executed.len() + 1..].fill(b'x');
    let comm = *b"bash\0\0\0\0\0\0\0\0\0\0\0\0";
    ExecDeniedRecord { header: header(RecordKind::ExecDenied), ppid: 41, killed, comm, path }
}

#[test]
fn refused_fork_names_session_and_limit() {
    let record = ForkDeniedRecord {
        header: header(RecordKind::ForkDenied),
        root_start: 6 * TICK + 1,
        refused: 12,
        root: 40,
        live: 9,
        limit: 8,
        reserved: 0,
        comm: *b"node\0\0\0\0\0\0\0\0\0\0\0\0",
    };
    let expected = Denied {
        at: BootTime(5_000),
        process: subject(),
        uid: Uid(1000),
        comm: "node".to_owned(),
        what: Attempt::Fork { root: ProcessId { pid: Pid(40), start_time: Ticks(6) }, live: 9, bound: 8, refused: 12 },
    };
    assert_eq!(decode(record.as_bytes()), Ok(KernelEvent::Denied(expected)));
}

#[test]
fn refused_exec_keeps_path_and_outcome() {
    for (killed, lives_on) in [(0, true), (1, false)] {
        let Ok(KernelEvent::Denied(denied)) = decode(exec_denied_record(b"/x/claude", killed).as_bytes()) else {
            panic!("a refusal");
        };
        let path = "/x/claude".to_owned();
        assert_eq!(denied.what, Attempt::Exec { ppid: Pid(41), path, killed: !lives_on });
        assert_eq!((denied.process, denied.comm.as_str()), (subject(), "bash"));
    }
}

/// Bytes of a record of each kind, to be damaged.
fn whole_records() -> Vec<Vec<u8>> {
    fn bytes<T: IntoBytes + Immutable>(record: T) -> Vec<u8> {
        record.as_bytes().to_vec()
    }
    vec![
        bytes(ForkRecord { header: header(RecordKind::Fork), ..ForkRecord::default() }),
        exec_bytes(b"/usr/bin/node", b"node\0server.js\0", 15),
        bytes(ExitRecord { header: header(RecordKind::Exit), ..ExitRecord::default() }),
        bytes(VictimRecord { header: header(RecordKind::Oom), ..VictimRecord::default() }),
        bytes(SignalRecord { header: header(RecordKind::Signal), ..SignalRecord::default() }),
        bytes(MemoryStepRecord { header: header(RecordKind::MemoryStep), ..MemoryStepRecord::default() }),
        bytes(ReclaimRecord { header: header(RecordKind::Reclaim), ..ReclaimRecord::default() }),
        bytes(ForkDeniedRecord { header: header(RecordKind::ForkDenied), ..ForkDeniedRecord::default() }),
        bytes(exec_denied_record(b"/usr/bin/claude", 0)),
    ]
}

#[test]
fn every_kind_decodes() {
    let records = whole_records();
    assert_eq!(records.len(), RecordKind::ALL.len());
    for record in records {
        assert!(decode(&record).is_ok());
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
        let decoded = decode(&bytes);
        prop_assert!(bytes.len() >= size_of::<RecordHeader>() || decoded == Err(DecodeError::NoHeader(bytes.len())));
    }

    #[test]
    fn damaged_records_never_panic(
        which in 0..RecordKind::ALL.len(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..16),
        len in any::<prop::sample::Index>(),
    ) {
        let mut bytes = whole_records().swap_remove(which);
        for (at, value) in damage {
            // The kind stays, so that what comes after it is read.
            let at = at.index(bytes.len());
            if !(24..28).contains(&at) {
                bytes[at] = value;
            }
        }
        let kept = len.index(bytes.len() + 1);
        let whole = decode(&bytes);
        if kept < size_of::<RecordHeader>() {
            prop_assert_eq!(decode(&bytes[..kept]), Err(DecodeError::NoHeader(kept)));
        } else if kept < bytes.len() && which != 1 {
            prop_assert!(decode(&bytes[..kept]).is_err());
        }
        prop_assert!(which == 1 || whole.is_ok());
    }
}
