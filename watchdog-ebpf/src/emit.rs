//! The only writer of the rings.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP, BPF_RB_RING_SIZE},
    helpers::{bpf_get_smp_processor_id, generated},
    maps::{Array, RingBuf},
};
use watchdog_common::{
    ARGV_MAX, ExecDeniedRecord, ExecRecord, ExitRecord, ForkDeniedRecord, ForkRecord, LossCause, MemoryStepRecord,
    PATH_MAX, ReclaimRecord, RecordHeader, RecordKind, SignalRecord, VictimRecord,
};

use crate::{
    atomic,
    maps::{ExecScratch, LIFECYCLE, LIFECYCLE_QUIET, LOST, MEMORY, MEMORY_QUIET, TRACK_EVERY_EXEC},
    namespace,
    task::{self, Task},
};

pub trait RingRecord: Copy + 'static {
    fn header(&self) -> &RecordHeader;
}

macro_rules! records {
    ($($record:ty),+) => {
        $(impl RingRecord for $record {
            #[inline(always)]
            fn header(&self) -> &RecordHeader {
                &self.header
            }
        })+
    };
}

records!(ForkRecord, ExitRecord, SignalRecord, VictimRecord, MemoryStepRecord, ReclaimRecord, ForkDeniedRecord);

/// The header of a record about the process of `leader`. Cost: three loads, two helper calls.
#[inline(always)]
pub fn header(kind: RecordKind, leader: Task) -> RecordHeader {
    RecordHeader {
        at: now(),
        start: leader.start(),
        tgid: leader.tgid(),
        uid: leader.uid(),
        kind: kind as u32,
        // SAFETY: the helper has no precondition.
        cpu: unsafe { bpf_get_smp_processor_id() as u32 },
    }
}

/// CLOCK_BOOTTIME of the daemon, nanoseconds. The helper came with Linux 5.8.
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: the helper has no precondition.
    namespace::boot_time(unsafe { generated::bpf_ktime_get_boot_ns() })
}

/// Sends a record on the lifecycle ring; `false`, and counted as lost, when there is no room.
#[inline(always)]
pub fn lifecycle<T: RingRecord>(record: &T) -> bool {
    send(&LIFECYCLE, record, notice(&LIFECYCLE, &LIFECYCLE_QUIET, record.header().at))
}

/// Reports a refused exec. The path is copied straight into the ring: it is too long for the stack.
#[inline(always)]
pub fn exec_denied(leader: Task, bprm: *const c_void, killed: bool) {
    let header = header(RecordKind::ExecDenied, leader);
    match LIFECYCLE.reserve::<ExecDeniedRecord>(0) {
        Some(mut entry) => {
            let record = entry.as_mut_ptr();
            // SAFETY: the reserved room for one record, which is exclusive until it is submitted. All fields but the path are
            // written whole. The path is written up to its NUL; behind it remain earlier bytes of the ring, which the
            // kernel has initialised. No reader looks behind the NUL.
            unsafe {
                (&raw mut (*record).header).write(header);
                (&raw mut (*record).ppid).write(leader.parent().tgid());
                (&raw mut (*record).killed).write(killed as u32);
                (&raw mut (*record).comm).write(leader.comm());
                let path = &mut *(&raw mut (*record).path);
                path[0] = 0;
                task::read_path(bprm, path);
            }
            entry.submit(notice(&LIFECYCLE, &LIFECYCLE_QUIET, header.at));
        }
        None => lost(RecordKind::ExecDenied as u32),
    }
}

/// As [`lifecycle`], and wakes the reader at once.
#[inline(always)]
pub fn urgent<T: RingRecord>(record: &T) -> bool {
    send(&LIFECYCLE, record, u64::from(BPF_RB_FORCE_WAKEUP))
}

/// Sends a record on the memory ring.
#[inline(always)]
pub fn memory<T: RingRecord>(record: &T) {
    send(&MEMORY, record, notice(&MEMORY, &MEMORY_QUIET, record.header().at));
}

/// Sends an exec with the text whose lengths its record states. A possible agent must be judged at once, unless every exec
/// is one: then there are too many.
#[inline(always)]
pub fn exec(scratch: &ExecScratch) {
    let ExecRecord { header, lineage, .. } = &scratch.record;
    let notice = if lineage.root == header.tgid && TRACK_EVERY_EXEC.get(0).is_none_or(|every| *every == 0) {
        u64::from(BPF_RB_FORCE_WAKEUP)
    } else {
        notice(&LIFECYCLE, &LIFECYCLE_QUIET, header.at)
    };
    // The verifier of Linux 6.1 loses the lengths' bounds on the way here, and the compiler drops a mask that it can prove
    // redundant: hence the volatile reads.
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
            notice,
        )
    };
    if sent < 0 {
        lost(RecordKind::Exec as u32);
    }
}

/// Counts a lost record in a slot of [`LossCause`].
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
fn send<T: RingRecord>(ring: &RingBuf, record: &T, notice: u64) -> bool {
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

/// The flags of a record's submission: whether the reader is notified.
///
/// A notice costs the process that forks, executes or exits more than all programs together: an interrupt, and the reader
/// on its caches. So the reader says until when it needs none (see `EventStream`), and the kernel passes a notice on only if
/// the reader has taken everything before. A ring that fills up meanwhile wakes the reader all the same.
#[inline(always)]
fn notice(ring: &RingBuf, quiet: &Array<u64>, at: u64) -> u64 {
    // SAFETY: the map's value, which is read once.
    let until = quiet.get_ptr(0).map_or(0, |until| unsafe { until.read_volatile() });
    if at >= until {
        return 0;
    }
    let is_filling = ring.query(u64::from(BPF_RB_AVAIL_DATA)) > ring.query(u64::from(BPF_RB_RING_SIZE)) / 4;
    u64::from(if is_filling { BPF_RB_FORCE_WAKEUP } else { BPF_RB_NO_WAKEUP })
}
