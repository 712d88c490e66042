//! The programs of the object, by name and as what they are.

use aya::Ebpf;
use aya::programs::{BtfTracePoint, Iter};

use super::error::KernelError;

pub(super) fn tracepoint_program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut BtfTracePoint, KernelError> {
    ebpf.program_mut(name)
        .ok_or(KernelError::Missing("program of that name"))?
        .try_into()
        .map_err(|source| KernelError::program(name, "find", source))
}

pub(super) fn sampler_program(ebpf: &mut Ebpf) -> Result<&mut Iter, KernelError> {
    ebpf.program_mut("sample")
        .ok_or(KernelError::Missing("sample"))?
        .try_into()
        .map_err(|source| KernelError::program("sample", "find", source))
}
