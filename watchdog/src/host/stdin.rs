//! Where a process's stdin leads, and whether anybody is still there. Most helpers end when their stdin does.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};

use super::descriptors::{Object, descriptor, descriptors};
use super::error::{HostError, is_gone};
use super::process::ProcessDir;
use super::unix_diag::{self, OtherEnd};
use crate::engine::id::ProcessId;
use crate::engine::input::Stdin;

/// Major numbers of terminals: virtual consoles and serial lines, /dev/tty and /dev/console, pseudo-terminals
/// (Documentation/admin-guide/devices.txt).
const TERMINAL_MAJORS: [u32; 2] = [4, 5];
const PTS_MAJORS: std::ops::RangeInclusive<u32> = 136..=143;

/// Where descriptor 0 leads. `peers` are searched for the other end; the process itself is no peer of its own.
pub(crate) fn stdin(process: ProcessId, dir: &ProcessDir, peers: &[ProcessId]) -> Result<Stdin, HostError> {
    Ok(match descriptor(dir, 0)? {
        Some(Object::Device(major)) if TERMINAL_MAJORS.contains(&major) || PTS_MAJORS.contains(&major) => {
            Stdin::Terminal
        }
        Some(pipe @ Object::Pipe(_)) => {
            if has_no_writer(dir)? {
                Stdin::Closed
            } else {
                Stdin::Peer(holders(process, peers, |object, writes| writes && object == pipe)?)
            }
        }
        Some(Object::Socket(inode)) => match unix_diag::other_end(dir, inode)? {
            OtherEnd::Socket(inode) => {
                Stdin::Peer(holders(process, peers, |object, _| object == Object::Socket(inode))?)
            }
            OtherEnd::Closed => Stdin::Closed,
            OtherEnd::Unknown => Stdin::Other,
        },
        Some(Object::Device(_)) | None => Stdin::Other,
    })
}

/// Whether the last writer of the pipe at descriptor 0 is gone.
///
/// Opening the descriptor's link opens the pipe once more, and poll on that says POLLHUP exactly when nobody holds the write
/// end: nobody at all, in whatever container, which no search of /proc could tell. Nothing is read from it. While it
/// is open (some microseconds) a writer whose last reader dies in just that moment is told of it one write later.
///
/// A FIFO of a file system does not say POLLHUP to somebody who opened it after the last writer left: then the answer
/// is false, and the search for holders finds none.
fn has_no_writer(dir: &ProcessDir) -> Result<bool, HostError> {
    let failed = |action, errno| HostError::io(action, dir.path("fd/0"), errno);
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let pipe = match openat(dir.fd(), "fd/0", flags, Mode::empty()) {
        Ok(pipe) => pipe,
        Err(errno) if is_gone(errno) => return Ok(false),
        Err(errno) => return Err(failed("open", errno)),
    };
    // The process may have put something else there since it was looked at.
    let mode = fstat(&pipe).map_err(|errno| failed("stat", errno))?.st_mode;
    if FileType::from_raw_mode(mode) != FileType::Fifo {
        return Ok(false);
    }
    let mut poll_fd = [PollFd::new(&pipe, PollFlags::IN)];
    poll(&mut poll_fd, Some(&Timespec::default())).map_err(|errno| failed("poll", errno))?;
    Ok(poll_fd[0].revents().contains(PollFlags::HUP))
}

/// Those of `peers` that hold a descriptor of this kind. Costs 2 µs for each descriptor of each peer.
fn holders(
    process: ProcessId,
    peers: &[ProcessId],
    is_other_end: impl Fn(Object, bool) -> bool,
) -> Result<Vec<ProcessId>, HostError> {
    let mut buffer = Vec::new();
    let mut found = Vec::new();
    for peer in peers.iter().filter(|peer| **peer != process) {
        let Some((dir, _)) = ProcessDir::of(*peer, &mut buffer)? else { continue };
        if descriptors(&dir)?.iter().any(|held| is_other_end(held.object, held.writes)) {
            found.push(*peer);
        }
    }
    Ok(found)
}
