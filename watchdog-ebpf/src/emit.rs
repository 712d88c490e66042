//! The only writer of the rings.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::{BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::{bpf_get_smp_processor_id, generated},
    maps::RingBuf,
};
use watchdog_common::{
    ARGV_MAX, ExecDeniedRecord, ExecRecord, ExitRecord, ForkDeniedRecord, ForkRecord, Header, LossCause,
    MemoryStepRecord, NOTICE_INTERVAL_NANOS, OomRecord, PATH_MAX, ReclaimRecord, RecordKind, SignalRecord,
};

use crate::{
    atomic,
    maps::{ExecScratch, LAST_NOTICE, LIFECYCLE, LOST, MEMORY},
    task::{self, Task},
};

/// What goes into a ring.
pub trait Record: Copy + 'static {
    /// Its head.
    fn header(&self) -> &Header;
}

macro_rules! records {
    ($($record:ty),+) => {
        $(impl Record for $record {
            #[inline(always)]
            fn header(&self) -> &Header {
                &self.header
            }
        })+
    };
}

records!(ForkRecord, ExitRecord, SignalRecord, OomRecord, MemoryStepRecord, ReclaimRecord, ForkDeniedRecord);

/// Rings, as indices of [`LAST_NOTICE`].
const OF_LIFECYCLE: u32 = 0;
const OF_MEMORY: u32 = 1;

/// The head of a record about the process that `leader` stands for. Three loads, two helper calls.
#[inline(always)]
pub fn header(kind: RecordKind, leader: Task) -> Header {
    Header {
        at: now(),
        start: leader.start(),
        tgid: leader.tgid(),
        uid: leader.uid(),
        kind: kind as u32,
        // SAFETY: the helper has no precondition.
        cpu: unsafe { bpf_get_smp_processor_id() as u32 },
    }
}

/// CLOCK_BOOTTIME, nanoseconds. The helper came with Linux 5.8.
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: the helper has no precondition.
    unsafe { generated::bpf_ktime_get_boot_ns() }
}

/// Sends a record about life and death; `false` when there was no room, which is counted.
#[inline(always)]
pub fn lifecycle<T: Record>(record: &T) -> bool {
    send(&LIFECYCLE, record, notice(OF_LIFECYCLE, record.header().at))
}

/// Sends that a process was not let execute a file. The path goes into the ring straight away: it is too long for the
/// stack.
#[inline(always)]
pub fn exec_denied(leader: Task, bprm: *const c_void, killed: bool) {
    let header = header(RecordKind::ExecDenied, leader);
    match LIFECYCLE.reserve::<ExecDeniedRecord>(0) {
        Some(mut entry) => {
            let record = entry.as_mut_ptr();
            // SAFETY: the ring's room for one record, which is nobody else's until it is submitted. All fields but the path are
            // written whole. Of the path as much is written as there is, with a NUL behind it; the rest stays what the ring
            // held before, which is memory that the kernel has initialised, and bytes may be anything. No reader looks
            // behind the NUL.
            unsafe {
                (&raw mut (*record).header).write(header);
                (&raw mut (*record).ppid).write(leader.parent().tgid());
                (&raw mut (*record).killed).write(killed as u32);
                (&raw mut (*record).comm).write(leader.comm());
                let path = &mut *(&raw mut (*record).path);
                path[0] = 0;
                task::read_path(bprm, path);
            }
            entry.submit(notice(OF_LIFECYCLE, header.at));
        }
        None => lost(RecordKind::ExecDenied as u32),
    }
}

/// Sends a record about life and death that the reader is to have at once.
#[inline(always)]
pub fn urgent<T: Record>(record: &T) -> bool {
    send(&LIFECYCLE, record, u64::from(BPF_RB_FORCE_WAKEUP))
}

/// Sends a record of close watch.
#[inline(always)]
pub fn memory<T: Record>(record: &T) {
    send(&MEMORY, record, notice(OF_MEMORY, record.header().at));
}

/// Sends an exec with as much text as its record says.
#[inline(always)]
pub fn exec(scratch: &ExecScratch) {
    // The verifier of Linux 6.1 loses sight of the lengths' bounds on the way here, and a mask that the compiler could prove
    // idle would not be in the program: hence the volatile reads.
    // SAFETY: reads of initialised fields.
    let (path, argv) = unsafe {
        let ExecRecord { path_len, argv_len, .. } = &scratch.record;
        (core::ptr::from_ref(path_len).read_volatile(), core::ptr::from_ref(argv_len).read_volatile())
    };
    let text = (path as usize & (PATH_MAX - 1)) + (argv as usize & (ARGV_MAX.next_power_of_two() - 1));
    // SAFETY: the verifier proves that the range lies within the scratch's map value.
    let sent = unsafe {
        generated::bpf_ringbuf_output(
            (&raw const LIFECYCLE).cast_mut().cast(),
            (&raw const scratch.record).cast_mut().cast(),
            (size_of::<ExecRecord>() + text) as u64,
            notice(OF_LIFECYCLE, scratch.record.header.at),
        )
    };
    if sent < 0 {
        lost(RecordKind::Exec as u32);
    }
}

/// Counts a loss, in a slot of [`LossCause`].
#[inline(always)]
pub fn lost(slot: u32) {
    const { assert!((RecordKind::ExecDenied as u32) < LossCause::MAP_FULL) };
    if let Some(slots) = LOST.get_ptr_mut(0) {
        // SAFETY: the map's value, which no program removes. A program that interrupts this one on its CPU may count at the same
        // time, hence the atomic addition.
        if let Some(count) = unsafe { (*slots).get_mut(slot as usize) } {
            atomic::add((&raw mut *count).cast(), 1);
        }
    }
}

#[inline(always)]
fn send<T: Record>(ring: &RingBuf, record: &T, notice: u64) -> bool {
    match ring.reserve::<T>(0) {
        Some(mut entry) => {
            entry.write(*record);
            entry.submit(notice);
            true
        }
        None => {
            lost(record.header().kind);
            false
        }
    }
}

/// The flags of a record's submission: whether the reader is to be told of it.
///
/// To be told costs the process that forks, executes or exits more than all programs together: an interrupt, and the
/// reader on its caches. So the reader is told at most once in an interval, and looks once more by itself after a longer
/// one: see `EventStream`. CPUs may race for the moment; then it is told twice.
#[inline(always)]
fn notice(ring: u32, at: u64) -> u64 {
    let Some(last) = LAST_NOTICE.get_ptr_mut(ring) else { return 0 };
    // SAFETY: the map's value, which no program removes.
    unsafe {
        // `at` may be earlier than what another CPU has written.
        if at.saturating_sub(last.read_volatile()) < NOTICE_INTERVAL_NANOS {
            return u64::from(BPF_RB_NO_WAKEUP);
        }
        last.write_volatile(at);
    }
    0
}
