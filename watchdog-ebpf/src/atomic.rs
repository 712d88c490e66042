//! Atomic instructions, of which `core` has none for targets without compare-and-swap in their oldest version.

use core::arch::asm;

/// Adds to a number in a map value.
#[inline(always)]
pub fn add(to: *mut i64, what: i64) {
    // SAFETY: `to` points into a map value. The instruction is BPF_ATOMIC | BPF_ADD without BPF_FETCH, which every kernel with
    // BPF knows.
    unsafe {
        asm!("lock *(u64 *)({to} + 0) += {what}", to = in(reg) to, what = in(reg) what);
    }
}

/// Replaces a number in a map value, and returns what it was.
#[inline(always)]
pub fn exchange(at: *mut u64, mut value: u64) -> u64 {
    // SAFETY: `at` points into a map value. The instruction is BPF_ATOMIC | BPF_XCHG, since Linux 5.12.
    unsafe {
        asm!("{value} = xchg_64({at} + 0, {value})", at = in(reg) at, value = inout(reg) value);
    }
    value
}
