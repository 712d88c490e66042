//! `rss_stat`, for close watch: reports each step of a tracked process's memory. Attached only on demand: even an empty program
//! costs some per cent of a page fault.

use core::ffi::c_void;

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use watchdog_common::{MemoryStepRecord, RecordKind};

use crate::{
    emit,
    maps::{LAST_STEP, SETTINGS},
    task::Mm,
    tracking,
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
    tracking::entry(tgid, leader)?;
    let pages = mm.counters();
    let [_file, anon, swap, shmem] = pages;
    let charged = anon + swap + shmem;
    // SAFETY: a read of an initialised static.
    let step = unsafe { core::ptr::read_volatile(&raw const SETTINGS.memory_step_pages) };
    if let Some(last) = LAST_STEP.get_ptr_mut(tgid) {
        // SAFETY: a map value; a value that another CPU writes meanwhile serves as well.
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
