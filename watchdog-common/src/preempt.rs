//! Marks in the object at which userspace puts calls of kernel functions.

/// The number of a helper that no kernel has: stands for a call of `bpf_preempt_disable`.
pub const PREEMPT_DISABLE: i32 = 0x5da7_0001;

/// As [`PREEMPT_DISABLE`], for `bpf_preempt_enable`.
pub const PREEMPT_ENABLE: i32 = 0x5da7_0002;
