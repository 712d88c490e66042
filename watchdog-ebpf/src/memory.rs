//! Close watch: an event for each step of memory, and for each wait for reclaim. Attached only while it matters, since
//! even an empty program on `rss_stat` costs a few per cent of a page fault.

use core::ffi::c_void;

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use watchdog_common::{MemoryStepRecord, ReclaimRecord, RecordKind};

use crate::{
    emit,
    lifecycle::tracked,
    maps::{LAST_STEP, RECLAIM_START, SETTINGS},
    task::{Mm, Task},
};

/// `TP_PROTO(struct mm_struct *mm, int member)`; before Linux 6.2 with a third argument, the count.
///
/// Cost: at each fault of an untracked process two loads and one look-up; of a tracked one a second look-up and three
/// loads. A record, and an update of the second map, only when the step is full.
#[btf_tracepoint(function = "rss_stat")]
pub fn rss_stat(ctx: BtfTracePointContext) -> Option<()> {
    let mm = Mm::from_argument(ctx.arg::<*const c_void>(0));
    // The counters of one process can move while another runs: reclaim, ptrace, exit of a shared mapping.
    let owner = mm.owner();
    if owner.is_null() {
        return None;
    }
    let tgid = owner.tgid();
    let leader = owner.leader();
    tracked(tgid, leader)?;
    let pages = mm.counters();
    let [_file, anon, swap, shmem] = pages;
    let charged = anon + swap + shmem;
    // SAFETY: a read of an initialised static.
    let step = unsafe { core::ptr::read_volatile(&raw const SETTINGS.memory_step_pages) };
    if let Some(last) = LAST_STEP.get_ptr_mut(tgid) {
        // SAFETY: a map value; what another CPU writes meanwhile is as good a mark as ours.
        let last = unsafe { &mut *last };
        if charged.abs_diff(*last) < step as u64 {
            return None;
        }
        *last = charged;
    } else {
        let _ = LAST_STEP.insert(tgid, charged, 0);
    }
    let record = MemoryStepRecord { header: emit::header(RecordKind::MemoryStep, leader), pages };
    emit::memory(&record);
    Some(())
}

/// `TP_PROTO(int order, gfp_t gfp_flags)`, all versions.
///
/// Cost: one look-up, and an insert for a tracked process; beside a reclaim, nothing.
#[btf_tracepoint(function = "mm_vmscan_direct_reclaim_begin")]
pub fn reclaim_begin(_ctx: BtfTracePointContext) -> Option<()> {
    let current = Task::current();
    tracked(current.tgid(), current.leader())?;
    let _ = RECLAIM_START.insert(current.tid(), emit::now(), 0);
    Some(())
}

/// `TP_PROTO(unsigned long nr_reclaimed)`, all versions.
///
/// Cost: two look-ups, a removal and a record for a tracked process, else one look-up.
#[btf_tracepoint(function = "mm_vmscan_direct_reclaim_end")]
pub fn reclaim_end(ctx: BtfTracePointContext) -> Option<()> {
    let current = Task::current();
    let leader = current.leader();
    tracked(current.tgid(), leader)?;
    let tid = current.tid();
    // SAFETY: a map value, read once.
    let began = unsafe { *RECLAIM_START.get_ptr(tid)? };
    let _ = RECLAIM_START.remove(tid);
    let header = emit::header(RecordKind::Reclaim, leader);
    let record = ReclaimRecord { stalled: header.at.saturating_sub(began), reclaimed: ctx.arg(0), header };
    emit::memory(&record);
    Some(())
}
