//! Real processes, paged out to a real swap file.

use std::cell::Cell;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rstest::rstest;
use rustix::process::Signal;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::*;
use crate::pidfd::PidFd;
use crate::swap;
use crate::testing::{SwapTurn, TestProcess, TestSwap, eventually, identity};
use watchdog_types::{Bytes, PageOutExclusion, Pid, ProcessId, SessionId, Ticks, Uid};

const MIB: u64 = 1 << 20;
/// What a subject of [`HOLDER`] holds besides its interpreter.
const HELD: Bytes = Bytes(96 * MIB);
/// Holds random bytes, and prints their checksum at each line that it reads.
const HOLDER: &str = "import os, sys, zlib
held = bytearray(os.urandom(1 << 20) * 96)
print('ready', flush=True)
for line in sys.stdin: print(zlib.crc32(held), flush=True)";

/// Whether the host has more swap than `own`, which the test added. Other processes may use it.
fn has_swap_besides(own: Bytes) -> bool {
    let has_swap = swap::totals().0 > own;
    if has_swap {
        eprintln!("skipped: this host has swap");
    }
    has_swap
}

fn holder() -> TestProcess {
    TestProcess::python_with(HOLDER, Command::new("python3").stdin(Stdio::piped()))
}

fn checksum(subject: &mut TestProcess) -> String {
    subject.child().stdin.as_mut().unwrap().write_all(b"sum\n").unwrap();
    subject.line()
}

/// Without limits that a test of this size would reach.
fn order(processes: &[ProcessId]) -> PageOut {
    let process = |id: &ProcessId| PageOutProcess { id: *id, uid: own_uid(), budget: Bytes(4096 * MIB) };
    PageOut {
        number: 7,
        session: SessionId(3),
        processes: processes.iter().map(process).collect(),
        rate: Bytes(1 << 40),
        reserve: Bytes(0),
    }
}

fn own_uid() -> Uid {
    Uid(rustix::process::geteuid().as_raw())
}

fn carried_out(order: &PageOut) -> PagedOut {
    page_out(order, &|| true)
}

/// The only process of an order.
fn only(order: &PageOut) -> PagedOutProcess {
    let answer = carried_out(order);
    assert_eq!((answer.number, answer.session), (order.number, order.session));
    let [process] = answer.processes.as_slice() else { panic!("{answer:?}") };
    process.clone()
}

fn outcome_of(process: ProcessId) -> PageOutOutcome {
    only(&order(&[process])).outcome
}

#[test]
fn paged_out_memory_returns_unchanged() {
    let Some(_swap) = TestSwap::new(160) else { return };
    let mut subject = holder();
    let sum = checksum(&mut subject);
    let paged = only(&order(&[subject.process]));
    assert_eq!(paged.outcome, PageOutOutcome::Done);
    assert!(paged.before.anon >= HELD && paged.after.anon < Bytes(2 * MIB), "{paged:?}");
    assert!(paged.swapped() >= HELD && paged.freed() >= HELD, "{paged:?}");

    assert_eq!(checksum(&mut subject), sum);
    let back = crate::memory::memory(subject.process).unwrap().unwrap();
    assert!(back.anon >= HELD, "{back:?}");
}

