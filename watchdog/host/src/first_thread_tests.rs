//! A process whose first thread has exited is read as the living process that it is.

use std::collections::HashMap;
use std::io::Write;
use std::process::{Command, Stdio};

use super::limits::{CgroupTree, SeenCgroups};
use super::stat::Fields;
use super::statm::StatmReader;
use super::testing::{TestProcess, eventually};
use super::{inspect, memory, process::ProcessDir, scan};
use watchdog_types::{Bytes, Lineage, ProcessId, Stdin};

/// Its second thread holds 60 MiB and a listening socket.
const FIRST_THREAD_EXITS: &str = "
import ctypes, socket, threading, time
def second():
    time.sleep(0.1)
    block = bytearray(60 << 20)
    block[::4096] = b'x' * len(block[::4096])
    listener = socket.create_server(('127.0.0.1', 0))
    print('ready', flush=True)
    time.sleep(60)
threading.Thread(target=second).start()
ctypes.CDLL(None).syscall(60, 0)
";

fn without_first_thread() -> TestProcess {
    let subject = TestProcess::python(FIRST_THREAD_EXITS);
    eventually("its first thread exits", || {
        let dir = ProcessDir::open(subject.process.pid).unwrap().unwrap();
        let mut status = Vec::new();
        dir.read_up_to("status", 8192, &mut status).unwrap();
        Fields(&status).words("State").unwrap().next() == Some(b"Z")
    });
    subject
}

fn root(process: ProcessId) -> Lineage {
    Lineage { root: process, parent: None, depth: 0, provisional: false, forked: false, witness: false }
}

#[test]
fn exited_thread_gives_way_to_another() {
    // The older of the two other threads exits once it reads a line; the last one holds the memory.
    let program = FIRST_THREAD_EXITS.replace(
        "threading.Thread(target=second).start()",
        "
def older():
    import sys
    sys.stdin.readline()
    print(threading.get_native_id(), flush=True)
    ctypes.CDLL(None).syscall(60, 0)
threading.Thread(target=older).start()
threading.Thread(target=second).start()",
    );
    let mut subject = TestProcess::python_with(&program, Command::new("python3").stdin(Stdio::piped()));
    let mut buffer = Vec::new();
    let state = || std::fs::read_to_string(format!("/proc/{}/status", subject.process.pid)).unwrap();
    eventually("its first thread exits", || state().contains("State:\tZ"));
    let (dir, _) = ProcessDir::of(subject.process, &mut buffer).unwrap().unwrap();

    subject.child().stdin.take().unwrap().write_all(b"\n").unwrap();
    let older = subject.line();
    let task = format!("/proc/{}/task/{older}", subject.process.pid);
    eventually("its older thread exits", || !std::path::Path::new(&task).exists());

    dir.read_up_to("status", 8192, &mut buffer).unwrap().expect("the process lives");
    assert!(memory::of_status(&Fields(&buffer)).anon > Bytes::from_mib(60));
    assert!(dir.link("exe").unwrap().is_some_and(|path| path.windows(6).any(|part| part == b"python")));
    assert!(dir.file("statm").unwrap().is_some() && dir.list("fd").unwrap().is_some());
}

#[test]
fn memory_is_that_of_living_threads() {
    let subject = without_first_thread();

    let held = memory::memory(subject.process).unwrap().unwrap();
    let (share, _) = memory::share(subject.process).unwrap().unwrap();

    assert!(held.anon > Bytes::from_mib(60) && held.peak >= held.rss(), "{held:?}");
    assert!(share.proportional > Bytes::from_mib(60), "{share:?}");
}

#[test]
fn scan_sees_program_and_memory() {
    let subject = without_first_thread();
    let entries = HashMap::from([(subject.process.pid, (subject.process, root(subject.process)))]);

    let scan = scan::scan(&entries).unwrap();

    let seen = scan.processes.iter().find(|seen| seen.process == subject.process).unwrap();
    assert!(!seen.zombie && seen.image.path.contains("python") && seen.image.argv.len() == 3, "{seen:?}");
    assert!(seen.memory.anon > Bytes::from_mib(60), "{:?}", seen.memory);
}

#[test]
fn descriptors_are_those_of_living_threads() {
    let subject = without_first_thread();

    let seen = inspect::inspect(subject.process, &[]).unwrap().unwrap();

    assert!(!seen.zombie && seen.listens.len() == 1, "{seen:?}");
    assert!(seen.stdin != Stdin::Closed, "{seen:?}");
    assert!(CgroupTree::of_host().limits(subject.process, &mut SeenCgroups::new()).unwrap().is_some());
}

#[test]
fn stopped_process_is_seen_stopped() {
    use rustix::process::Signal;
    let subject = without_first_thread();

    super::pidfd::PidFd::of(subject.process).unwrap().unwrap().signal(Signal::STOP).unwrap();

    eventually("it is stopped", || inspect::inspect(subject.process, &[]).unwrap().unwrap().stopped);
}

#[test]
fn kept_statm_follows_to_living_thread() {
    let program = FIRST_THREAD_EXITS.replace("ctypes.CDLL", "time.sleep(2)\nctypes.CDLL");
    let subject = TestProcess::python(&program);
    let mut reader = StatmReader::default();
    let mut resident = || {
        let mut samples = Vec::new();
        reader.sample([subject.process], &mut samples).unwrap();
        samples.first().map(|sample| (u64::from(sample.anon) * 4096, sample.zombie))
    };

    let before = resident().unwrap();
    eventually("its first thread exits", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", subject.process.pid)).unwrap();
        status.contains("State:\tZ")
    });

    assert!(before.0 > 60 << 20, "{before:?}");
    let after = resident().unwrap();
    assert!(after.0 > 60 << 20 && !after.1, "{after:?}");
}
