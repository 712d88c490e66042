//! Why page-out is impossible on this host.

use std::fmt;

/// Why process_madvise(2) cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageOutObstacle {
    NotPermitted,
    OldKernel,
}

impl fmt::Display for PageOutObstacle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::NotPermitted => "the daemon may not page out processes: CAP_SYS_NICE or CAP_SYS_PTRACE is missing",
            Self::OldKernel => "this kernel cannot page out other processes: it needs Linux 5.10",
        })
    }
}
