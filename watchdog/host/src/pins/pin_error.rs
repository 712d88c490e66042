use std::io;
use std::path::{Path, PathBuf};

/// Mount point of the BPF file system.
pub(super) const BPFFS: &str = "/sys/fs/bpf";

#[derive(Debug, thiserror::Error)]
pub enum PinError {
    #[error("no BPF file system is mounted at {BPFFS}, and mounting one failed: {0}")]
    NotMounted(io::Error),
    /// And a mount would be lost with this process's mount namespace.
    #[error("no BPF file system is mounted at {BPFFS}")]
    Absent,
    #[error("only root can pin programs and maps")]
    NotRoot,
    #[error("the pins in {0} are in use by another watchdogd")]
    InUse(PathBuf),
    /// As in a container.
    #[error(
        "the pins in {0} belong to a watchdogd with another root directory or pid namespace, as in a container, which may \
         still run. Give each its own --runtime-dir, or remove the pins with `watchdogd --unpin`"
    )]
    OtherRoot(PathBuf),
    #[error("cannot {doing} {path}: {source}")]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    /// A map, program or link could not be pinned or opened.
    #[error("cannot use the pin of {name} in {path}: {reason}")]
    Object { name: String, path: PathBuf, reason: String },
}

impl PinError {
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }
}
