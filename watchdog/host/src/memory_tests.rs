//! Memory of processes that hold a known amount of it.

use std::process::Command;

use super::super::testing::{TestProcess, eventually};
use super::*;
use watchdog_types::{Bytes, Ticks};

fn within_five_percent(amount: Bytes, expected: u64) -> bool {
    amount.0.abs_diff(expected) * 20 <= expected
}

#[test]
fn memory_kinds_exact_within_five_percent() {
    let program = "
import mmap, time
own = bytearray(b'x' * (150 << 20))
shared = mmap.mmap(-1, 40 << 20)
shared.write(b'x' * (40 << 20))
print('ready', flush=True)
time.sleep(60)
";
    let subject = TestProcess::python(program);
    let memory = memory(subject.process).unwrap().unwrap();
    assert!(within_five_percent(memory.anon, 155 << 20), "{memory:?}");
    assert!(within_five_percent(memory.shmem, 40 << 20), "{memory:?}");
    assert!(memory.peak >= memory.rss(), "{memory:?}");
    let (share, cost) = share(subject.process).unwrap().unwrap();
    assert!(within_five_percent(share.proportional, memory.charged().0), "{share:?} of {memory:?}");
    assert!(within_five_percent(share.private, share.proportional.0), "{share:?}");
    assert!(cost > Duration::ZERO);
}

#[test]
fn forked_memory_is_shared_proportionally() {
    let program = "
import os, time
block = bytearray(b'x' * (100 << 20))
child = os.fork()
if child == 0:
    os.read(0, 1)
    os._exit(0)
print('ready', flush=True)
time.sleep(60)
";
    let mut command = Command::new("python3");
    let subject = TestProcess::python_with(program, command.stdin(std::process::Stdio::piped()));
    let whole = memory(subject.process).unwrap().unwrap().charged();
    let (half, _) = share(subject.process).unwrap().unwrap();
    assert!(whole.0 >= 100 << 20);
    assert!((45 << 20..65 << 20).contains(&half.proportional.0), "{half:?} of {whole:?}");
    assert!(half.private.0 < 15 << 20, "{half:?}");
}

#[test]
fn zombie_has_no_memory() {
    let mut subject = TestProcess::spawn(&mut Command::new("true"));
    eventually("the zombie", || memory(subject.process).unwrap() == Some(Memory::default()));
    assert_eq!(share(subject.process).unwrap(), None);
    subject.child().wait().unwrap();
    assert_eq!(memory(subject.process).unwrap(), None);
}

#[test]
fn other_start_time_has_no_memory() {
    let subject = TestProcess::spawn(Command::new("sleep").arg("60"));
    assert!(memory(subject.process).unwrap().is_some());
    let reused = ProcessId { start_time: Ticks(subject.process.start_time.0 + 1), ..subject.process };
    assert_eq!(memory(reused).unwrap(), None);
    assert_eq!(share(reused).unwrap(), None);
}
