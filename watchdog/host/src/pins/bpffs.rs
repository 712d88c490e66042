//! The BPF file system, and the directory of all daemons on it.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::statfs;
use rustix::mount::{MountFlags, mount};

use super::pin_error::{BPFFS, PinError};

/// Where the shipped unit mounts the same file system once more: its sandbox makes /sys read-only.
const BPFFS_OF_UNIT: &str = "/run/agent-watchdog-bpf";
/// `BPF_FS_MAGIC` of include/uapi/linux/magic.h.
const BPFFS_MAGIC: u64 = 0xcafe_4a11;
/// The directory of all daemons of this host.
pub(super) const BASE: &str = "agent-watchdog";

pub(super) fn base(bpffs: &Path) -> PathBuf {
    bpffs.join(BASE)
}

pub(super) fn mount_point() -> &'static Path {
    let of_unit = Path::new(BPFFS_OF_UNIT);
    if is_bpffs(of_unit) { of_unit } else { Path::new(BPFFS) }
}

fn is_bpffs(path: &Path) -> bool {
    statfs(path).is_ok_and(|fs| u64::try_from(fs.f_type) == Ok(BPFFS_MAGIC))
}

/// The mounted file system. Mounts it only in the mount namespace of the host's first process, where the mount lasts.
pub(super) fn mounted() -> Result<&'static Path, PinError> {
    let bpffs = mount_point();
    if is_bpffs(bpffs) {
        return Ok(bpffs);
    }
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    if std::process::id() == 1 || namespace("self") != namespace("1") {
        return Err(PinError::Absent);
    }
    mount("bpf", bpffs, "bpf", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)
        .map_err(|errno| PinError::NotMounted(errno.into()))?;
    tracing::info!("mounted a BPF file system at {BPFFS}");
    Ok(bpffs)
}
