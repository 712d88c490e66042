//! Memory of processes that hold a known amount of it.

use std::process::Command;

use super::super::testing::{Subject, eventually};
use super::*;
use crate::engine::id::Ticks;

fn within_five_percent(amount: Bytes, expected: u64) -> bool {
    amount.0.abs_diff(expected) * 20 <= expected
}

#[test]
fn anonymous_and_shared_memory_are_told_apart_and_within_five_per_cent() {
    let program = "
import mmap, time
own = bytearray(b'x' * (150 << 20))
shared = mmap.mmap(-1, 40 << 20)
shared.write(b'x' * (40 << 20))
print('ready', flush=True)
time.sleep(60)
";
    let subject = Subject::python(program);
    let memory = memory(subject.process).unwrap().unwrap();
    assert!(within_five_percent(memory.anon, 155 << 20), "{memory:?}");
    assert!(within_five_percent(memory.shmem, 40 << 20), "{memory:?}");
    assert!(memory.peak >= memory.rss(), "{memory:?}");
    let (proportional, cost) = proportional(subject.process).unwrap().unwrap();
    assert!(within_five_percent(proportional, memory.charged().0), "{proportional:?} of {memory:?}");
    assert!(cost > Duration::ZERO);
}

#[test]
fn memory_that_a_fork_shares_is_halved_in_proportion() {
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
    let subject = Subject::python_with(program, command.stdin(std::process::Stdio::piped()));
    let whole = memory(subject.process).unwrap().unwrap().charged();
    let (half, _) = proportional(subject.process).unwrap().unwrap();
    assert!(whole.0 >= 100 << 20);
    assert!((45 << 20..65 << 20).contains(&half.0), "{half:?} of {whole:?}");
}

#[test]
fn a_zombie_holds_nothing_and_the_dead_are_gone() {
    let mut subject = Subject::spawn(&mut Command::new("true"));
    eventually("the zombie", || memory(subject.process).unwrap() == Some(Memory::default()));
    assert_eq!(proportional(subject.process).unwrap(), None);
    subject.child().wait().unwrap();
    assert_eq!(memory(subject.process).unwrap(), None);
}

#[test]
fn a_pid_with_another_start_has_no_memory() {
    let subject = Subject::spawn(Command::new("sleep").arg("60"));
    assert!(memory(subject.process).unwrap().is_some());
    let reused = ProcessId { start_time: Ticks(subject.process.start_time.0 + 1), ..subject.process };
    assert_eq!(memory(reused).unwrap(), None);
    assert_eq!(proportional(reused).unwrap(), None);
}
