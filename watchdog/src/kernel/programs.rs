//! The programs of the object, by name and as what they are.

use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

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
        .map_err(|error| KernelError::Iterator(name, io::Error::other(error)))
}

/// Opens a pinned program. aya asks for its id too and opens that, which takes CAP_SYS_ADMIN.
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
    // SAFETY: the kernel has just made this descriptor, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
