//! process_madvise(2) with MADV_PAGEOUT.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::process::{PidfdFlags, getpid, pidfd_open};

/// Maximum number of ranges per call: IOV_MAX (include/uapi/linux/uio.h, `UIO_MAXIOV`).
pub(super) const CALL_RANGES: usize = 1024;
/// Maximum bytes of one range per call: the kernel truncates a call at MAX_RW_COUNT, just below 2 GiB.
pub(super) const CALL_LENGTH: u64 = 1 << 30;

/// Addresses of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddressRange {
    pub(super) start: u64,
    pub(super) length: u64,
}

/// Pages out these ranges. Skips ranges that are unmapped meanwhile, and ranges that the kernel rejects.
///
/// # Errors
/// ESRCH when the process has exited; EPERM without CAP_SYS_NICE or the right to ptrace it; ENOSYS.
pub(super) fn advise(pidfd: BorrowedFd<'_>, ranges: &[AddressRange]) -> Result<(), Errno> {
    let mut rest: Vec<AddressRange> = ranges.to_vec();
    while !rest.is_empty() {
        match call(pidfd, &rest) {
            // No progress, or a rejected range: skip it.
            Ok(0) | Err(Errno::INVAL | Errno::NOMEM | Errno::FAULT | Errno::BUSY | Errno::AGAIN) => {
                rest.remove(0);
            }
            Ok(advised) => skip(&mut rest, advised),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Tests the system call and the advice, with a call for this process without ranges.
///
/// # Errors
/// ENOSYS or EINVAL before Linux 5.10; EPERM where seccomp refuses.
pub(crate) fn try_advice() -> Result<(), Errno> {
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    call(own.as_fd(), &[]).map(drop)
}

/// One call. Returns the number of bytes advised, from the first range on.
fn call(pidfd: BorrowedFd<'_>, ranges: &[AddressRange]) -> Result<u64, Errno> {
    let size = |number: u64| usize::try_from(number).map_err(|_| Errno::OVERFLOW);
    let vector = ranges
        .iter()
        .take(CALL_RANGES)
        .map(|range| {
            let address = std::ptr::without_provenance_mut(size(range.start)?);
            Ok(libc::iovec { iov_base: address, iov_len: size(range.length)? })
        })
        .collect::<Result<Vec<libc::iovec>, Errno>>()?;
    let no_flags: libc::c_uint = 0;
    // SAFETY: the kernel reads `vector`, which outlives the call. Its addresses, if any, belong to another
    // process; the kernel checks them there. MADV_PAGEOUT moves pages and never changes their content.
    let advised = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            vector.as_ptr(),
            vector.len(),
            libc::MADV_PAGEOUT,
            no_flags,
        )
    };
    u64::try_from(advised).map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// Removes the first `advised` bytes.
fn skip(ranges: &mut Vec<AddressRange>, mut advised: u64) {
    let done = ranges.iter().take_while(|range| {
        let whole = range.length <= advised;
        advised -= if whole { range.length } else { 0 };
        whole
    });
    let done = done.count();
    ranges.drain(..done);
    if let Some(first) = ranges.first_mut() {
        *first = AddressRange { start: first.start + advised, length: first.length - advised };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, length: u64) -> AddressRange {
        AddressRange { start, length }
    }

    #[test]
    fn partial_call_continues_after_advised_bytes() {
        let all = [range(0x1000, 0x1000), range(0x4000, 0x3000), range(0x9000, 0x1000)];
        let after = |advised| {
            let mut rest = all.to_vec();
            skip(&mut rest, advised);
            rest
        };
        assert_eq!(after(0), all);
        assert_eq!(after(0x1000), all[1..]);
        assert_eq!(after(0x2000), [range(0x5000, 0x2000), all[2]]);
        assert_eq!(after(0x5000), []);
    }

    #[test]
    fn kernel_supports_pageout_advice() {
        assert_eq!(try_advice(), Ok(()));
    }
}
