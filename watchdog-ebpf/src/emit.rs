//! The only writer of the rings.

use aya_ebpf::{
    helpers::{bpf_get_smp_processor_id, generated},
    maps::RingBuf,
};
use watchdog_common::{ARGV_MAX, ExecRecord, Header, LossCause, PATH_MAX, RecordKind};

use crate::{
    maps::{ExecScratch, LIFECYCLE, LOST, MEMORY},
    task::Task,
};

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

/// Sends a record about life and death.
#[inline(always)]
pub fn lifecycle<T: Copy + 'static>(kind: RecordKind, record: &T) {
    send(&LIFECYCLE, kind, record);
}

/// Sends a record of close watch.
#[inline(always)]
pub fn memory<T: Copy + 'static>(kind: RecordKind, record: &T) {
    send(&MEMORY, kind, record);
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
            (&raw const *scratch).cast_mut().cast(),
            (size_of::<ExecRecord>() + text) as u64,
            0,
        )
    };
    if sent < 0 {
        lost(RecordKind::Exec as u32);
    }
}

/// Counts a loss, in a slot of [`LossCause`].
#[inline(always)]
pub fn lost(slot: u32) {
    const { assert!(RecordKind::Reclaim as u32 <= LossCause::MAP_FULL) };
    if let Some(count) = LOST.get_ptr_mut(slot) {
        // SAFETY: the counter is this CPU's own, and preemption is off.
        unsafe { *count += 1 };
    }
}

#[inline(always)]
fn send<T: Copy + 'static>(ring: &RingBuf, kind: RecordKind, record: &T) {
    match ring.reserve::<T>(0) {
        Some(mut entry) => {
            entry.write(*record);
            entry.submit(0);
        }
        None => lost(kind as u32),
    }
}
