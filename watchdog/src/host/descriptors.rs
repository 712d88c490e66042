//! The pipes and sockets that a process holds.

use rustix::fs::{AtFlags, FileType, Mode, StatxFlags, statx};
use rustix::io::Errno;

use super::error::{HostError, is_gone};
use super::process::ProcessDir;

/// Most descriptors that are looked at in one process: at 2 µs each, 8 ms.
const DESCRIPTORS_MAX: usize = 4096;

/// What a descriptor refers to, where that can have another end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// A pipe, or a FIFO of a file system.
    Pipe(Inode),
    /// A socket, by its inode.
    Socket(u64),
    /// A character device, by its major number.
    Device(u32),
}

/// An inode and the file system that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    device: (u32, u32),
    number: u64,
}

/// A descriptor that refers to a pipe or a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// To what.
    pub(crate) object: Object,
    /// It can be written to.
    pub(crate) writes: bool,
}

/// What descriptor `number` of the process refers to; `None` when it is closed, the process is gone, or it is a plain
/// file or the like.
pub(crate) fn descriptor(dir: &ProcessDir, number: u32) -> Result<Option<Object>, HostError> {
    let file = format!("fd/{number}");
    match object(dir.fd(), &file) {
        Ok(object) => Ok(object),
        Err(errno) if is_gone(errno) => Ok(None),
        Err(errno) => Err(HostError::io("stat", dir.path(&file), errno)),
    }
}

/// The pipes and sockets among the first descriptors of the process; none when it is gone.
pub(crate) fn descriptors(dir: &ProcessDir) -> Result<Vec<Descriptor>, HostError> {
    let failed = |errno| HostError::io("list", dir.path("fd"), errno);
    let Some(mut listed) = dir.list("fd")? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for _ in 0..DESCRIPTORS_MAX {
        let entry = match listed.next() {
            None => break,
            Some(Ok(entry)) => entry,
            Some(Err(errno)) if is_gone(errno) => break,
            Some(Err(errno)) => return Err(failed(errno)),
        };
        let (fd, name) = (listed.fd().map_err(failed)?, entry.file_name());
        let object = match object(fd, name) {
            Ok(Some(object @ (Object::Pipe(_) | Object::Socket(_)))) => object,
            // Closed between the listing and the look, or of no interest.
            Ok(_) => continue,
            Err(errno) if is_gone(errno) => continue,
            Err(errno) => return Err(failed(errno)),
        };
        // The link's own permission bits are the access mode of the open file (tid_fd_update_inode, fs/proc/fd.c).
        let writes = statx(fd, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MODE)
            .is_ok_and(|link| Mode::from_raw_mode(link.stx_mode.into()).contains(Mode::WUSR));
        found.push(Descriptor { object, writes });
    }
    Ok(found)
}

/// Follows a link of /proc/PID/fd to what it refers to, without opening it. STATX_DONT_SYNC: a descriptor may refer to a
/// file of a server that does not answer any more, and must not make us wait.
fn object<N: rustix::path::Arg>(dir: impl std::os::fd::AsFd, name: N) -> Result<Option<Object>, Errno> {
    let target = statx(dir, name, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE | StatxFlags::INO)?;
    let number = target.stx_ino;
    Ok(match FileType::from_raw_mode(target.stx_mode.into()) {
        FileType::Fifo => Some(Object::Pipe(Inode { device: (target.stx_dev_major, target.stx_dev_minor), number })),
        FileType::Socket => Some(Object::Socket(number)),
        FileType::CharacterDevice => Some(Object::Device(target.stx_rdev_major)),
        _ => None,
    })
}
