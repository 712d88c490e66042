//! The object with the programs, made ready for the running kernel.

use watchdog_common::{PREEMPT_DISABLE, PREEMPT_ENABLE};
use zerocopy::IntoBytes;

use super::btf::{Btf, TypeId};

/// The programs, as `cargo xtask build-ebpf` made them.
static OBJECT: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../watchdog-ebpf/prebuilt/watchdog.bpf.o"));

/// The kernel functions (kfuncs) that switch preemption off and on: `bpf_preempt_disable` and `bpf_preempt_enable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preemption {
    disable: TypeId,
    enable: TypeId,
}

impl Preemption {
    /// The functions of a kernel; `None` before Linux 6.10.
    #[must_use]
    pub fn of(btf: &Btf) -> Option<Self> {
        Some(Self { disable: btf.function("bpf_preempt_disable")?, enable: btf.function("bpf_preempt_enable")? })
    }
}

/// The object, in whole words since its reader needs it aligned, with every mark replaced: by a call of the kernel function,
/// or, without one, by `r0 = 0`.
pub(super) fn object(preemption: Option<Preemption>) -> Vec<u64> {
    let mut words = vec![0; OBJECT.len().div_ceil(size_of::<u64>())];
    words.as_mut_bytes()[..OBJECT.len()].copy_from_slice(OBJECT);
    let marks = [PREEMPT_DISABLE, PREEMPT_ENABLE].map(|mark| instruction(CALL, 0, mark.cast_unsigned()));
    let functions = preemption.map(|Preemption { disable, enable }| [disable, enable]);
    let calls =
        functions.map(|functions| functions.map(|function| instruction(CALL, KERNEL_FUNCTION, function.number())));
    let replacements = calls.unwrap_or([instruction(MOVE, 0, 0); 2]);
    for word in &mut words {
        if let Some(mark) = marks.iter().position(|mark| mark == word) {
            *word = replacements[mark];
        }
    }
    words
}

/// `BPF_JMP | BPF_CALL` (include/uapi/linux/bpf.h).
const CALL: u8 = 0x85;
/// `BPF_ALU64 | BPF_MOV | BPF_K`.
const MOVE: u8 = 0xb7;
/// `BPF_PSEUDO_KFUNC_CALL`, as the source register of a call.
const KERNEL_FUNCTION: u8 = 2;

/// An instruction with destination register 0 and offset 0, as it stands in memory.
fn instruction(code: u8, source: u8, immediate: u32) -> u64 {
    let registers = if cfg!(target_endian = "little") { source << 4 } else { source };
    let [a, b, c, d] = immediate.to_ne_bytes();
    u64::from_ne_bytes([code, registers, 0, 0, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(words: &[u64], wanted: u64) -> usize {
        words.iter().filter(|word| **word == wanted).count()
    }

    #[test]
    fn marks_become_kernel_calls() {
        let btf = Btf::of_running_kernel().expect("a kernel with BTF");
        let Some(preemption) = Preemption::of(&btf) else { return };
        let marks = [PREEMPT_DISABLE, PREEMPT_ENABLE].map(|mark| instruction(CALL, 0, mark.cast_unsigned()));
        let plain = object(None);
        let calling = object(Some(preemption));
        for (mark, function) in marks.into_iter().zip([preemption.disable, preemption.enable]) {
            assert_eq!((count(&plain, mark), count(&calling, mark)), (0, 0));
            assert!(count(&calling, instruction(CALL, KERNEL_FUNCTION, function.number())) >= 8);
        }
    }
}
