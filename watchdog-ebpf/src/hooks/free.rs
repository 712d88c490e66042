//! `sched_process_free`: removes a zombie that its parent has reaped.

use core::ffi::c_void;

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use watchdog_common::NANOS_PER_TICK;

use crate::{
    maps::{DEAD, FREED_AS, TRACKED},
    namespace,
    task::Task,
    tracking,
};

/// `TP_PROTO(struct task_struct *p)`, all versions. It fires a grace period of RCU after the parent has waited.
///
/// Cost: a thread's is two loads; a process's two look-ups more. In a pid namespace, one look-up, and those two for a process that
/// was tracked at its exit. An entry that was made later stays until the repair there.
#[btf_tracepoint(function = "sched_process_free")]
pub fn free(ctx: BtfTracePointContext) -> Option<()> {
    let task = Task::from_argument(ctx.arg::<*const c_void>(0));
    if !task.is_leader() {
        return None;
    }
    let tgid = if namespace::inode() == 0 {
        task.tgid()
    } else {
        // It has left its pid namespaces.
        let host_tgid = task.host_tgid();
        // SAFETY: the pointer is a map value, which is read once.
        let tgid = unsafe { *FREED_AS.get_ptr(host_tgid)? };
        let _ = FREED_AS.remove(host_tgid);
        tgid
    };
    // The pid may belong to another process by now, which then started later.
    let outlived = |start: u64| start / NANOS_PER_TICK <= task.start() / NANOS_PER_TICK;
    // SAFETY: the pointer is a map value, which is read once.
    if DEAD.get_ptr(tgid).is_some_and(|start| outlived(unsafe { start.read_volatile() })) {
        let _ = DEAD.remove(tgid);
    }
    // A remaining entry was made after the exit, or the kernel skipped the program on exit.
    let entry = TRACKED.get_ptr_mut(tgid)?;
    // SAFETY: as in `tracking::entry`.
    let entry = unsafe { &*entry };
    if outlived(entry.start) {
        tracking::remove(tgid, entry);
    }
    Some(())
}
