//! Keeps preemption off while a program runs.
//!
//! Until Linux 6.19 a tracepoint calls its programs with preemption off. Since 7.0 it does not. The kernel guards each program
//! with a counter per CPU, so while one task is preempted inside a program, the kernel skips that program for every other
//! task on the CPU (`recursion_misses` in the program's fdinfo). LSM programs have always been called so.
//!
//! What remains is the moment between the kernel's counter and the first instruction here, and the same at the end.

use core::arch::asm;

use watchdog_common::{PREEMPT_DISABLE, PREEMPT_ENABLE};

/// Runs the body of a program with preemption off, where the kernel offers that (`bpf_preempt_disable`, Linux 6.10).
///
/// `run` must return on every path: the verifier refuses a program that ends with preemption off.
///
/// Cost: 2 ns.
#[inline(always)]
pub fn off<T>(run: impl FnOnce() -> T) -> T {
    call::<PREEMPT_DISABLE>();
    let result = run();
    call::<PREEMPT_ENABLE>();
    result
}

/// A call of a helper that does not exist: aya cannot call kernel functions (kfuncs), so userspace replaces the
/// instruction before it loads the object, by a call of the kernel function or by `r0 = 0`.
#[inline(always)]
fn call<const MARK: i32>() {
    // SAFETY: both replacements write r0, and a call leaves nothing in r1 to r5.
    unsafe {
        asm!("call {mark}", mark = const MARK, out("r0") _, out("r1") _, out("r2") _, out("r3") _, out("r4") _, out("r5") _);
    }
}
