//! The programs of the object, by name and as what they are.

use std::io::Read;

use aya::Ebpf;
use aya::programs::{BtfTracePoint, Iter, Lsm};

use super::error::KernelError;

pub(super) fn tracepoint_program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut BtfTracePoint, KernelError> {
    ebpf.program_mut(name)
        .ok_or(KernelError::Missing("program of that name"))?
        .try_into()
        .map_err(|source| KernelError::program(name, "find", source))
}

pub(super) fn iterator_program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Iter, KernelError> {
    ebpf.program_mut(name)
        .ok_or(KernelError::Missing("program of that name"))?
        .try_into()
        .map_err(|source| KernelError::program(name, "find", source))
}

pub(super) fn lsm_program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Lsm, KernelError> {
    ebpf.program_mut(name)
        .ok_or(KernelError::Missing("program of that name"))?
        .try_into()
        .map_err(|source| KernelError::program(name, "find", source))
}

/// An iterator's answer, to be read once.
pub(super) fn read_iterator(ebpf: &mut Ebpf, name: &'static str) -> Result<impl Read + use<>, KernelError> {
    let program = iterator_program(ebpf, name)?;
    let failed = |source| KernelError::program(name, "attach", source);
    let link = program.attach().map_err(failed)?;
    // A file can be read once, and aya makes it of the link as a whole; both cost two system calls.
    program
        .take_link(link)
        .map_err(failed)?
        .into_file()
        .map_err(|error| KernelError::Iterator(name, std::io::Error::other(error)))
}
