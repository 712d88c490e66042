//! `mm_vmscan_direct_reclaim_begin` and `_end`, for close watch: report how long a tracked process waited for reclaim.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use watchdog_common::{ReclaimRecord, RecordKind};

use crate::{emit, maps::RECLAIM_START, task::Task, tracking};

/// `TP_PROTO(int order, gfp_t gfp_flags)`, all versions.
///
/// Cost: one look-up, and an insert for a tracked process; beside a reclaim, nothing.
#[btf_tracepoint(function = "mm_vmscan_direct_reclaim_begin")]
pub fn reclaim_begin(_ctx: BtfTracePointContext) -> Option<()> {
    let current = Task::current();
    tracking::entry(current.tgid(), current.leader())?;
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
    tracking::entry(current.tgid(), leader)?;
    let tid = current.tid();
    // SAFETY: a map value, read once.
    let began = unsafe { *RECLAIM_START.get_ptr(tid)? };
    let _ = RECLAIM_START.remove(tid);
    let header = emit::header(RecordKind::Reclaim, leader);
    let record = ReclaimRecord { stalled: header.at.saturating_sub(began), reclaimed: ctx.arg(0), header };
    emit::memory(&record);
    Some(())
}
