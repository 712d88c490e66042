//! The scratch of the program on exec: one per CPU, used by one run at a time.
//!
//! Until Linux 6.19 a tracepoint calls its programs with preemption off. Since 7.0 a program may be preempted, and while it is,
//! the kernel skips it for every other task on the CPU (`recursion_misses` in the program's fdinfo). `bpf_preempt_disable` does not
//! help: a program must enable preemption again before it ends, and the kernel schedules right there, with the program
//! still marked as running. On 7.2 as many runs were skipped with it as without. So userspace counts them and repairs.

use crate::{
    atomic,
    maps::{ExecScratch, SCRATCH},
};

/// This CPU's scratch, until [`release`]; `None` while another run, which was preempted on this CPU, holds it.
///
/// Cost: one atomic instruction.
#[inline(always)]
pub fn claim() -> Option<&'static mut ExecScratch> {
    let scratch = SCRATCH.get_ptr_mut(0)?;
    // SAFETY: the map's value, which no program removes; all but `claimed` belongs to the run that claimed it.
    (atomic::exchange(unsafe { &raw mut (*scratch).claimed }, 1) == 0).then(|| unsafe { &mut *scratch })
}

#[inline(always)]
pub fn release(scratch: &mut ExecScratch) {
    atomic::exchange(&raw mut scratch.claimed, 0);
}
