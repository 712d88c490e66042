//! `sched_process_fork`: a child inherits its parent's lineage before it can run.

use core::ffi::c_void;

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use watchdog_common::{ForkRecord, LineageFlags, RawLineage, RecordKind, Tracked};

use crate::{
    emit,
    maps::{LAST_REFUSED, TRACKED},
    sessions,
    task::Task,
    tracking::{self, track},
};

/// `TP_PROTO(struct task_struct *parent, struct task_struct *child)`, all versions. It fires before the child can run.
///
/// Cost: an untracked process's fork is three loads and one look-up; a new thread two loads. A tracked fork adds an
/// insert, a look-up and a record: 1.0 µs. A gated session adds a look-up and an addition, at the fork and at the exit: too
/// little to be measured beside it.
#[btf_tracepoint(function = "sched_process_fork")]
pub fn fork(ctx: BtfTracePointContext) -> Option<()> {
    forked(&ctx, false)
}

/// [`fork`] again, with a recursion guard of its own: it handles the forks for which the kernel skips the first program because
/// another task was preempted in it. Loaded only where that can happen.
///
/// Cost: an untracked process's fork pays as much again, a tracked one's a look-up more.
#[btf_tracepoint(function = "sched_process_fork")]
pub fn fork_spare(ctx: BtfTracePointContext) -> Option<()> {
    forked(&ctx, true)
}

#[inline(always)]
fn forked(ctx: &BtfTracePointContext, spare: bool) -> Option<()> {
    let parent = Task::from_argument(ctx.arg::<*const c_void>(0));
    let child = Task::from_argument(ctx.arg::<*const c_void>(1));
    if !child.is_leader() {
        return None;
    }
    let forker = parent.leader();
    let entry = tracking::member(parent.tgid(), forker)?;
    let lineage = RawLineage {
        root_start: entry.lineage.root_start,
        parent_start: forker.start(),
        root: entry.lineage.root,
        parent: parent.tgid(),
        depth: entry.lineage.depth + 1,
        flags: (entry.lineage.flags & LineageFlags::PROVISIONAL) | LineageFlags::FORKED,
    };
    let (counted, uid) = (entry.counted, entry.uid);
    if spare && is_handled(child) {
        return None;
    }
    // Tracked before it is reported: the reader of the record finds the entry. Counted only if its exit will be seen.
    if track(ctx, child, Tracked { lineage, start: child.start(), inherited_peak: 0, counted, uid }) {
        sessions::count(counted, 1);
        // A recount that moved the parent after `counted` was read may have missed the child.
        let number = tracking::entry(parent.tgid(), forker).map_or(counted, |entry| entry.counted);
        if number != counted
            && let Some(entry) = tracking::entry(child.tgid(), child)
        {
            sessions::move_to(number, entry);
        }
    } else if let Some(refused) = LAST_REFUSED.get_ptr_mut(0) {
        // SAFETY: the map's value. A program that interrupts this one on its CPU may write it too; it then names another child.
        unsafe { refused.write_volatile(child.start()) };
    }
    let record = ForkRecord { header: emit::header(RecordKind::Fork, child), lineage, comm: child.comm() };
    emit::lifecycle(&record);
    Some(())
}

/// Whether [`fork`] has run for this child, which has not run yet: it has an entry, or there was no room for one.
#[inline(always)]
fn is_handled(child: Task) -> bool {
    let start = child.start();
    // SAFETY: as in `tracking::entry`.
    let entered = TRACKED.get_ptr(child.tgid()).is_some_and(|entry| unsafe { (*entry).start } == start);
    // SAFETY: the map's value, which is read once.
    entered || LAST_REFUSED.get_ptr(0).is_some_and(|refused| unsafe { refused.read_volatile() } == start)
}
