//! Errors as outcomes of a page-out.

use rustix::io::Errno;

use crate::error::HostError;
use watchdog_types::PageOutOutcome;

pub(super) fn of_errno(errno: Errno) -> PageOutOutcome {
    match errno {
        Errno::SRCH => PageOutOutcome::Gone,
        Errno::PERM | Errno::ACCESS => PageOutOutcome::NotPermitted,
        // EINVAL: the kernel has the call but not the advice.
        Errno::NOSYS | Errno::INVAL => PageOutOutcome::Unsupported,
        errno => PageOutOutcome::Failed(errno.to_string()),
    }
}

pub(super) fn of_error(error: &HostError) -> PageOutOutcome {
    if error.is_denied() { PageOutOutcome::NotPermitted } else { PageOutOutcome::Failed(error.to_string()) }
}
