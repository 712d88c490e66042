//! The other end of a process's stdin. Most helpers exit when their stdin ends.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::io::ioctl_fionread;

use super::error::{HostError, is_missing};
use super::fds::{Object, descriptor, descriptors};
use super::process::ProcessDir;
use super::unix_diag::{self, OtherEnd};
use watchdog_types::{Bytes, ProcessId, Stdin};

/// Major numbers of terminals: virtual consoles and serial lines, /dev/tty and /dev/console, pseudo-terminals
/// (Documentation/admin-guide/devices.txt).
const TERMINAL_MAJORS: [u32; 2] = [4, 5];
const PTS_MAJORS: std::ops::RangeInclusive<u32> = 136..=143;

/// Where descriptor 0 leads, and how much waits there. `peers` are searched for the other end of descriptor 0, except the
/// process itself.
pub(crate) fn stdin(process: ProcessId, dir: &ProcessDir, peers: &[ProcessId]) -> Result<(Stdin, Bytes), HostError> {
    let mut unread = Bytes(0);
    let leads = match descriptor(dir, 0)? {
        Some(Object::Device(major)) if TERMINAL_MAJORS.contains(&major) || PTS_MAJORS.contains(&major) => {
            Stdin::Terminal
        }
        Some(pipe @ Object::Pipe(_)) => {
            let seen = read_end(dir)?;
            unread = seen.unread;
            if seen.has_no_writer {
                Stdin::Closed
            } else {
                Stdin::Peer(holders(process, peers, |object, writes| writes && object == pipe)?)
            }
        }
        Some(Object::Socket(inode)) => {
            let socket = unix_diag::unix_socket(dir, inode)?;
            unread = Bytes(socket.unread.into());
            match socket.other_end {
                OtherEnd::Socket(inode) => {
                    Stdin::Peer(holders(process, peers, |object, _| object == Object::Socket(inode))?)
                }
                OtherEnd::Closed => Stdin::Closed,
                OtherEnd::Unknown => Stdin::Other,
            }
        }
        Some(Object::Device(_)) | None => Stdin::Other,
    };
    Ok((leads, unread))
}

/// The read end of a pipe.
#[derive(Clone, Copy, Debug, Default)]
struct ReadEnd {
    has_no_writer: bool,
    unread: Bytes,
}

/// Whether the pipe at descriptor 0 has no writer, and what waits in it.
///
/// Opening the descriptor's link opens the pipe again. Then poll reports POLLHUP exactly when no process in any container
/// has the write end open, which a search of /proc could not show. Nothing is read from the pipe. While it is open (some
/// microseconds), a writer whose last reader exits gets EPIPE one write later.
///
/// A FIFO of a file system does not report POLLHUP if it was opened after the last writer closed it: then it seems to have a
/// writer, and the search for holders finds none.
fn read_end(dir: &ProcessDir) -> Result<ReadEnd, HostError> {
    let failed = |action, errno| HostError::io(action, dir.path("fd/0"), errno);
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let pipe = match openat(dir.fd(), "fd/0", flags, Mode::empty()) {
        Ok(pipe) => pipe,
        Err(errno) if is_missing(errno) => return Ok(ReadEnd::default()),
        Err(errno) => return Err(failed("open", errno)),
    };
    // The process may have replaced it since the inspection.
    let mode = fstat(&pipe).map_err(|errno| failed("stat", errno))?.st_mode;
    if FileType::from_raw_mode(mode) != FileType::Fifo {
        return Ok(ReadEnd::default());
    }
    let unread = ioctl_fionread(&pipe).map_err(|errno| failed("ask for the unread bytes of", errno))?;
    let mut poll_fd = [PollFd::new(&pipe, PollFlags::IN)];
    poll(&mut poll_fd, Some(&Timespec::default())).map_err(|errno| failed("poll", errno))?;
    Ok(ReadEnd { has_no_writer: poll_fd[0].revents().contains(PollFlags::HUP), unread: Bytes(unread) })
}

/// The processes of `peers` that hold a descriptor of this kind. Costs 2 µs for each descriptor of each peer.
fn holders(
    process: ProcessId,
    peers: &[ProcessId],
    is_other_end: impl Fn(Object, bool) -> bool,
) -> Result<Vec<ProcessId>, HostError> {
    let mut buffer = Vec::new();
    let mut found = Vec::new();
    for peer in peers.iter().filter(|peer| **peer != process) {
        let Some((dir, _)) = ProcessDir::of(*peer, &mut buffer)? else { continue };
        match descriptors(&dir) {
            Ok(held) if held.iter().any(|held| is_other_end(held.object, held.writes)) => found.push(*peer),
            Ok(_) => {}
            // Another user's process, without root: skip it.
            Err(error) if error.is_denied() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
