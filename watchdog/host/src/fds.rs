//! File descriptors of a process: pipes, sockets and devices.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, Mode, StatxFlags, statx};
use rustix::io::Errno;

use super::error::{HostError, is_missing};
use super::process::{ProcessDir, leads_to_private_mount};

/// Descriptors that are read per process: at 2 µs each, 8 ms.
const DESCRIPTORS_MAX: usize = 4096;
/// Major numbers of terminals (Documentation/admin-guide/devices.txt): consoles and serial lines, pseudoterminals.
const TERMINALS: [u32; 9] = [4, 136, 137, 138, 139, 140, 141, 142, 143];

/// The target of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    Pipe(Inode),
    /// Its inode.
    Socket(u64),
    /// The major number of a character device.
    Device(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    device: (u32, u32),
    number: u64,
}

/// A descriptor of a pipe or socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) object: Object,
    pub(crate) writes: bool,
}

/// `None` when descriptor `number` is closed or of another kind, such as a regular file, or the process has exited.
pub(crate) fn descriptor(dir: &ProcessDir, number: u32) -> Result<Option<Object>, HostError> {
    let file = format!("fd/{number}");
    match object(dir.fd(), &file) {
        Ok(object) => Ok(object),
        Err(errno) if is_missing(errno) => Ok(None),
        Err(errno) => Err(HostError::io("stat", dir.path(&file), errno)),
    }
}

/// The pipes and sockets among the first [`DESCRIPTORS_MAX`] descriptors; none when the process has exited.
pub(crate) fn descriptors(dir: &ProcessDir) -> Result<Vec<Descriptor>, HostError> {
    let mut found = Vec::new();
    each(dir, |fd, name, object| {
        if matches!(object, Object::Pipe(_) | Object::Socket(_)) {
            // The link's own permission bits are the access mode of the open file (tid_fd_update_inode, fs/proc/fd.c).
            let writes = statx(fd, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MODE)
                .is_ok_and(|link| Mode::from_raw_mode(link.stx_mode.into()).contains(Mode::WUSR));
            found.push(Descriptor { object, writes });
        }
    })?;
    Ok(found)
}

/// Whether the process has a terminal open: a virtual console, a serial line, or the side of a pseudoterminal that programs
/// use.
pub(crate) fn holds_terminal(dir: &ProcessDir) -> Result<bool, HostError> {
    let mut holds = false;
    each(dir, |_, _, object| holds |= matches!(object, Object::Device(major) if TERMINALS.contains(&major)))?;
    Ok(holds)
}

/// Visits the first [`DESCRIPTORS_MAX`] descriptors that are an [`Object`].
fn each(dir: &ProcessDir, mut visit: impl FnMut(BorrowedFd<'_>, &CStr, Object)) -> Result<(), HostError> {
    let failed = |errno| HostError::io("list", dir.path("fd"), errno);
    let Some(mut listed) = dir.list("fd")? else { return Ok(()) };
    for _ in 0..DESCRIPTORS_MAX {
        let entry = match listed.next() {
            None => break,
            Some(Ok(entry)) => entry,
            Some(Err(errno)) if is_missing(errno) => break,
            Some(Err(errno)) => return Err(failed(errno)),
        };
        let (fd, name) = (listed.fd().map_err(failed)?, entry.file_name());
        match object(fd, name) {
            Ok(Some(object)) => visit(fd, name, object),
            // Closed since the listing, or of another kind.
            Ok(None) => {}
            Err(errno) if is_missing(errno) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    Ok(())
}

/// Follows a link of /proc/PID/fd without opening its target. STATX_DONT_SYNC: the file may be on a server that no longer
/// responds, and the call must not block.
fn object<N: rustix::path::Arg + Copy>(dir: impl std::os::fd::AsFd, name: N) -> Result<Option<Object>, Errno> {
    let target = match statx(&dir, name, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE | StatxFlags::INO) {
        // It has files and directories, which are of no interest here.
        Err(Errno::ACCESS) if leads_to_private_mount(&dir, name) => return Ok(None),
        found => found?,
    };
    let number = target.stx_ino;
    Ok(match FileType::from_raw_mode(target.stx_mode.into()) {
        FileType::Fifo => Some(Object::Pipe(Inode { device: (target.stx_dev_major, target.stx_dev_minor), number })),
        FileType::Socket => Some(Object::Socket(number)),
        FileType::CharacterDevice => Some(Object::Device(target.stx_rdev_major)),
        _ => None,
    })
}
