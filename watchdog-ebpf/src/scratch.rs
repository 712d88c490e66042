//! The scratch of the program on exec: one per CPU, in use by one run at a time whatever the kernel's preemption.

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

/// Ends the claim.
#[inline(always)]
pub fn release(scratch: &mut ExecScratch) {
    atomic::exchange(&raw mut scratch.claimed, 0);
}