#[test]
fn range_above_two_gib_is_split() {
    let Some(_swap) = TestSwap::new(128) else { return };
    let subject = TestProcess::python(
        "import mmap, time
no_reserve = 0x4000
held = mmap.mmap(-1, 5 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
for at in (0, 3 << 30, (5 << 30) - (8 << 20)): held[at:at + (8 << 20)] = b'x' * (8 << 20)
print('ready', flush=True)
time.sleep(1000)",
    );
    let paged = only(&order(&[subject.process]));
    assert!(paged.outcome == PageOutOutcome::Done && paged.after.anon < Bytes(2 * MIB), "{paged:?}");
}

#[test]
fn budget_is_never_exceeded() {
    let Some(_swap) = TestSwap::new(160) else { return };
    let subject = holder();
    let mut limited = order(&[subject.process]);
    limited.processes[0].budget = Bytes(20 * MIB);
    let paged = only(&limited);
    assert_eq!(paged.outcome, PageOutOutcome::Stopped(PageOutStop::Budget));
    assert!(paged.freed() > Bytes(16 * MIB) && paged.freed() <= Bytes(20 * MIB), "{paged:?}");
}

#[test]
fn swap_reserve_remains_free() {
    let Some(_swap) = TestSwap::new(160) else { return };
    if has_swap_besides(Bytes(160 * MIB)) {
        return;
    }
    let subject = holder();
    let reserve = Bytes(swap::swap_free().0 - 40 * MIB);
    let paged = only(&PageOut { reserve, ..order(&[subject.process]) });
    assert_eq!(paged.outcome, PageOutOutcome::Stopped(PageOutStop::SwapReserve));
    assert!(
        paged.swapped() <= Bytes(40 * MIB) && paged.swapped() >= Bytes(24 * MIB),
        "{paged:?} {reserve:?} {:?}",
        swap::swap_free()
    );
    // The kernel reserves swap slots in batches for each processor, and a small guest swaps by itself.
    let taken_by_others = Bytes(8 * MIB);
    assert!(swap::swap_free() + taken_by_others >= reserve, "{:?} of {reserve:?}", swap::swap_free());
}

#[test]
fn rate_limits_order() {
    let Some(_swap) = TestSwap::new(160) else { return };
    let subject = holder();
    let answer = carried_out(&PageOut { rate: Bytes(64 * MIB), ..order(&[subject.process]) });
    assert!(answer.took >= Duration::from_millis(1_300), "{answer:?}");
    assert!(answer.cpu < answer.took && answer.cpu > Duration::ZERO, "{answer:?}");
}

#[test]
fn cancelled_order_spares_remaining_processes() {
    let Some(_swap) = TestSwap::new(160) else { return };
    let (first, second) = (holder(), holder());
    let asked = Cell::new(0);
    let proceed = || {
        asked.set(asked.get() + 1);
        asked.get() < 4
    };
    let both = order(&[first.process, second.process]);
    let answer = page_out(&both, &proceed);
    let cancelled = PageOutOutcome::Stopped(PageOutStop::Cancelled);
    assert!(answer.processes.iter().all(|process| process.outcome == cancelled), "{answer:?}");
    assert!(answer.processes[0].after.anon > Bytes(16 * MIB), "{answer:?}");
    assert!(crate::memory::memory(second.process).unwrap().unwrap().anon >= HELD);
}

#[test]
fn without_swap_only_files() {
    let _turn = SwapTurn::take();
    if has_swap_besides(Bytes(0)) {
        return;
    }
    let subject = holder();
    let paged = only(&order(&[subject.process]));
    assert_eq!(paged.outcome, PageOutOutcome::NoSwap);
    assert!(paged.after.anon >= HELD && paged.swapped() == Bytes(0), "{paged:?}");
}

#[test]
fn exited_process_is_gone() {
    // Until the process is dead, a page-out may move some of its memory to another test's swap.
    let _turn = SwapTurn::take();
    let mut subject = holder();
    let stranger = ProcessId { start_time: Ticks(subject.process.start_time.0 + 1), ..subject.process };
    assert_eq!(outcome_of(stranger), PageOutOutcome::Gone);
    PidFd::of(subject.process).unwrap().unwrap().signal(Signal::KILL).unwrap();
    eventually("a zombie", || outcome_of(subject.process) == PageOutOutcome::Gone);
    subject.child().wait().unwrap();
    assert_eq!(outcome_of(subject.process), PageOutOutcome::Gone);
}

#[rstest]
#[case::locked(
    "import ctypes, mmap
page = mmap.mmap(-1, 4096)
assert ctypes.CDLL(None).mlock(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(page))), 4096) == 0",
    PageOutExclusion::Locked
)]
#[case::secret_memory(
    "import ctypes, mmap, os
secret = ctypes.CDLL(None).syscall(447, 0)
assert secret >= 0
os.ftruncate(secret, 4096)
page = mmap.mmap(secret, 4096)",
    PageOutExclusion::SecretMemory
)]
#[case::real_time("import os; os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))", PageOutExclusion::RealTime)]
#[case::real_time_thread(
    "import os, threading
go = threading.Event()
def work(): os.sched_setscheduler(threading.get_native_id(), os.SCHED_FIFO, os.sched_param(1)); go.set(); time.sleep(1000)
import time
threading.Thread(target=work, daemon=True).start(); go.wait()",
    PageOutExclusion::RealTime
)]
fn protected_process_is_excluded(#[case] program: &str, #[case] why: PageOutExclusion) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let subject = TestProcess::python(&format!("{program}\nimport time; print('ready', flush=True); time.sleep(1000)"));
    let paged = only(&order(&[subject.process]));
    assert_eq!(paged.outcome, PageOutOutcome::Excluded(why));
}

#[test]
fn key_holder_is_excluded() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("gpg-agent");
    std::fs::copy("/bin/sleep", &copy).unwrap();
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).unwrap();
    // Busybox chooses its applet by this name.
    let subject = TestProcess::spawn(Command::new(&copy).arg0("sleep").arg("1000"));
    eventually("it is executed", || {
        outcome_of(subject.process) == PageOutOutcome::Excluded(PageOutExclusion::KeyHolder)
    });
}

#[test]
fn other_users_process_is_excluded() {
    let subject = holder();
    let mut other = order(&[subject.process]);
    other.processes[0].uid = Uid(own_uid().0 + 1);
    assert_eq!(only(&other).outcome, PageOutOutcome::Excluded(PageOutExclusion::OtherUser));
    if let Some(kernel) =
        PidFd::open(Pid(2)).unwrap().and_then(|thread| thread.identity().unwrap()).filter(|it| it.kernel)
    {
        assert_eq!(outcome_of(kernel.process), PageOutOutcome::Excluded(PageOutExclusion::KernelThread));
    }
}

#[test]
fn missing_capability_is_named() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let subject = holder();
    let order = order(&[subject.process]);
    let without = std::thread::spawn(move || {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::SYS_NICE);
        set_capabilities(None, sets).unwrap();
        only(&order)
    });
    let paged = without.join().unwrap();
    assert_eq!((paged.freed(), paged.outcome), (Bytes(0), PageOutOutcome::NotPermitted));
}

#[test]
fn worker_has_lowest_priority() {
    let nice = std::thread::spawn(|| {
        lower_priority().unwrap();
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        // SAFETY: two numbers; 0 is the calling thread.
        let class = unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0) };
        (fields[19 - 3].to_owned(), class)
    });
    assert_eq!(nice.join().unwrap(), ("19".to_owned(), libc::c_long::from(IOPRIO_IDLE)));
    assert_ne!(identity(Pid(std::process::id())).start_time, Ticks(0));
}
