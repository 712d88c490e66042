//! Atomic instructions. `core` has none for this target, whose oldest version lacks compare-and-swap.

use core::arch::asm;

#[inline(always)]
pub fn add(to: *mut i64, value: i64) {
    // SAFETY: `to` points into a map value. The instruction is BPF_ATOMIC | BPF_ADD without BPF_FETCH, which every kernel with
    // BPF knows.
    unsafe {
        asm!("lock *(u64 *)({to} + 0) += {value}", to = in(reg) to, value = in(reg) value);
    }
}

/// Replaces a number in a map value, and returns the earlier one.
#[inline(always)]
pub fn exchange(at: *mut u64, mut value: u64) -> u64 {
    // SAFETY: `at` points into a map value. The instruction is BPF_ATOMIC | BPF_XCHG, since Linux 5.12.
    unsafe {
        asm!("{value} = xchg_64({at} + 0, {value})", at = in(reg) at, value = inout(reg) value);
    }
    value
}
