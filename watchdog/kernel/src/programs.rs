//! The programs of the object, by name and type.

use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use aya::Ebpf;
use aya::programs::{BtfTracePoint, Iter, Lsm, ProgramError};

use super::error::KernelError;
use super::layout::Variants;

/// As often as libbpf tries it.
const LOAD_ATTEMPTS: u32 = 5;

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

/// The output of an iterator, which can be read once.
pub(super) fn read_iterator(ebpf: &mut Ebpf, name: &'static str) -> Result<impl Read + use<>, KernelError> {
    let program = iterator_program(ebpf, name)?;
    let failed = |source| KernelError::program(name, "attach", source);
    let link = program.attach().map_err(failed)?;
    // A file can be read once, and aya consumes the link for it: two system calls each.
    program
        .take_link(link)
        .map_err(failed)?
        .into_file()
        .map_err(|error| KernelError::Iterator(name, io::Error::other(error)))
}

/// Opens a pinned program. aya would also open it by its id, which requires CAP_SYS_ADMIN.
pub(super) fn open_pinned_program(path: &Path) -> io::Result<OwnedFd> {
    /// `BPF_OBJ_GET` and its members of `union bpf_attr` (include/uapi/linux/bpf.h).
    const BPF_OBJ_GET: libc::c_int = 7;
    #[repr(C)]
    struct ObjectAttributes {
        pathname: u64,
        bpf_fd: u32,
        file_flags: u32,
    }
    let path = CString::new(path.as_os_str().as_bytes())?;
    let attributes = ObjectAttributes { pathname: path.as_ptr() as u64, bpf_fd: 0, file_flags: 0 };
    // SAFETY: the kernel reads the attributes, of the size that is given, and the path with its NUL in them; both live longer
    // than the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_OBJ_GET, &raw const attributes, size_of::<ObjectAttributes>()) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The programs without which the table of processes may be wrong; those that stand in for each other are one group.
pub(super) fn lifecycle_programs(variants: Variants) -> [[Option<&'static str>; 2]; 4] {
    let Variants { exit, victim: _, spares } = variants;
    [
        [Some("fork"), spares.map(|spares| spares.fork)],
        [exit, spares.map(|spares| spares.exit)],
        [Some("exec"), None],
        [Some("free"), None],
    ]
}

/// The programs without which the cause of a death may not be known. (The kernel skips no LSM program.)
pub(super) fn cause_programs(variants: Variants) -> [[Option<&'static str>; 2]; 2] {
    [[Some("signal"), None], [variants.victim, None]]
}

/// Loads a program again when a signal has interrupted the verifier: it returns EAGAIN then, see kernel/bpf/verifier.c.
pub(super) fn while_interrupted(mut load: impl FnMut() -> Result<(), ProgramError>) -> Result<(), ProgramError> {
    for _ in 1..LOAD_ATTEMPTS {
        match load() {
            Err(ProgramError::LoadError { io_error, .. } | ProgramError::IOError(io_error))
                if io_error.kind() == io::ErrorKind::WouldBlock => {}
            result => return result,
        }
    }
    load()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_load_is_repeated() {
        let load = |failures: u32, errno: i32| {
            let mut calls = 0;
            let result = while_interrupted(|| {
                calls += 1;
                if calls > failures {
                    return Ok(());
                }
                Err(ProgramError::IOError(io::Error::from_raw_os_error(errno)))
            });
            (result.is_ok(), calls)
        };
        assert_eq!(load(2, libc::EAGAIN), (true, 3));
        assert_eq!(load(u32::MAX, libc::EAGAIN), (false, LOAD_ATTEMPTS));
        assert_eq!(load(1, libc::EPERM), (false, 1));
    }
}
